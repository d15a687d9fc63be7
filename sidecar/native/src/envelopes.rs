//! Reads from encoded envelopes what routing needs, and checks the rest.

use crate::schema::{
    ENVELOPE, EXCHANGE, INGEST_TS, Kind, MESSAGES, META, ORIGIN, PAYLOADS, SOURCE, SYMBOL,
};
use crate::wire::{DEEPEST, Reader, Wire, check};

/// What routing reads.
#[derive(Default)]
pub struct Facts<'a> {
    pub source: &'a str,
    pub exchange: &'a str,
    pub symbol: &'a str,
    pub origin: i32,
    pub has_ingest_time: bool,
    /// In the order of the bytes; of two entries with one key the later counts.
    pub meta: Vec<(&'a str, &'a str)>,
    /// The payload's place among `PAYLOADS`.
    pub case: Option<usize>,
}

impl<'a> Facts<'a> {
    /// Reads a whole envelope; returns `None` if the bytes are none.
    pub fn read(envelope: &'a [u8]) -> Option<Self> {
        let mut facts = Facts::default();
        let mut reader = Reader::new(envelope);
        while !reader.is_at_end() {
            let (number, wire) = reader.field()?;
            match (number, wire) {
                (SOURCE, Wire::Delimited) => facts.source = reader.text()?,
                (EXCHANGE, Wire::Delimited) => facts.exchange = reader.text()?,
                (SYMBOL, Wire::Delimited) => facts.symbol = reader.text()?,
                (ORIGIN, Wire::Varint) => facts.origin = as_enum(reader.varint()?),
                (META, Wire::Delimited) => facts.read_entry(reader.delimited()?)?,
                (_, Wire::Delimited) => facts.read_message(number, reader.delimited()?)?,
                _ => reader.skip(number, wire, DEEPEST)?,
            }
        }
        Some(facts)
    }

    fn read_message(&mut self, number: u32, bytes: &[u8]) -> Option<()> {
        if let Some(case) = PAYLOADS.iter().position(|payload| payload.0 == number) {
            self.case = Some(case);
            return check(PAYLOADS[case].1, bytes, DEEPEST - 1);
        }
        self.has_ingest_time |= number == INGEST_TS;
        match MESSAGES[ENVELOPE].iter().find(|field| field.0 == number) {
            Some((_, Kind::Message(inner))) => check(*inner, bytes, DEEPEST - 1),
            _ => Some(()),
        }
    }

    /// Reads an entry of a map from text to text; Protobuf ignores one that has a field of another sort.
    fn read_entry(&mut self, bytes: &'a [u8]) -> Option<()> {
        let mut reader = Reader::new(bytes);
        let (mut key, mut value, mut is_entry) = ("", "", true);
        while !reader.is_at_end() {
            match reader.field()? {
                (1, Wire::Delimited) => key = reader.text()?,
                (2, Wire::Delimited) => value = reader.text()?,
                (number, wire) => {
                    reader.skip(number, wire, DEEPEST - 1)?;
                    is_entry = false;
                }
            }
        }
        if is_entry {
            self.meta.push((key, value));
        }
        Some(())
    }

    /// Returns the value of a meta entry.
    pub fn meta_value(&self, key: &str) -> Option<&'a str> {
        self.meta
            .iter()
            .rev()
            .find(|entry| entry.0 == key)
            .map(|entry| entry.1)
    }
}

/// Protobuf keeps the lowest 32 bits of an enum.
#[expect(clippy::cast_possible_truncation)]
fn as_enum(number: u64) -> i32 {
    number as i32
}
