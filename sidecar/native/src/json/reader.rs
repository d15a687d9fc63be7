//! Reads JSON text, strictly; a text with escapes, and a value that is nested deeply, is left to others.

const DEEPEST: u32 = 16;

/// JSON that is read from front to back.
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next byte that is not white space.
    pub fn next(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        loop {
            match *bytes.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                other => return Some(other),
            }
        }
    }

    pub fn is_at_end(&mut self) -> bool {
        self.next().is_none()
    }

    /// Passes over a byte, and white space before it, if that is what comes next.
    pub fn passes(&mut self, byte: u8) -> bool {
        let is_there = self.next() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    pub fn expect(&mut self, byte: u8) -> Option<()> {
        self.passes(byte).then_some(())
    }

    fn literal(&mut self, literal: &str) -> Option<()> {
        self.text[self.at..].starts_with(literal).then_some(())?;
        self.at += literal.len();
        Some(())
    }

    pub fn null(&mut self) -> Option<()> {
        self.literal("null")
    }

    pub fn flag(&mut self) -> Option<bool> {
        match self.next()? {
            b't' => self.literal("true").map(|()| true),
            _ => self.literal("false").map(|()| false),
        }
    }

    pub fn text(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        let length = self.text.as_bytes()[start..]
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        let end = start + length;
        (self.text.as_bytes()[end] == b'"').then_some(())?;
        self.at = end + 1;
        Some(&self.text[start..end])
    }

    pub fn number(&mut self) -> Option<&'a str> {
        self.next()?;
        let start = self.at;
        self.skip_if(|byte| byte == b'-');
        if !self.skip_if(|byte| byte == b'0') {
            self.digits()?;
        }
        if self.skip_if(|byte| byte == b'.') {
            self.digits()?;
        }
        if self.skip_if(|byte| byte | 0x20 == b'e') {
            self.skip_if(|byte| byte == b'-' || byte == b'+');
            self.digits()?;
        }
        Some(&self.text[start..self.at])
    }

    fn skip_if(&mut self, is_it: impl Fn(u8) -> bool) -> bool {
        let skips = self
            .text
            .as_bytes()
            .get(self.at)
            .is_some_and(|&byte| is_it(byte));
        self.at += usize::from(skips);
        skips
    }

    /// Passes over digits, at least one.
    fn digits(&mut self) -> Option<()> {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(rest.len());
        self.at += count;
        (count > 0).then_some(())
    }

    /// Reads an array; `element` reads each of its elements.
    pub fn array(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        if self.passes(b']') {
            return Some(());
        }
        loop {
            element(self)?;
            if !self.passes(b',') {
                return self.expect(b']');
            }
        }
    }

    /// Reads an object; `member` reads each value, given its name.
    pub fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &'a str) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        if self.passes(b'}') {
            return Some(());
        }
        loop {
            self.next()?;
            let name = self.text()?;
            self.expect(b':')?;
            member(self, name)?;
            if !self.passes(b',') {
                return self.expect(b'}');
            }
        }
    }

    pub fn skip(&mut self) -> Option<()> {
        self.skip_nested(DEEPEST)
    }

    fn skip_nested(&mut self, depth: u32) -> Option<()> {
        let inner = depth.checked_sub(1)?;
        match self.next()? {
            b'{' => self.object(|reader, _| reader.skip_nested(inner)),
            b'[' => self.array(|reader| reader.skip_nested(inner)),
            b'"' => self.text().map(drop),
            b'n' => self.null(),
            b't' | b'f' => self.flag().map(drop),
            _ => self.number().map(drop),
        }
    }
}
