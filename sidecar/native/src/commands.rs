//! Writes the commands that give records to NATS and to Redis.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write as _;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Bytes, and the place and the size of each record that is too large.
type Commands<'py> = (Bound<'py, PyBytes>, Vec<(usize, usize)>);

/// How a command begins, its leading headers, and how many bytes of headers all messages of an address have.
type Head<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, usize);

/// Returns the commands that publish records to NATS; `sinks/nats/commands.py` says more.
#[pyfunction]
pub fn publish_commands<'py>(
    py: Python<'py>,
    records: &Bound<'py, PyAny>,
    first_reply: &[u8],
    reply: &[u8],
    most: usize,
    prepare: &Bound<'py, PyAny>,
    more_headers: Option<&Bound<'py, PyAny>>,
) -> PyResult<Commands<'py>> {
    let mut heads: HashMap<usize, Head> = HashMap::new();
    let (mut commands, mut oversized) = (Vec::with_capacity(1 << 16), Vec::new());
    let (mut reply_of_next, mut number) = (halves(first_reply)?, 0_usize);
    for (place, record) in records.try_iter()?.enumerate() {
        let record = record?;
        let event = record.getattr(intern!(py, "event"))?;
        let address = record.getattr(intern!(py, "address"))?;
        let (start, headers, length) = match heads.entry(address.as_ptr() as usize) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(prepared(&address, prepare)?),
        };
        let id = event.getattr(intern!(py, "id"))?;
        let id = id.extract::<&str>()?.as_bytes();
        let envelope = event.getattr(intern!(py, "envelope"))?;
        let envelope = envelope.cast::<PyBytes>()?.as_bytes();
        let more = match more_headers {
            Some(headers_of) => Some(headers_of.call1((&event,))?.cast_into::<PyBytes>()?),
            None => None,
        };
        let more = more.as_ref().map_or(&[][..], |more| more.as_bytes());
        let headers_size = *length + id.len() + more.len();
        let size = headers_size + envelope.len();
        if size > most {
            oversized.push((place, size));
            continue;
        }
        number += 1;
        commands.extend_from_slice(start.as_bytes());
        if let Some((before, after)) = reply_of_next {
            commands.extend_from_slice(before);
            write!(commands, "{number}")?;
            commands.extend_from_slice(after);
            commands.push(b' ');
        }
        write!(commands, "{headers_size} {size}\r\n")?;
        for part in [
            headers.as_bytes(),
            id,
            b"\r\n",
            more,
            b"\r\n",
            envelope,
            b"\r\n",
        ] {
            commands.extend_from_slice(part);
        }
        reply_of_next = halves(reply)?;
    }
    Ok((PyBytes::new(py, &commands), oversized))
}

/// Returns what stands before and behind the number in a reply subject; nothing if there is no reply.
fn halves(reply: &[u8]) -> PyResult<Option<(&[u8], &[u8])>> {
    if reply.is_empty() {
        return Ok(None);
    }
    let at = reply.windows(2).position(|two| two == b"%d");
    let at = at.ok_or_else(|| PyValueError::new_err("a reply needs a place for the number"))?;
    Ok(Some((&reply[..at], &reply[at + 2..])))
}

fn prepared<'py>(address: &Bound<'py, PyAny>, prepare: &Bound<'py, PyAny>) -> PyResult<Head<'py>> {
    let known = address.getattr(intern!(address.py(), "prepared"))?;
    if known.is_none() {
        return prepare.call1((address,))?.extract();
    }
    known.extract()
}

/// Returns the entries of a script call for Redis, and how many; `sinks/redis/entries.py` says more.
#[pyfunction]
pub fn script_entries<'py>(
    py: Python<'py>,
    records: &Bound<'py, PyAny>,
    number_of: &Bound<'py, PyAny>,
    has_meta: bool,
) -> PyResult<(Bound<'py, PyBytes>, usize)> {
    let mut numbers: HashMap<(usize, usize), Bound<PyBytes>> = HashMap::new();
    let (mut entries, mut count) = (Vec::with_capacity(1 << 16), 0);
    for record in records.try_iter()? {
        let record = record?;
        let event = record.getattr(intern!(py, "event"))?;
        let address = record.getattr(intern!(py, "address"))?;
        let meta = if has_meta {
            event.getattr(intern!(py, "meta"))?.as_ptr() as usize
        } else {
            0
        };
        let number = match numbers.entry((address.as_ptr() as usize, meta)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(number_of.call1((&record,))?.cast_into()?),
        };
        entries.extend_from_slice(number.as_bytes());
        let envelope = event.getattr(intern!(py, "envelope"))?;
        push_bulk(&mut entries, envelope.cast::<PyBytes>()?.as_bytes())?;
        let id = event.getattr(intern!(py, "id"))?;
        push_bulk(&mut entries, id.extract::<&str>()?.as_bytes())?;
        count += 1;
    }
    Ok((PyBytes::new(py, &entries), count))
}

fn push_bulk(out: &mut Vec<u8>, word: &[u8]) -> PyResult<()> {
    write!(out, "${}\r\n", word.len())?;
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
    Ok(())
}
