//! Limits of a decoder: packet size and user properties.

use crate::var_int::VAR_INT_MAX;

/// A fixed header of five bytes, and the maximum remaining length.
const LONGEST_PACKET: u32 = 5 + VAR_INT_MAX;

/// Limits of the decoder, whatever the peer announces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Maximum packet size, in bytes with its fixed header.
    pub packet_bytes: u32,
    /// Maximum number of user properties in one property list.
    pub user_properties: u16,
    /// Maximum bytes of the user properties of one list on the wire.
    pub user_property_bytes: u32,
}

impl Limits {
    /// The limits of the protocol itself.
    pub const MAX: Self = Self {
        packet_bytes: LONGEST_PACKET,
        user_properties: u16::MAX,
        user_property_bytes: u32::MAX,
    };
}

/// The maximum packet size of the protocol, 64 user properties and 16 KiB of them.
impl Default for Limits {
    fn default() -> Self {
        Self {
            packet_bytes: LONGEST_PACKET,
            user_properties: 64,
            user_property_bytes: 16 * 1024,
        }
    }
}
