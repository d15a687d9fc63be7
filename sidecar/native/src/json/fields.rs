//! The fields of a message, as they stand in its JSON.

use super::reader::Reader;

/// A level of a book; a text is empty if the number is absent.
#[derive(Clone, Copy, Default)]
pub struct Level<'a> {
    pub price: &'a str,
    pub amount: &'a str,
}

#[derive(Clone, Copy, Default)]
enum Value<'a> {
    #[default]
    Absent,
    Flag(bool),
    Number(&'a str),
    Text(&'a str),
    /// An array; what it has stands beside the fields.
    Array,
}

macro_rules! fields {
    ($($field:ident = $name:literal),* $(,)?) => {
        /// The fields that a message of any type may have.
        #[derive(Clone, Copy)]
        pub enum Field { $($field),* }

        const COUNT: usize = [$(Field::$field),*].len();

        fn field_of(name: &str) -> Option<Field> {
            match name {
                $($name => Some(Field::$field),)*
                _ => None,
            }
        }
    };
}

fields! {
    Type = "type",
    Exchange = "exchange",
    Symbol = "symbol",
    Name = "name",
    IsSnapshot = "isSnapshot",
    Symbols = "symbols",
    LocalTimestamp = "localTimestamp",
    Timestamp = "timestamp",
    Id = "id",
    Price = "price",
    Amount = "amount",
    Side = "side",
    Bids = "bids",
    Asks = "asks",
    Depth = "depth",
    Interval = "interval",
    Grouping = "grouping",
    RemoveCrossedLevels = "removeCrossedLevels",
    Sequence = "sequence",
    BidPrice = "bidPrice",
    BidAmount = "bidAmount",
    AskPrice = "askPrice",
    AskAmount = "askAmount",
    MarkPrice = "markPrice",
    IndexPrice = "indexPrice",
    FundingRate = "fundingRate",
    MarkIv = "markIV",
    BestBidIv = "bestBidIV",
    BestAskIv = "bestAskIV",
    Delta = "delta",
    Gamma = "gamma",
    Theta = "theta",
    Vega = "vega",
    OpenInterest = "openInterest",
    Kind = "kind",
    Open = "open",
    High = "high",
    Low = "low",
    Close = "close",
    Volume = "volume",
    Trades = "trades",
    OpenTimestamp = "openTimestamp",
    CloseTimestamp = "closeTimestamp",
    Details = "details",
    Code = "code",
    SubSequentErrorsCount = "subSequentErrorsCount",
    SubsequentErrors = "subsequentErrors",
}

/// A message that is valid JSON, and has nothing odd in any field that a type knows.
pub struct Fields<'a> {
    values: [Value<'a>; COUNT],
    pub symbols: Vec<&'a str>,
    pub bids: Vec<Level<'a>>,
    pub asks: Vec<Level<'a>>,
}

impl<'a> Fields<'a> {
    pub fn read(line: &'a [u8]) -> Option<Self> {
        // Among envelopes, what begins otherwise is one of them.
        matches!(line.first(), Some(b'{' | b' ')).then_some(())?;
        let mut reader = Reader::new(std::str::from_utf8(line).ok()?);
        let mut fields = Self {
            values: [Value::Absent; COUNT],
            symbols: Vec::new(),
            bids: Vec::new(),
            asks: Vec::new(),
        };
        let mut seen = 0_u64;
        reader.object(|reader, name| {
            let Some(field) = field_of(name) else {
                return reader.skip();
            };
            // Which of two values counts, and which may be wrong, is not for us to say.
            let bit = 1 << field as usize;
            (seen & bit == 0).then_some(())?;
            seen |= bit;
            fields.values[field as usize] = fields.value(reader, field)?;
            Some(())
        })?;
        reader.is_at_end().then_some(fields)
    }

    fn value(&mut self, reader: &mut Reader<'a>, field: Field) -> Option<Value<'a>> {
        match reader.next()? {
            b'n' => reader.null().map(|()| Value::Absent),
            b'"' => reader.text().map(Value::Text),
            b't' | b'f' => reader.flag().map(Value::Flag),
            b'[' => {
                match field {
                    Field::Bids => levels(reader, &mut self.bids)?,
                    Field::Asks => levels(reader, &mut self.asks)?,
                    Field::Symbols => symbols(reader, &mut self.symbols)?,
                    _ => return None,
                }
                Some(Value::Array)
            }
            _ => reader.number().map(Value::Number),
        }
    }

    #[expect(
        clippy::option_option,
        reason = "none at all is uncertain, none within is absent"
    )]
    pub fn text(&self, field: Field) -> Option<Option<&'a str>> {
        match self.values[field as usize] {
            Value::Absent => Some(None),
            Value::Text(text) => Some(Some(text)),
            _ => None,
        }
    }

    #[expect(clippy::option_option, reason = "as for texts")]
    pub fn flag(&self, field: Field) -> Option<Option<bool>> {
        match self.values[field as usize] {
            Value::Absent => Some(None),
            Value::Flag(flag) => Some(Some(flag)),
            _ => None,
        }
    }

    /// Returns a number's own text; an empty one if there is no number.
    pub fn number(&self, field: Field) -> Option<&'a str> {
        match self.values[field as usize] {
            Value::Absent => Some(""),
            Value::Number(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a whole number that is not larger than `most`; 0 if there is none.
    pub fn integer(&self, field: Field, most: u64) -> Option<u64> {
        match self.number(field)? {
            "" => Some(0),
            text => text.parse().ok().filter(|&number| number <= most),
        }
    }

    /// Says whether an array is one, or absent.
    pub fn array(&self, field: Field) -> Option<()> {
        matches!(self.values[field as usize], Value::Absent | Value::Array).then_some(())
    }
}

fn levels<'a>(reader: &mut Reader<'a>, levels: &mut Vec<Level<'a>>) -> Option<()> {
    reader.array(|reader| {
        let mut level = Level::default();
        if reader.next()? == b'n' {
            reader.null()?;
        } else {
            let mut seen = [false; 2];
            reader.object(|reader, name| {
                let (index, number) = match name {
                    "price" => (0, &mut level.price),
                    "amount" => (1, &mut level.amount),
                    _ => return reader.skip(),
                };
                (!std::mem::replace(&mut seen[index], true)).then_some(())?;
                match reader.next()? {
                    b'n' => reader.null(),
                    _ => reader.number().map(|text| *number = text),
                }
            })?;
        }
        levels.push(level);
        Some(())
    })
}

fn symbols<'a>(reader: &mut Reader<'a>, symbols: &mut Vec<&'a str>) -> Option<()> {
    reader.array(|reader| match reader.next()? {
        b'n' => reader.null(),
        _ => reader.text().map(|text| symbols.push(text)),
    })
}
