//! Makes the sidecar's events of a producer's JSON lines.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyType};

use super::fields::{Field, Fields};
use super::payloads::{ASK, BID, BookChanges, push_payload, push_time_of};
use crate::schema::{PAYLOADS, case};
use crate::writer::push_id;

const LOCAL_TS: u32 = 4;

/// Maps the messages of one stream.
#[pyclass(frozen)]
pub struct JsonMapper {
    event: Py<PyType>,
    id_prefix: String,
    most_events: usize,
    most_bytes: usize,
    largest: usize,
    level_bytes: usize,
    cases: Vec<Py<PyString>>,
    frames: Mutex<HashMap<Vec<u8>, Arc<Frame>>>,
}

/// What surrounds the payload and does not differ between messages alike, as the Python code makes it.
struct Frame {
    before_times: Py<PyBytes>,
    after_times: Py<PyBytes>,
    facts: Facts,
}

/// The last fields of an event.
type Facts = (
    Py<PyAny>,
    Py<PyAny>,
    Py<PyAny>,
    Py<PyAny>,
    Py<PyAny>,
    Py<PyAny>,
);

/// A slice of a batch, as far as it is made.
struct Slice<'a, 'py> {
    groups: &'a Bound<'py, PyList>,
    events: usize,
    bytes: usize,
}

/// What all messages of a call share.
struct Call<'a, 'py> {
    py: Python<'py>,
    ingest_field: &'a [u8],
    frame_of: &'a Bound<'py, PyAny>,
}

/// What became of a line.
enum Outcome {
    Mapped,
    /// There is no room for it in the slice.
    Full,
    /// It is to be mapped, or rejected, by the Python code.
    Uncertain,
}

/// A line that can be mapped, unless its fields are odd.
struct Message<'a> {
    data_type: &'a str,
    fields: Fields<'a>,
}

/// What a frame is made of, beside the symbols.
struct FrameFacts<'a> {
    data_type: &'a str,
    exchange: &'a str,
    symbol: &'a str,
    name: &'a str,
    is_snapshot: Option<bool>,
}

impl FrameFacts<'_> {
    fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(64);
        for text in [self.data_type, self.exchange, self.symbol, self.name] {
            key.extend_from_slice(&text.len().to_le_bytes());
            key.extend_from_slice(text.as_bytes());
        }
        key.push(self.is_snapshot.map_or(2, u8::from));
        key
    }
}

impl<'a> Message<'a> {
    fn read(line: &'a [u8]) -> Option<Self> {
        let fields = Fields::read(line)?;
        let data_type = fields.text(Field::Type)??;
        Some(Self { data_type, fields })
    }

    fn levels(&self) -> usize {
        self.fields.bids.len() + self.fields.asks.len()
    }

    fn is_of_levels(&self) -> bool {
        self.data_type == "book_change" && self.levels() > 0
    }

    fn facts(&self) -> Option<FrameFacts<'a>> {
        let fields = &self.fields;
        fields.array(Field::Symbols)?;
        let symbol = fields.text(Field::Symbol)?.unwrap_or_default();
        Some(FrameFacts {
            data_type: self.data_type,
            exchange: fields
                .text(Field::Exchange)?
                .filter(|name| !name.is_empty())?,
            symbol: match self.data_type {
                "disconnect" => fields.symbols.first().copied().unwrap_or_default(),
                _ => symbol,
            },
            name: fields.text(Field::Name)?.unwrap_or_default(),
            is_snapshot: fields.flag(Field::IsSnapshot)?,
        })
    }
}

#[pymethods]
impl JsonMapper {
    #[new]
    #[pyo3(signature = (event, *, id_prefix, most_events, most_bytes, largest, level_bytes))]
    fn new(
        py: Python<'_>,
        event: Py<PyType>,
        id_prefix: String,
        most_events: usize,
        most_bytes: usize,
        largest: usize,
        level_bytes: usize,
    ) -> Self {
        Self {
            event,
            id_prefix,
            most_events,
            most_bytes,
            largest,
            level_bytes,
            cases: PAYLOADS
                .iter()
                .map(|payload| PyString::intern(py, payload.2).unbind())
                .collect(),
            frames: Mutex::default(),
        }
    }

    /// Maps lines from `start` on until one is uncertain, or the slice is full.
    ///
    /// The events of each line are appended to `groups`. Returns the index of the next line, how many events and
    /// bytes are in the slice now, and whether the next line has no room in it.
    #[expect(
        clippy::too_many_arguments,
        reason = "nothing is made for a call that does not need it"
    )]
    fn map<'py>(
        &self,
        py: Python<'py>,
        lines: &Bound<'py, PyList>,
        start: usize,
        first_position: u64,
        ingest_field: &[u8],
        groups: &Bound<'py, PyList>,
        events: usize,
        bytes: usize,
        frame_of: &Bound<'py, PyAny>,
    ) -> PyResult<(usize, usize, usize, bool)> {
        let call = Call {
            py,
            ingest_field,
            frame_of,
        };
        let mut slice = Slice {
            groups,
            events,
            bytes,
        };
        for index in start..lines.len() {
            let line = lines.get_item(index)?.cast_into::<PyBytes>()?;
            let position = first_position + index as u64;
            match self.map_line(&call, line.as_bytes(), position, &mut slice)? {
                Outcome::Mapped => {}
                Outcome::Full => return Ok((index, slice.events, slice.bytes, true)),
                Outcome::Uncertain => return Ok((index, slice.events, slice.bytes, false)),
            }
        }
        Ok((lines.len(), slice.events, slice.bytes, false))
    }

    /// Forgets what is remembered of the stream's messages.
    fn forget(&self) {
        self.frames().clear();
    }
}

impl JsonMapper {
    fn frames(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<Frame>>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_line(
        &self,
        call: &Call,
        line: &[u8],
        position: u64,
        slice: &mut Slice,
    ) -> PyResult<Outcome> {
        if line.len() > self.largest {
            return Ok(Outcome::Uncertain);
        }
        let Some(message) = Message::read(line) else {
            return Ok(Outcome::Uncertain);
        };
        let count = if message.is_of_levels() {
            message.levels()
        } else {
            1
        };
        let bytes = slice.bytes + line.len();
        let is_full = slice.events + count > self.most_events || bytes > self.most_bytes;
        if is_full && !slice.groups.is_empty() {
            return Ok(Outcome::Full);
        }
        let id = format!("{}{position}", self.id_prefix);
        let made = if message.is_of_levels() {
            self.levels(call, &message, id)?
        } else {
            self.event(call, &message, &id)?
        };
        let Some(events) = made else {
            return Ok(Outcome::Uncertain);
        };
        slice.groups.append(events)?;
        slice.events += count;
        slice.bytes = bytes;
        Ok(Outcome::Mapped)
    }

    /// Makes the only event of a message.
    fn event<'py>(
        &self,
        call: &Call<'_, 'py>,
        message: &Message,
        id: &str,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let mut payload = Vec::with_capacity(256);
        let Some(case) = push_payload(&mut payload, message.data_type, &message.fields) else {
            return Ok(None);
        };
        let Some((mut envelope, frame)) = self.before_id(call, message)? else {
            return Ok(None);
        };
        push_id(&mut envelope, id);
        envelope.extend_from_slice(&payload);
        let event = self.event_of(call.py, &envelope, id, case, &frame.facts)?;
        PyList::new(call.py, [event]).map(Some)
    }

    /// Makes an event of each level of a book change.
    fn levels<'py>(
        &self,
        call: &Call<'_, 'py>,
        message: &Message,
        mut id: String,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(mut changes) = BookChanges::new(&message.fields) else {
            return Ok(None);
        };
        let Some((mut envelope, frame)) = self.before_id(call, message)? else {
            return Ok(None);
        };
        let (shared, position, levels) = (envelope.len(), id.len(), message.levels());
        // The Python code gives out the events of so many levels little by little.
        if levels > self.most_events || levels * (shared + self.level_bytes) > self.most_bytes {
            return Ok(None);
        }
        let events = PyList::empty(call.py);
        let (bids, asks) = (&message.fields.bids, &message.fields.asks);
        let sided = bids
            .iter()
            .map(|level| (BID, level))
            .chain(asks.iter().map(|level| (ASK, level)));
        for (number, (side, level)) in sided.enumerate() {
            id.truncate(position);
            write!(id, ".{number}").expect("a text takes everything");
            envelope.truncate(shared);
            push_id(&mut envelope, &id);
            changes.push(&mut envelope, side, *level);
            events.append(self.event_of(
                call.py,
                &envelope,
                &id,
                case::BOOK_CHANGE,
                &frame.facts,
            )?)?;
        }
        Ok(Some(events))
    }

    /// Writes the envelope up to the event's id.
    fn before_id(&self, call: &Call, message: &Message) -> PyResult<Option<(Vec<u8>, Arc<Frame>)>> {
        let mut local_ts = Vec::with_capacity(20);
        if push_time_of(
            &mut local_ts,
            LOCAL_TS,
            &message.fields,
            Field::LocalTimestamp,
        )
        .is_none()
        {
            return Ok(None);
        }
        let Some(frame) = self.frame(call, message)? else {
            return Ok(None);
        };
        let mut envelope = Vec::with_capacity(512);
        envelope.extend_from_slice(frame.before_times.as_bytes(call.py));
        envelope.extend_from_slice(&local_ts);
        envelope.extend_from_slice(call.ingest_field);
        envelope.extend_from_slice(frame.after_times.as_bytes(call.py));
        Ok(Some((envelope, frame)))
    }

    /// Recalls what surrounds the payload, or has it made: a stream has few instruments.
    fn frame(&self, call: &Call, message: &Message) -> PyResult<Option<Arc<Frame>>> {
        let Some(facts) = message.facts() else {
            return Ok(None);
        };
        let (symbols, key) = (&message.fields.symbols, facts.key());
        if symbols.is_empty()
            && let Some(frame) = self.frames().get(&key)
        {
            return Ok(Some(Arc::clone(frame)));
        }
        let alike = (
            facts.data_type,
            facts.exchange,
            facts.symbol,
            facts.name,
            facts.is_snapshot,
        );
        let made = call.frame_of.call1((alike, symbols.clone()))?;
        let Some((before_times, after_times, facts, may_be_kept)) = made.extract()? else {
            return Ok(None);
        };
        let frame = Arc::new(Frame {
            before_times,
            after_times,
            facts,
        });
        if may_be_kept {
            self.frames().insert(key, Arc::clone(&frame));
        }
        Ok(Some(frame))
    }

    fn event_of<'py>(
        &self,
        py: Python<'py>,
        envelope: &[u8],
        id: &str,
        case: usize,
        facts: &Facts,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.event.bind(py).call1((
            PyBytes::new(py, envelope),
            PyString::new(py, id),
            &self.cases[case],
            &facts.0,
            &facts.1,
            &facts.2,
            &facts.3,
            &facts.4,
            &facts.5,
        ))
    }
}
