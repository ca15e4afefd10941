//! Finds the ends of TLS records in received bytes.

/// Bytes of a record's header; the last two are the length of the rest, big-endian.
const HEADER_BYTES: u8 = 5;

/// The position in the current record.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct RecordPosition {
    /// Bytes of the header that have been passed.
    header: u8,
    /// The last two bytes of the header so far; then how many bytes of the record are missing.
    missing: u16,
}

impl RecordPosition {
    /// Passes the bytes up to the end of the current record, or all of `bytes`. Returns their number, and whether the
    /// record ends with them.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut passed = 0;
        while self.header < HEADER_BYTES {
            let Some(&byte) = bytes.get(passed) else {
                return (passed, false);
            };
            self.missing = (self.missing << 8) | u16::from(byte);
            self.header += 1;
            passed += 1;
        }
        let there = u16::try_from(bytes.len() - passed).unwrap_or(u16::MAX);
        let taken = self.missing.min(there);
        self.missing -= taken;
        let is_end = self.missing == 0;
        if is_end {
            *self = Self::default();
        }
        (passed + usize::from(taken), is_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records with these lengths after the header.
    fn records(lengths: &[u16]) -> Vec<u8> {
        let record = |len: &u16| {
            let [high, low] = len.to_be_bytes();
            let mut record = vec![0x17, 3, 3, high, low];
            record.resize(5 + usize::from(*len), 0xFF);
            record
        };
        lengths.iter().flat_map(record).collect()
    }

    /// Where records end, if at most `most` bytes come at once.
    fn ends(bytes: &[u8], most: usize) -> Vec<usize> {
        let (mut position, mut at, mut ends) = (RecordPosition::default(), 0, Vec::new());
        while at < bytes.len() {
            let part = &bytes[at..bytes.len().min(at.saturating_add(most))];
            let (passed, is_end) = position.pass(part);
            assert!(passed > 0);
            at += passed;
            ends.extend(is_end.then_some(at));
        }
        ends
    }

    #[test]
    fn records_end_where_their_headers_say_however_the_bytes_arrive() {
        let bytes = records(&[22, 0, 1, 16_640, 22, 256]);

        for most in [1, 2, 4, 5, 6, 26, 27, 28, 4_096, usize::MAX] {
            let wanted = [27, 32, 38, 16_683, 16_710, 16_971];
            assert_eq!(ends(&bytes, most), wanted, "{most} at once");
        }
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(ends(cut, 1).len(), 5);
    }
}
