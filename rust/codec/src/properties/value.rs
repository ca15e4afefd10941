//! Encodings of property values.

use std::num::{NonZeroU16, NonZeroU32};

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

/// Two bytes, big-endian.
pub(super) struct TwoBytes;

impl ValueEncoding<'_> for TwoBytes {
    type Value = u16;

    #[inline]
    fn read(reader: &mut PacketReader<'_>, _: PropertyId) -> Result<u16, DecodeError> {
        reader.u16()
    }

    #[inline]
    fn write(value: u16, writer: &mut PacketWriter<'_>, _: PropertyId) -> Result<(), EncodeError> {
        writer.u16(value);
        Ok(())
    }
}

/// Two bytes that are not 0.
pub(super) struct NonZeroTwoBytes;

impl ValueEncoding<'_> for NonZeroTwoBytes {
    type Value = NonZeroU16;

    #[inline]
    fn read(reader: &mut PacketReader<'_>, id: PropertyId) -> Result<NonZeroU16, DecodeError> {
        NonZeroU16::new(reader.u16()?).ok_or(DecodeError::ZeroProperty(id))
    }

    #[inline]
    fn write(
        value: NonZeroU16,
        writer: &mut PacketWriter<'_>,
        _: PropertyId,
    ) -> Result<(), EncodeError> {
        writer.u16(value.get());
        Ok(())
    }
}

/// Four bytes, big-endian.
pub(super) struct FourBytes;

impl ValueEncoding<'_> for FourBytes {
    type Value = u32;

    #[inline]
    fn read(reader: &mut PacketReader<'_>, _: PropertyId) -> Result<u32, DecodeError> {
        reader.u32()
    }

    #[inline]
    fn write(value: u32, writer: &mut PacketWriter<'_>, _: PropertyId) -> Result<(), EncodeError> {
        writer.u32(value);
        Ok(())
    }
}

/// Four bytes that are not 0.
pub(super) struct NonZeroFourBytes;

impl ValueEncoding<'_> for NonZeroFourBytes {
    type Value = NonZeroU32;

    #[inline]
    fn read(reader: &mut PacketReader<'_>, id: PropertyId) -> Result<NonZeroU32, DecodeError> {
        NonZeroU32::new(reader.u32()?).ok_or(DecodeError::ZeroProperty(id))
    }

    #[inline]
    fn write(
        value: NonZeroU32,
        writer: &mut PacketWriter<'_>,
        _: PropertyId,
    ) -> Result<(), EncodeError> {
        writer.u32(value.get());
        Ok(())
    }
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
