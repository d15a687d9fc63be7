//! The sidecar's hot path, compiled. It knows no policy: it makes events of bytes, and bytes of records, as the
//! Python code does.

mod commands;
mod envelopes;
mod json;
mod kafka;
mod scanner;
mod schema;
mod wire;
mod writer;

#[pyo3::pymodule]
mod bronze_sidecar_native {
    /// What the sidecar must know to use it: `INTERFACE` in `bronze_sidecar/envelope/native.py`.
    #[pymodule_export]
    const INTERFACE: u32 = 1;

    #[pymodule_export]
    use super::commands::{publish_commands, script_entries};
    #[pymodule_export]
    use super::json::JsonMapper;
    #[pymodule_export]
    use super::kafka::RecordBatch;
    #[pymodule_export]
    use super::scanner::Scanner;
}
