//! Maps normalized JSON messages, as `sidecar/bronze_sidecar/mapping` does.
//!
//! What is certain is done here: a usual message that is valid. Every function returns `None` for anything else,
//! and the line goes back to the Python code, which knows all the rules, and the words for what breaks them.

mod fields;
mod mapper;
mod payloads;
mod reader;
mod timestamps;

pub use mapper::JsonMapper;
