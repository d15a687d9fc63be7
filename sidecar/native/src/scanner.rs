//! Makes the sidecar's events of a producer's envelopes.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyType};

use crate::envelopes::Facts;
use crate::schema::PAYLOADS;
use crate::writer::push_id;

// Why an envelope is refused.
const NOT_AN_ENVELOPE: u8 = 0;
const NO_PAYLOAD: u8 = 1;
const NO_EXCHANGE: u8 = 2;
const LONG_NAMES: u8 = 3;

/// Events, and the index and the fault of each envelope that became none.
type Scanned<'py> = (Bound<'py, PyList>, Vec<(usize, u8)>);

/// Makes events of the envelopes of one stream.
#[pyclass(frozen)]
pub struct Scanner {
    event: Py<PyType>,
    id_prefix: String,
    own: OwnFacts,
    context_meta: Vec<ContextEntry>,
    needs_meta: bool,
    no_meta: Py<PyDict>,
    longest_name: usize,
    cases: Vec<Py<PyString>>,
    origins: Vec<Py<PyString>>,
}

/// What an envelope gets that has none of its own.
struct OwnFacts {
    source: String,
    source_field: Vec<u8>,
    origin: i32,
    origin_field: Vec<u8>,
}

/// An entry of the stream's meta, and how it is encoded in an envelope.
struct ContextEntry {
    key: String,
    value: String,
    field: Vec<u8>,
}

#[pymethods]
impl Scanner {
    #[new]
    #[pyo3(signature = (event, *, id_prefix, source, origin, context_meta, needs_meta, longest_name, origins))]
    #[expect(clippy::too_many_arguments, reason = "all by name")]
    fn new(
        py: Python<'_>,
        event: Py<PyType>,
        id_prefix: String,
        source: (String, Vec<u8>),
        origin: (i32, Vec<u8>),
        context_meta: Vec<(String, String, Vec<u8>)>,
        needs_meta: bool,
        longest_name: usize,
        origins: Vec<Py<PyString>>,
    ) -> Self {
        Self {
            event,
            id_prefix,
            own: OwnFacts {
                source: source.0,
                source_field: source.1,
                origin: origin.0,
                origin_field: origin.1,
            },
            context_meta: context_meta
                .into_iter()
                .map(|(key, value, field)| ContextEntry { key, value, field })
                .collect(),
            needs_meta,
            no_meta: PyDict::new(py).unbind(),
            longest_name,
            cases: PAYLOADS
                .iter()
                .map(|payload| PyString::intern(py, payload.2).unbind())
                .collect(),
            origins,
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "they are made for the call")]
    /// Returns the events, and the index and the fault of each envelope that is none.
    ///
    /// The envelopes are at one position after the other, or with `levels` all at the first.
    fn scan<'py>(
        &self,
        py: Python<'py>,
        envelopes: Vec<Bound<'py, PyBytes>>,
        first_position: u64,
        levels: Vec<u64>,
        ingest_field: &[u8],
    ) -> PyResult<Scanned<'py>> {
        let events = PyList::empty(py);
        let mut refused = Vec::new();
        let mut names = Names::default();
        let mut position = first_position;
        for (index, envelope) in envelopes.iter().enumerate() {
            let id = match levels.get(index) {
                Some(level) => format!("{}{position}.{level}", self.id_prefix),
                None => format!("{}{position}", self.id_prefix),
            };
            match self.facts(envelope.as_bytes()) {
                Ok((facts, case)) => {
                    let completed = self.completed(envelope.as_bytes(), &facts, &id, ingest_field);
                    let event = self.event_of(py, &completed, &id, &facts, case, &mut names)?;
                    events.append(event)?;
                }
                Err(fault) => refused.push((index, fault)),
            }
            position += u64::from(levels.is_empty());
        }
        Ok((events, refused))
    }
}

impl Scanner {
    fn facts<'a>(&self, envelope: &'a [u8]) -> Result<(Facts<'a>, usize), u8> {
        let facts = Facts::read(envelope).ok_or(NOT_AN_ENVELOPE)?;
        let case = facts.case.ok_or(NO_PAYLOAD)?;
        if facts.exchange.is_empty() {
            return Err(NO_EXCHANGE);
        }
        // Counting characters is needed only if there are more bytes.
        let is_long = facts.exchange.len() + facts.symbol.len() > self.longest_name
            && facts.exchange.chars().count() + facts.symbol.chars().count() > self.longest_name;
        if is_long {
            Err(LONG_NAMES)
        } else {
            Ok((facts, case))
        }
    }

    /// Returns the envelope with its id and what it lacks appended: a field that comes later counts.
    fn completed(&self, envelope: &[u8], facts: &Facts, id: &str, ingest_field: &[u8]) -> Vec<u8> {
        let mut completed = Vec::with_capacity(envelope.len() + id.len() + 64);
        completed.extend_from_slice(envelope);
        push_id(&mut completed, id);
        if !facts.has_ingest_time {
            completed.extend_from_slice(ingest_field);
        }
        if facts.source.is_empty() {
            completed.extend_from_slice(&self.own.source_field);
        }
        if facts.origin == 0 {
            completed.extend_from_slice(&self.own.origin_field);
        }
        for entry in &self.context_meta {
            if facts.meta_value(&entry.key).is_none() {
                completed.extend_from_slice(&entry.field);
            }
        }
        completed
    }

    fn event_of<'py, 'a>(
        &'a self,
        py: Python<'py>,
        completed: &[u8],
        id: &str,
        facts: &Facts<'a>,
        case: usize,
        names: &mut Names<'py, 'a>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let source = if facts.source.is_empty() {
            self.own.source.as_str()
        } else {
            facts.source
        };
        let origin = if facts.origin == 0 {
            self.own.origin
        } else {
            facts.origin
        };
        let origin = usize::try_from(origin)
            .ok()
            .and_then(|index| self.origins.get(index))
            .unwrap_or(&self.origins[0]);
        let meta = if self.needs_meta {
            self.meta_of(py, facts, &mut names.metas)?
        } else {
            self.no_meta.bind(py).clone()
        };
        self.event.bind(py).call1((
            PyBytes::new(py, completed),
            PyString::new(py, id),
            &self.cases[case],
            names.exchange.made(py, facts.exchange),
            names.symbol.made(py, facts.symbol),
            names
                .data_type
                .made(py, facts.meta_value("data_type").unwrap_or_default()),
            names.source.made(py, source),
            origin,
            meta,
        ))
    }

    /// Returns the meta of an event without its id; its own entries beat those of the stream.
    ///
    /// Events alike share it: a sink that writes it makes the same bytes of it once.
    fn meta_of<'py, 'a>(
        &self,
        py: Python<'py>,
        facts: &Facts<'a>,
        metas: &mut Metas<'py, 'a>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let own = facts.meta.iter().filter(|entry| entry.0 != "event_id");
        let entries: Vec<_> = own.copied().collect();
        if let Some(meta) = metas.get(&entries) {
            return Ok(meta.clone());
        }
        let meta = PyDict::new(py);
        for entry in &self.context_meta {
            meta.set_item(&entry.key, &entry.value)?;
        }
        for (key, value) in &entries {
            meta.set_item(key, value)?;
        }
        metas.insert(entries, meta.clone());
        Ok(meta)
    }
}

/// By an event's own entries.
type Metas<'py, 'a> = HashMap<Vec<(&'a str, &'a str)>, Bound<'py, PyDict>>;

/// Texts that follow each other are mostly the same, and metas come again.
#[derive(Default)]
struct Names<'py, 'a> {
    metas: Metas<'py, 'a>,
    exchange: Name<'py, 'a>,
    symbol: Name<'py, 'a>,
    data_type: Name<'py, 'a>,
    source: Name<'py, 'a>,
}

#[derive(Default)]
struct Name<'py, 'a>(Option<(&'a str, Bound<'py, PyString>)>);

impl<'py, 'a> Name<'py, 'a> {
    fn made(&mut self, py: Python<'py>, text: &'a str) -> Bound<'py, PyString> {
        match &self.0 {
            Some((last, made)) if *last == text => made.clone(),
            _ => {
                let made = PyString::new(py, text);
                self.0 = Some((text, made.clone()));
                made
            }
        }
    }
}
