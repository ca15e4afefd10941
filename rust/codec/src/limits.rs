//! Limits of a decoder: packet size and user properties.

use crate::var_int::VAR_INT_MAX;

/// A fixed header of five bytes, and the longest remaining length.
const LONGEST_PACKET: u32 = 5 + VAR_INT_MAX;

/// What the decoder accepts at most, whatever the peer announces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The largest packet, in bytes with its fixed header.
    pub packet_bytes: u32,
    /// The most user properties in one property list.
    pub user_properties: u16,
    /// The most bytes that the user properties of one list take on the wire.
    pub user_property_bytes: u32,
}

impl Limits {
    /// What the protocol itself allows.
    pub const MAX: Self = Self {
        packet_bytes: LONGEST_PACKET,
        user_properties: u16::MAX,
        user_property_bytes: u32::MAX,
    };
}

/// Packets as long as the protocol allows, 64 user properties and 16 KiB of them.
impl Default for Limits {
    fn default() -> Self {
        Self {
            packet_bytes: LONGEST_PACKET,
            user_properties: 64,
            user_property_bytes: 16 * 1024,
        }
    }
}
