//! Encodings of property values.

use std::num::{NonZero, NonZeroU32};

use crate::property_id::PropertyId;
use crate::wire::{PacketReader, PacketWriter};
use crate::{DecodeError, EncodeError, QoS, Text};

/// Encoding of a value; the table of properties names one for each field.
///
/// Both directions get the identifier, for their errors.
pub(super) trait ValueEncoding<'a> {
    type Value;

    fn read(reader: &mut PacketReader<'a>, id: PropertyId) -> Result<Self::Value, DecodeError>;

    fn write(
        value: Self::Value,
        writer: &mut PacketWriter<'_>,
        id: PropertyId,
    ) -> Result<(), EncodeError>;
}

/// A byte that is 0 or 1.
pub(super) struct Flag;

impl ValueEncoding<'_> for Flag {
    type Value = bool;

    #[inline]
    fn read(reader: &mut PacketReader<'_>, id: PropertyId) -> Result<bool, DecodeError> {
        match reader.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::PropertyValue(id)),
        }
    }

    #[inline]
    fn write(value: bool, writer: &mut PacketWriter<'_>, _: PropertyId) -> Result<(), EncodeError> {
        writer.u8(u8::from(value));
        Ok(())
    }
}

/// A QoS in a byte, but not 2.
pub(super) struct ZeroOrOne;

impl ValueEncoding<'_> for ZeroOrOne {
    type Value = QoS;

    #[inline]
    fn read(reader: &mut PacketReader<'_>, id: PropertyId) -> Result<QoS, DecodeError> {
        let is_one = Flag::read(reader, id)?;
        Ok(if is_one {
            QoS::AtLeastOnce
        } else {
            QoS::AtMostOnce
        })
    }

    #[inline]
    fn write(value: QoS, writer: &mut PacketWriter<'_>, id: PropertyId) -> Result<(), EncodeError> {
        if value == QoS::ExactlyOnce {
            return Err(EncodeError::Properties(DecodeError::PropertyValue(id)));
        }
        writer.u8(value.into());
        Ok(())
    }
}

/// The encodings of a big-endian integer: any value, and any but 0.
macro_rules! integers {
    ($($any:ident $non_zero:ident $integer:ident;)*) => {$(
        pub(super) struct $any;

        impl ValueEncoding<'_> for $any {
            type Value = $integer;

            #[inline]
            fn read(reader: &mut PacketReader<'_>, _: PropertyId) -> Result<$integer, DecodeError> {
                reader.$integer()
            }

            #[inline]
            fn write(
                value: $integer,
                writer: &mut PacketWriter<'_>,
                _: PropertyId,
            ) -> Result<(), EncodeError> {
                writer.$integer(value);
                Ok(())
            }
        }

        pub(super) struct $non_zero;

        impl ValueEncoding<'_> for $non_zero {
            type Value = NonZero<$integer>;

            #[inline]
            fn read(
                reader: &mut PacketReader<'_>,
                id: PropertyId,
            ) -> Result<Self::Value, DecodeError> {
                NonZero::new(reader.$integer()?).ok_or(DecodeError::ZeroProperty(id))
            }

            #[inline]
            fn write(
                value: Self::Value,
                writer: &mut PacketWriter<'_>,
                _: PropertyId,
            ) -> Result<(), EncodeError> {
                writer.$integer(value.get());
                Ok(())
            }
        }
    )*};
}

integers! {
    TwoBytes NonZeroTwoBytes u16;
    FourBytes NonZeroFourBytes u32;
}

/// A Variable Byte Integer that is not 0.
pub(super) struct NonZeroVarInt;

impl ValueEncoding<'_> for NonZeroVarInt {
    type Value = NonZeroU32;

    #[inline]
    fn read(reader: &mut PacketReader<'_>, id: PropertyId) -> Result<NonZeroU32, DecodeError> {
        NonZeroU32::new(reader.var_int()?).ok_or(DecodeError::ZeroProperty(id))
    }

    #[inline]
    fn write(
        value: NonZeroU32,
        writer: &mut PacketWriter<'_>,
        _: PropertyId,
    ) -> Result<(), EncodeError> {
        writer.var_int(value.get())
    }
}

/// Text with two bytes of length.
pub(super) struct Utf8;

impl<'a> ValueEncoding<'a> for Utf8 {
    type Value = Text<'a>;

    #[inline]
    fn read(reader: &mut PacketReader<'a>, _: PropertyId) -> Result<Text<'a>, DecodeError> {
        reader.text()
    }

    #[inline]
    fn write(
        value: Text<'a>,
        writer: &mut PacketWriter<'_>,
        _: PropertyId,
    ) -> Result<(), EncodeError> {
        writer.text(value)
    }
}

/// Bytes with two bytes of length.
pub(super) struct Binary;

impl<'a> ValueEncoding<'a> for Binary {
    type Value = &'a [u8];

    #[inline]
    fn read(reader: &mut PacketReader<'a>, _: PropertyId) -> Result<&'a [u8], DecodeError> {
        reader.binary()
    }

    #[inline]
    fn write(
        value: &'a [u8],
        writer: &mut PacketWriter<'_>,
        _: PropertyId,
    ) -> Result<(), EncodeError> {
        writer.binary(value)
    }
}
