//! A property: an identifier and its value, as the table of properties defines them.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};

use super::value::{
    Binary, Flag, FourBytes, NonZeroFourBytes, NonZeroTwoBytes, NonZeroVarInt, TwoBytes, Utf8,
    ValueEncoding, ZeroOrOne,
};
use crate::error::{DecodeError, EncodeError};
use crate::property_id::PropertyId;
use crate::property_table::property_table;
use crate::text::Text;
use crate::types::QoS;
use crate::wire::{PacketReader, PacketWriter};

macro_rules! define_properties {
    ($(
        $(#[$doc:meta])+
        $id:literal $variant:ident $finder:ident
        ($($field:ident: $type:ty as $shape:ident),+)
        once [$($once:ident)*] many [$($many:ident)*]
    )+) => {
        /// One property of a packet: its identifier and its value.
        #[derive(Clone, Copy, Eq, PartialEq)]
        pub enum Property<'a> {
            $($(#[$doc])+ $variant($($type),+),)+
        }

        impl<'a> Property<'a> {
            /// Its identifier.
            #[inline]
            #[must_use]
            pub const fn id(&self) -> PropertyId {
                match self {
                    $(Self::$variant(..) => PropertyId::$variant,)+
                }
            }

            /// Reads the value behind the identifier.
            #[inline]
            pub(crate) fn read(
                id: PropertyId,
                reader: &mut PacketReader<'a>,
            ) -> Result<Self, DecodeError> {
                Ok(match id {
                    $(PropertyId::$variant => Self::$variant(
                        $(<$shape as ValueEncoding<'_>>::read(reader, id)?),+
                    ),)+
                })
            }

            /// Writes identifier and value.
            pub(crate) fn write(&self, writer: &mut PacketWriter<'_>) -> Result<(), EncodeError> {
                let id = self.id();
                writer.u8(id as u8);
                match *self {
                    $(Self::$variant($($field),+) => {
                        $(<$shape as ValueEncoding<'_>>::write($field, writer, id)?;)+
                    })+
                }
                Ok(())
            }
        }

        /// Prints the value, too, except authentication data, which is a secret.
        impl fmt::Debug for Property<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.id() == PropertyId::AuthenticationData {
                    return f.write_str("AuthenticationData(..)");
                }
                match self {
                    $(Self::$variant($($field),+) => f
                        .debug_tuple(stringify!($variant))
                        $(.field($field))+
                        .finish(),)+
                }
            }
        }

        define_properties!(@finders $($variant $finder ($($type),+))+);
    };
    (@finders $($variant:ident $finder:ident ($first:ty $(, $second:ty)?))+) => {
        impl<'a> super::Properties<'a> {
            $(define_properties!(@finder $variant $finder ($first $(, $second)?));)+
        }
    };
    (@finder $variant:ident $finder:ident ($type:ty)) => {
        #[doc = concat!("The first [`Property::", stringify!($variant), "`], if there is one.")]
        #[must_use]
        pub fn $finder(self) -> Option<$type> {
            self.iter().find_map(|property| match property {
                Property::$variant(value) => Some(value),
                _ => None,
            })
        }
    };
    (@finder $variant:ident $finder:ident ($first:ty, $second:ty)) => {
        #[doc = concat!("The first [`Property::", stringify!($variant), "`], if there is one.")]
        #[must_use]
        pub fn $finder(self) -> Option<($first, $second)> {
            self.iter().find_map(|property| match property {
                Property::$variant(first, second) => Some((first, second)),
                _ => None,
            })
        }
    };
}

property_table!(define_properties);
