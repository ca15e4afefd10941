//! Property identifiers, and the packets in which each is allowed.

use crate::property_table::property_table;
use crate::types::PacketType;

/// A set of places for properties: bit `n` is packet type `n`, bit 0 is the will.
pub(crate) type PropertyPlaces = u16;

/// The will in CONNECT.
pub(crate) const WILL: PropertyPlaces = 1;

/// The place of a packet type.
#[inline]
pub(crate) const fn place(packet_type: PacketType) -> PropertyPlaces {
    1 << packet_type as u16
}

/// The places where a property is allowed.
#[derive(Clone, Copy)]
pub(crate) struct PropertyRule {
    /// Places where it may occur once.
    pub(crate) once: PropertyPlaces,
    /// Places where it may occur any number of times.
    pub(crate) many: PropertyPlaces,
}

macro_rules! places {
    ($($place:ident)*) => { 0 $(| places!(@ $place))* };
    (@ Will) => { WILL };
    (@ $packet:ident) => { place(PacketType::$packet) };
}

macro_rules! define_ids {
    ($(
        $(#[$doc:meta])+
        $id:literal $variant:ident $finder:ident
        ($($field:ident: $type:ty as $shape:ident),+)
        once [$($once:ident)*] many [$($many:ident)*]
    )+) => {
        /// The identifier of a property.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[repr(u8)]
        pub enum PropertyId {
            $($(#[$doc])+ $variant = $id,)+
        }

        impl PropertyId {
            /// Every property of MQTT 5.0, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The property with this identifier, or `None` where MQTT 5.0 defines none.
            #[inline]
            #[must_use]
            pub const fn from_value(value: u32) -> Option<Self> {
                match value {
                    $($id => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The name in the standard, in lower case with underscores: `server_keep_alive`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($finder),)+
                }
            }

            #[inline]
            pub(crate) const fn row(self) -> PropertyRule {
                match self {
                    $(Self::$variant => PropertyRule {
                        once: places!($($once)*),
                        many: places!($($many)*),
                    },)+
                }
            }
        }
    };
}

property_table!(define_ids);
