//! Reads DER, as far as X.509 certificates need it.

/// Tags of universal types, and of fields of certificates.
pub(crate) mod tag {
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(crate) const UTF8_STRING: u8 = 0x0C;
    pub(crate) const NUMERIC_STRING: u8 = 0x12;
    pub(crate) const PRINTABLE_STRING: u8 = 0x13;
    pub(crate) const IA5_STRING: u8 = 0x16;
    pub(crate) const UTC_TIME: u8 = 0x17;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const SEQUENCE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x31;
    /// `[0]` and `[3]` around the version and the extensions of a certificate.
    pub(crate) const VERSION: u8 = 0xA0;
    pub(crate) const EXTENSIONS: u8 = 0xA3;
    /// Kinds of alternative names.
    pub(crate) const EMAIL: u8 = 0x81;
    pub(crate) const DNS: u8 = 0x82;
    pub(crate) const URI: u8 = 0x86;
    pub(crate) const IP: u8 = 0x87;
}

/// One value: its tag and its contents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    pub(crate) tag: u8,
    pub(crate) contents: &'a [u8],
}

/// Values that stand one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next value; `None` at the end, or if what is left is not a value.
    pub(crate) fn next(&mut self) -> Option<Value<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7F => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
                let len = bytes
                    .iter()
                    .fold(0, |len, &byte| len << 8 | usize::from(byte));
                (len, rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some(Value { tag, contents })
    }

    /// The contents of the next value, which has this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<Reader<'a>> {
        let value = self.next()?;
        (value.tag == tag).then_some(Self(value.contents))
    }

    /// The same if the next value has this tag; else nothing is read.
    pub(crate) fn optional(&mut self, tag: u8) -> Option<Reader<'a>> {
        (self.0.first() == Some(&tag)).then(|| self.expect(tag))?
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_one_to_five_bytes_are_read() {
        let long = [&[0x04, 0x81, 0x80][..], &[7; 0x80]].concat();
        assert_eq!(
            Reader(&long).next().map(|value| value.contents.len()),
            Some(0x80)
        );
        assert_eq!(
            Reader(b"\x04\x84\0\0\0\x01x")
                .next()
                .map(|value| value.contents),
            Some(&b"x"[..])
        );
        assert_eq!(
            Reader(b"\x04\x00").next().map(|value| value.contents),
            Some(&b""[..])
        );
    }

    #[test]
    fn a_length_beyond_the_end_or_without_a_number_is_no_value() {
        for bytes in [
            &b""[..],
            b"\x04",
            b"\x04\x02x",
            b"\x04\x80x\0\0",
            b"\x04\x84\xFF\xFF\xFF\xFFx",
            b"\x04\x85\0\0\0\0\x01x",
            b"\x04\x82\x01",
        ] {
            assert!(Reader(bytes).next().is_none(), "{bytes:?}");
        }
    }
}
