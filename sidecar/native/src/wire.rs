//! Reads the Protobuf wire format, and refuses what Protobuf's own decoder refuses.

use crate::schema::{Kind, MESSAGES};

/// How deep messages and groups may be nested.
pub const DEEPEST: u32 = 100;
const LONGEST_VARINT: usize = 10;
const LONGEST_TAG: usize = 5;

/// What follows a field's tag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Varint,
    Fixed64,
    Delimited,
    GroupStart,
    GroupEnd,
    Fixed32,
}

/// Bytes that are read from front to back. Every method returns `None` for what is malformed.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the tag of a message's field.
    pub fn field(&mut self) -> Option<(u32, Wire)> {
        self.tag().filter(|tag| tag.0 != 0)
    }

    /// Reads a number and what follows it. Protobuf passes over a field 0, if only in a group that it does not know.
    fn tag(&mut self) -> Option<(u32, Wire)> {
        let tag = u32::try_from(self.number_of(LONGEST_TAG)?).ok()?;
        let wire = match tag & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Delimited,
            3 => Wire::GroupStart,
            4 => Wire::GroupEnd,
            5 => Wire::Fixed32,
            _ => return None,
        };
        Some((tag >> 3, wire))
    }

    pub fn varint(&mut self) -> Option<u64> {
        self.number_of(LONGEST_VARINT)
    }

    fn number_of(&mut self, most: usize) -> Option<u64> {
        let mut number = 0;
        for (index, &byte) in self.rest.iter().take(most).enumerate() {
            number |= u64::from(byte & 0x7F) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Some(number);
            }
        }
        None
    }

    /// Reads what a length-delimited field has.
    pub fn delimited(&mut self) -> Option<&'a [u8]> {
        let length = self.number_of(LONGEST_TAG)?;
        let length = i32::try_from(length).ok()?;
        self.take(usize::try_from(length).ok()?)
    }

    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.delimited()?).ok()
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Passes over a field that the schema does not have.
    pub fn skip(&mut self, number: u32, wire: Wire, depth: u32) -> Option<()> {
        match wire {
            Wire::Varint => self.varint().map(drop),
            Wire::Fixed64 => self.take(8).map(drop),
            Wire::Fixed32 => self.take(4).map(drop),
            Wire::Delimited => self.delimited().map(drop),
            Wire::GroupStart => self.skip_group(number, depth.checked_sub(1)?),
            Wire::GroupEnd => None,
        }
    }

    fn skip_group(&mut self, group: u32, depth: u32) -> Option<()> {
        loop {
            match self.tag()? {
                (number, Wire::GroupEnd) => return (number == group).then_some(()),
                (number, wire) => self.skip(number, wire, depth)?,
            }
        }
    }
}

/// Checks a whole message against the schema; it and what is in it may be nested so deep.
pub fn check(message: usize, bytes: &[u8], depth: u32) -> Option<()> {
    let mut reader = Reader::new(bytes);
    while !reader.is_at_end() {
        let (number, wire) = reader.field()?;
        let kind = MESSAGES[message]
            .iter()
            .find(|field| field.0 == number)
            .map(|field| field.1);
        match (kind, wire) {
            (Some(Kind::Text), Wire::Delimited) => reader.text().map(drop)?,
            (Some(Kind::Message(inner)), Wire::Delimited) => {
                check(inner, reader.delimited()?, depth.checked_sub(1)?)?;
            }
            // Numbers need no check of their own; a field of another kind than the schema's is unknown.
            _ => reader.skip(number, wire, depth)?,
        }
    }
    Some(())
}
