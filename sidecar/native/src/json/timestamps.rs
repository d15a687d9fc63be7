//! ISO 8601 text in UTC to a time.

/// What a `google.protobuf.Timestamp` has.
#[derive(Clone, Copy)]
pub struct Time {
    pub seconds: i64,
    pub nanos: u32,
}

impl Time {
    /// Reads such as `2024-05-31T23:59:59.123456Z`.
    pub fn parse(text: &str) -> Option<Self> {
        let (date_and_time, fraction_and_zone) = text.as_bytes().split_at_checked(19)?;
        Some(Self {
            seconds: seconds(date_and_time)?,
            nanos: nanos(fraction_and_zone)?,
        })
    }
}

fn seconds(text: &[u8]) -> Option<i64> {
    let marks = [text[4], text[7], text[10], text[13], text[16]];
    (marks == *b"--T::").then_some(())?;
    let year = number(&text[0..4])?;
    let [month, day, hour, minute, second] = [5, 8, 11, 14, 17].map(|at| number(&text[at..at + 2]));
    let (month, day, hour, minute, second) = (month?, day?, hour?, minute?, second?);
    let is_real = year >= 1
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    is_real.then_some(())?;
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + i64::from(digit - b'0'))
    })
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years are counted from March, so that the day that some years have more is the last.
    let (years, months) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let before_year = years * 365 + years / 4 - years / 100 + years / 400;
    before_year + (months * 153 + 2) / 5 + day - 719_469
}

fn nanos(text: &[u8]) -> Option<u32> {
    let text = text
        .strip_suffix(b"Z")
        .or_else(|| text.strip_suffix(b"+00:00"))?;
    let Some(digits) = text.strip_prefix(b".") else {
        return text.is_empty().then_some(0);
    };
    (1..=9).contains(&digits.len()).then_some(())?;
    let missing = 9 - u32::try_from(digits.len()).ok()?;
    u32::try_from(number(digits)?)
        .ok()
        .map(|nanos| nanos * 10_u32.pow(missing))
}
