//! What each type of message becomes. The fields of a payload have the numbers that the schema gives them.

use super::fields::{Field, Fields, Level};
use super::timestamps::Time;
use crate::schema::{PAYLOADS, case};
use crate::writer::{push_delimited, push_integer, push_text, push_time};

const EVENT_TS: u32 = 10;
const END_TS: u32 = 11;
pub const BID: u64 = 1;
pub const ASK: u64 = 2;
const UPSERT: u64 = 1;
const DELETE: u64 = 2;
const UINT32: u64 = u32::MAX as u64;
const INT64: u64 = i64::MAX as u64;

const SIDES: &[(&str, u64)] = &[("buy", 1), ("sell", 2), ("unknown", 0)];
const BAR_KINDS: &[(&str, u64)] = &[("tick", 1), ("time", 2), ("volume", 3)];
const ERROR_CODES: &[(&str, u64)] = &[
    ("ws_connect", 1),
    ("ws_send", 2),
    ("source_auth", 3),
    ("source_rate_limit", 4),
];

/// A payload that is being written.
struct Payload<'a> {
    fields: &'a Fields<'a>,
    content: Vec<u8>,
}

/// Writes the payload of a message into an envelope; returns its place among `PAYLOADS`.
///
/// A book change must have no levels: each of them is an event of its own.
pub fn push_payload(out: &mut Vec<u8>, data_type: &str, fields: &Fields) -> Option<usize> {
    let content = Vec::with_capacity(128);
    let mut payload = Payload { fields, content };
    let case = match data_type {
        "trade" => payload.trade(),
        "book_change" => payload.empty_book_change(),
        "book_snapshot" => payload.book_snapshot(),
        "grouped_book_snapshot" => payload.grouped_book_snapshot(),
        "quote" => payload.best_prices().map(|()| case::QUOTE),
        "book_ticker" => payload.best_prices().map(|()| case::BOOK_TICKER),
        "derivative_ticker" => payload.derivative_ticker(),
        "liquidation" => payload.liquidation(),
        "option_summary" => payload.option_summary(),
        "trade_bar" => payload.trade_bar(),
        "error" => payload.error(),
        "disconnect" => Some(payload.disconnect()),
        _ => None,
    }?;
    push_delimited(out, PAYLOADS[case].0, &payload.content);
    Some(case)
}

impl Payload<'_> {
    fn text(&mut self, number: u32, field: Field) -> Option<()> {
        let text = self.fields.text(field)?.unwrap_or_default();
        push_text(&mut self.content, number, text);
        Some(())
    }

    fn number(&mut self, number: u32, field: Field) -> Option<()> {
        push_text(&mut self.content, number, self.fields.number(field)?);
        Some(())
    }

    fn integer(&mut self, number: u32, field: Field, most: u64) -> Option<()> {
        push_integer(&mut self.content, number, self.fields.integer(field, most)?);
        Some(())
    }

    fn choice(&mut self, number: u32, field: Field, choices: &[(&str, u64)]) -> Option<()> {
        if let Some(text) = self.fields.text(field)? {
            let choice = choices.iter().find(|choice| choice.0 == text)?;
            push_integer(&mut self.content, number, choice.1);
        }
        Some(())
    }

    fn time(&mut self, number: u32, field: Field) -> Option<()> {
        push_time_of(&mut self.content, number, self.fields, field)
    }

    fn trade(&mut self) -> Option<usize> {
        self.text(1, Field::Id)?;
        self.number(2, Field::Price)?;
        self.number(3, Field::Amount)?;
        self.choice(4, Field::Side, SIDES)?;
        self.time(EVENT_TS, Field::Timestamp)?;
        Some(case::TRADE)
    }

    fn empty_book_change(&mut self) -> Option<usize> {
        self.fields.array(Field::Bids)?;
        self.fields.array(Field::Asks)?;
        push_text(&mut self.content, 3, "0");
        push_text(&mut self.content, 4, "0");
        self.time(EVENT_TS, Field::Timestamp)?;
        Some(case::BOOK_CHANGE)
    }

    fn book_snapshot(&mut self) -> Option<usize> {
        let case = self.grouped_book_snapshot()?;
        let is_grouped = !self.fields.number(Field::Grouping)?.is_empty();
        Some(if is_grouped {
            case
        } else {
            case::BOOK_SNAPSHOT
        })
    }

    fn grouped_book_snapshot(&mut self) -> Option<usize> {
        self.integer(1, Field::Depth, UINT32)?;
        self.fields.array(Field::Bids)?;
        self.fields.array(Field::Asks)?;
        push_levels(&mut self.content, 2, &self.fields.bids);
        push_levels(&mut self.content, 3, &self.fields.asks);
        self.time(EVENT_TS, Field::Timestamp)?;
        self.integer(11, Field::Grouping, UINT32)?;
        self.integer(12, Field::Interval, UINT32)?;
        let removes_crossed_levels = self.fields.flag(Field::RemoveCrossedLevels)? != Some(false);
        push_integer(&mut self.content, 13, u64::from(removes_crossed_levels));
        self.integer(14, Field::Sequence, INT64)?;
        Some(case::GROUPED_BOOK_SNAPSHOT)
    }

    /// Quotes and book tickers have them in the same fields.
    fn best_prices(&mut self) -> Option<()> {
        self.number(1, Field::BidPrice)?;
        self.number(2, Field::BidAmount)?;
        self.number(3, Field::AskPrice)?;
        self.number(4, Field::AskAmount)?;
        self.time(EVENT_TS, Field::Timestamp)
    }

    fn derivative_ticker(&mut self) -> Option<usize> {
        self.number(1, Field::MarkPrice)?;
        self.number(2, Field::IndexPrice)?;
        self.number(3, Field::FundingRate)?;
        self.time(EVENT_TS, Field::Timestamp)?;
        Some(case::DERIVATIVE_TICKER)
    }

    fn liquidation(&mut self) -> Option<usize> {
        self.choice(1, Field::Side, SIDES)?;
        self.number(2, Field::Price)?;
        self.number(3, Field::Amount)?;
        self.text(4, Field::Id)?;
        self.time(EVENT_TS, Field::Timestamp)?;
        Some(case::LIQUIDATION)
    }

    fn option_summary(&mut self) -> Option<usize> {
        let fields = self.fields;
        // All three are read, so that each is checked.
        let ivs = [Field::MarkIv, Field::BestBidIv, Field::BestAskIv].map(|iv| fields.number(iv));
        let [mark, bid, ask] = [ivs[0]?, ivs[1]?, ivs[2]?];
        let iv = [mark, bid, ask].into_iter().find(|iv| !iv.is_empty());
        push_text(&mut self.content, 1, iv.unwrap_or_default());
        self.number(2, Field::Delta)?;
        self.number(3, Field::Gamma)?;
        self.number(4, Field::Theta)?;
        self.number(5, Field::Vega)?;
        self.number(6, Field::OpenInterest)?;
        self.time(EVENT_TS, Field::Timestamp)?;
        Some(case::OPTION_SUMMARY)
    }

    fn trade_bar(&mut self) -> Option<usize> {
        self.choice(1, Field::Kind, BAR_KINDS)?;
        self.integer(2, Field::Interval, u64::MAX)?;
        if self.fields.text(Field::Kind)? == Some("time") {
            self.integer(3, Field::Interval, UINT32)?;
        }
        self.number(4, Field::Open)?;
        self.number(5, Field::High)?;
        self.number(6, Field::Low)?;
        self.number(7, Field::Close)?;
        self.number(8, Field::Volume)?;
        self.integer(9, Field::Trades, u64::MAX)?;
        self.time(EVENT_TS, Field::OpenTimestamp)?;
        self.fields.text(Field::Timestamp)?;
        match self.fields.text(Field::CloseTimestamp)? {
            None => self.time(END_TS, Field::Timestamp)?,
            Some(_) => self.time(END_TS, Field::CloseTimestamp)?,
        }
        Some(case::TRADE_BAR)
    }

    fn error(&mut self) -> Option<usize> {
        self.fields.text(Field::Details)??;
        self.text(1, Field::Details)?;
        self.fields.number(Field::SubsequentErrors)?;
        let count = match self.fields.number(Field::SubSequentErrorsCount)? {
            "" => Field::SubsequentErrors,
            _ => Field::SubSequentErrorsCount,
        };
        self.integer(2, count, UINT32)?;
        self.choice(3, Field::Code, ERROR_CODES)?;
        Some(case::ERROR)
    }

    fn disconnect(&mut self) -> usize {
        push_text(&mut self.content, 1, "stream_disconnected");
        case::DISCONNECT
    }
}

fn push_levels(out: &mut Vec<u8>, number: u32, levels: &[Level]) {
    let mut content = Vec::with_capacity(64);
    for level in levels {
        content.clear();
        push_text(&mut content, 1, level.price);
        push_text(&mut content, 2, level.amount);
        push_delimited(out, number, &content);
    }
}

/// Writes a time; nothing if there is none.
pub fn push_time_of(out: &mut Vec<u8>, number: u32, fields: &Fields, field: Field) -> Option<()> {
    if let Some(text) = fields.text(field)? {
        let time = Time::parse(text)?;
        push_time(out, number, time.seconds, time.nanos);
    }
    Some(())
}

/// Writes the changes of a book, a level each.
pub struct BookChanges {
    event_ts: Vec<u8>,
    content: Vec<u8>,
}

impl BookChanges {
    pub fn new(fields: &Fields) -> Option<Self> {
        fields.array(Field::Bids)?;
        fields.array(Field::Asks)?;
        let mut event_ts = Vec::with_capacity(20);
        push_time_of(&mut event_ts, EVENT_TS, fields, Field::Timestamp)?;
        let content = Vec::with_capacity(64);
        Some(Self { event_ts, content })
    }

    pub fn push(&mut self, out: &mut Vec<u8>, side: u64, level: Level) {
        self.content.clear();
        push_integer(&mut self.content, 1, side);
        if !level.price.is_empty() && !level.amount.is_empty() {
            let action = if is_zero(level.amount) {
                DELETE
            } else {
                UPSERT
            };
            push_integer(&mut self.content, 2, action);
        }
        push_text(&mut self.content, 3, level.price);
        push_text(&mut self.content, 4, level.amount);
        self.content.extend_from_slice(&self.event_ts);
        push_delimited(out, PAYLOADS[case::BOOK_CHANGE].0, &self.content);
    }
}

/// Tells whether a number is zero, however it is spelled.
fn is_zero(number: &str) -> bool {
    let rest = number.trim_start_matches(['-', '0', '.']);
    rest.bytes()
        .next()
        .is_none_or(|byte| !byte.is_ascii_digit())
}
