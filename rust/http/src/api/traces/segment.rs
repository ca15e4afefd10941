//! TCP segments in IP packets, with their checksums.

use std::net::IpAddr;

/// Flags of a segment.
pub(super) const SYN: u8 = 0x02;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

const TCP: u8 = 6;
const TCP_HEADER_BYTES: usize = 20;
const IPV4_HEADER_BYTES: usize = 20;
const HOPS: u8 = 64;

/// Addresses and ports of a segment. Both addresses are of the same family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Endpoints {
    pub(super) from: (IpAddr, u16),
    pub(super) to: (IpAddr, u16),
}

impl Endpoints {
    pub(super) fn reversed(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
        }
    }
}

/// A segment; `payload` has less than 65,000 bytes.
pub(super) struct Segment<'a> {
    pub(super) endpoints: Endpoints,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) flags: u8,
    pub(super) payload: &'a [u8],
}

impl Segment<'_> {
    /// The segment in an IP packet.
    pub(super) fn to_ip(&self) -> Vec<u8> {
        let tcp = self.to_tcp();
        let len = |more: usize| {
            u16::try_from(tcp.len() + more)
                .unwrap_or(u16::MAX)
                .to_be_bytes()
        };
        let mut out = Vec::with_capacity(tcp.len() + 40);
        match (self.endpoints.from.0, self.endpoints.to.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                out.extend([0x45, 0]);
                out.extend(len(IPV4_HEADER_BYTES));
                // No identification; "do not fragment"; the checksum comes below.
                out.extend([0, 0, 0x40, 0, HOPS, TCP, 0, 0]);
                out.extend(from.octets());
                out.extend(to.octets());
                let sum = checksum(&[&out]);
                out[10..12].copy_from_slice(&sum);
            }
            (from, to) => {
                out.extend([0x60, 0, 0, 0]);
                out.extend(len(0));
                out.extend([TCP, HOPS]);
                out.extend(octets(from));
                out.extend(octets(to));
            }
        }
        out.extend(tcp);
        out
    }

    fn to_tcp(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TCP_HEADER_BYTES + self.payload.len());
        let (from, to) = (self.endpoints.from, self.endpoints.to);
        out.extend(from.1.to_be_bytes());
        out.extend(to.1.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.acknowledged.to_be_bytes());
        // A header of five words, the flags, a full window; the checksum comes below.
        out.extend([0x50, self.flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        out.extend(self.payload);
        let len = u32::try_from(out.len()).unwrap_or(u32::MAX).to_be_bytes();
        let pseudo = [octets(from.0), octets(to.0), len.to_vec(), vec![0, TCP]].concat();
        let sum = checksum(&[&pseudo, &out]);
        out[16..18].copy_from_slice(&sum);
        out
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The checksum of the internet (RFC 1071). All parts but the last have an even length.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let mut sum = 0_u32;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        let word = [pair[0], pair.get(1).copied().unwrap_or(0)];
        sum += u32::from(u16::from_be_bytes(word));
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    let sum = u16::try_from(sum).unwrap_or(u16::MAX);
    (!sum).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_over_a_packet_with_its_checksum_is_zero() {
        for (from, to) in [("10.0.0.7", "192.0.2.1"), ("2001:db8::7", "2001:db8::1")] {
            let segment = Segment {
                endpoints: Endpoints {
                    from: (from.parse().unwrap(), 50_000),
                    to: (to.parse().unwrap(), 1_883),
                },
                sequence: 7,
                acknowledged: 9,
                flags: PSH | ACK,
                payload: &[0xC0, 0, 1],
            };

            let tcp = segment.to_tcp();
            let ends = [
                octets(segment.endpoints.from.0),
                octets(segment.endpoints.to.0),
            ];
            let len = u32::try_from(tcp.len()).unwrap().to_be_bytes();
            let pseudo = [ends.concat(), len.to_vec(), vec![0, TCP]].concat();
            assert_eq!(checksum(&[&pseudo, &tcp]), [0, 0]);
            let ip = segment.to_ip();
            if from.contains('.') {
                assert_eq!(checksum(&[&ip[..20]]), [0, 0]);
                assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
            } else {
                assert_eq!(
                    usize::from(u16::from_be_bytes([ip[4], ip[5]])) + 40,
                    ip.len()
                );
            }
        }
    }

    /// The example of RFC 1071, section 3.
    #[test]
    fn the_checksum_is_that_of_the_internet() {
        let words = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];

        assert_eq!(checksum(&[&words]), (!0xDDF2_u16).to_be_bytes());
    }
}
