//! The sidecar's hot path, compiled. It knows no policy: bytes in, events out, as the Python code makes them.

mod envelopes;
mod json;
mod scanner;
mod schema;
mod wire;
mod writer;

#[pyo3::pymodule]
mod bronze_sidecar_native {
    #[pymodule_export]
    use super::json::JsonMapper;
    #[pymodule_export]
    use super::scanner::Scanner;
}
