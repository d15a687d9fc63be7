//! Makes record batches of Kafka, of the format with magic 2.

use std::collections::HashMap;

use pyo3::exceptions::PyOverflowError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

const MAGIC: u8 = 2;
/// Of the batch itself, before its records.
const HEADER_BYTES: usize = 61;
/// What the length of a batch does not count: its offset, and the length.
const UNCOUNTED_BYTES: usize = 12;
const CHECKSUM_AT: usize = 17;
const CHECKED_FROM: usize = 21;

/// A batch of records for one partition.
#[pyclass]
pub struct RecordBatch {
    codec: i16,
    compress: Option<Py<PyAny>>,
    most_bytes: usize,
    timestamp: i64,
    count: i32,
    records: Vec<u8>,
}

/// Key, its hash, and headers.
type Prepared = (Vec<u8>, u32, Vec<(String, Vec<u8>)>);

/// What all records of an address have in common, encoded.
struct Head {
    key: Vec<u8>,
    headers: Vec<u8>,
    count: usize,
}

impl Head {
    fn of(address: &Bound<PyAny>) -> PyResult<Self> {
        let prepared = address.getattr(intern!(address.py(), "prepared"))?;
        let (key, _, headers): Prepared = prepared.extract()?;
        let mut head = Self {
            key: Vec::new(),
            headers: Vec::new(),
            count: headers.len(),
        };
        push_sized(&mut head.key, &key);
        for (name, value) in &headers {
            push_header(&mut head.headers, name, value);
        }
        Ok(head)
    }
}

#[pymethods]
impl RecordBatch {
    /// `codec` is the number of the compression that `compress` does; nothing but it is in the attributes.
    #[new]
    fn new(codec: i16, compress: Option<Py<PyAny>>, most_bytes: usize, timestamp: i64) -> Self {
        Self {
            codec,
            compress,
            most_bytes,
            timestamp,
            count: 0,
            records: Vec::new(),
        }
    }

    /// Adds records from `start` on as long as there is room, the first in any case; returns where it ended.
    ///
    /// It is called once, and compresses what was added: the numbers, known later, are not compressed.
    fn fill(
        &mut self,
        py: Python<'_>,
        records: &Bound<'_, PyList>,
        start: usize,
        frame: &[u8],
        id_header: &str,
        more_headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let mut heads: HashMap<usize, Head> = HashMap::new();
        let mut record_bytes = Vec::with_capacity(512);
        let mut end = records.len();
        for index in start..records.len() {
            let record = records.get_item(index)?;
            let event = record.getattr(intern!(py, "event"))?;
            let address = record.getattr(intern!(py, "address"))?;
            let head = match heads.entry(address.as_ptr() as usize) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(Head::of(&address)?)
                }
            };
            let id = event.getattr(intern!(py, "id"))?;
            let envelope = event.getattr(intern!(py, "envelope"))?;
            let envelope = envelope.cast::<PyBytes>()?.as_bytes();
            let more: Vec<(String, String)> = match more_headers {
                Some(headers_of) => headers_of.call1((&event,))?.extract()?,
                None => Vec::new(),
            };
            record_bytes.clear();
            record_bytes.extend_from_slice(&[0, 0]); // no attributes; all have the same time
            push_number(&mut record_bytes, index - start);
            record_bytes.extend_from_slice(&head.key);
            push_number(&mut record_bytes, frame.len() + envelope.len());
            record_bytes.extend_from_slice(frame);
            record_bytes.extend_from_slice(envelope);
            push_number(&mut record_bytes, head.count + 1 + more.len());
            record_bytes.extend_from_slice(&head.headers);
            push_header(
                &mut record_bytes,
                id_header,
                id.extract::<&str>()?.as_bytes(),
            );
            for (name, value) in &more {
                push_header(&mut record_bytes, name, value.as_bytes());
            }
            let before = self.records.len();
            push_sized(&mut self.records, &record_bytes);
            if HEADER_BYTES + self.records.len() > self.most_bytes && index > start {
                self.records.truncate(before);
                end = index;
                break;
            }
            self.count += 1;
        }
        if let Some(compress) = &self.compress {
            let made = compress.call1(py, (PyBytes::new(py, &self.records),))?;
            self.records = made.cast_bound::<PyBytes>(py)?.as_bytes().to_vec();
        }
        Ok(end)
    }

    /// Returns the encoded batch, with the numbers that it is to have.
    fn build<'py>(
        &self,
        py: Python<'py>,
        producer_id: i64,
        producer_epoch: i16,
        sequence: i32,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let size = HEADER_BYTES + self.records.len();
        let counted = i32::try_from(size - UNCOUNTED_BYTES)
            .map_err(|_| PyOverflowError::new_err("the batch is too large"))?;
        let mut batch = Vec::with_capacity(size);
        batch.extend_from_slice(&0_i64.to_be_bytes()); // the broker gives the offset
        batch.extend_from_slice(&counted.to_be_bytes());
        batch.extend_from_slice(&(-1_i32).to_be_bytes()); // and knows the leader's epoch
        batch.push(MAGIC);
        batch.extend_from_slice(&[0; 4]); // the checksum
        batch.extend_from_slice(&self.codec.to_be_bytes());
        batch.extend_from_slice(&(self.count - 1).to_be_bytes());
        batch.extend_from_slice(&self.timestamp.to_be_bytes());
        batch.extend_from_slice(&self.timestamp.to_be_bytes());
        batch.extend_from_slice(&producer_id.to_be_bytes());
        batch.extend_from_slice(&producer_epoch.to_be_bytes());
        batch.extend_from_slice(&sequence.to_be_bytes());
        batch.extend_from_slice(&self.count.to_be_bytes());
        batch.extend_from_slice(&self.records);
        let checksum = crc32c::crc32c(&batch[CHECKED_FROM..]);
        batch[CHECKSUM_AT..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
        Ok(PyBytes::new(py, &batch))
    }
}

/// Writes a number as Kafka does: doubled, for numbers may be negative elsewhere.
fn push_number(out: &mut Vec<u8>, number: usize) {
    crate::writer::push_varint(out, 2 * number as u64);
}

fn push_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn push_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    push_sized(out, name.as_bytes());
    push_sized(out, value);
}
