//! Property lists of MQTT 5.0: checked once, then read in place.
//!
//! A list is its length as a Variable Byte Integer, then identifier and value of each property. `property_table.rs`
//! alone defines which properties a packet may have.

mod property;
mod value;

use std::fmt;

pub use property::Property;

use crate::error::{DecodeError, EncodeError};
use crate::limits::Limits;
use crate::property_id::{PropertyId, PropertyPlaces};
use crate::text::Text;
use crate::wire::{PacketReader, PacketWriter};

/// A checked property list in place: its bytes without the length.
///
/// Copied by reference. Empty for every 3.x packet.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Properties<'a>(&'a [u8]);

impl<'a> Properties<'a> {
    /// No properties.
    pub const EMPTY: Self = Self(&[]);

    /// Takes bytes that [`Properties::as_bytes`] returned earlier.
    ///
    /// The bytes are not checked. Malformed bytes are harmless: [`iter`](Self::iter) stops at the first error, and
    /// [`encode`](crate::encode) rejects them.
    #[inline]
    #[must_use]
    pub const fn from_checked(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The properties in the order of the packet.
    #[inline]
    #[must_use]
    pub const fn iter(self) -> PropertiesIter<'a> {
        PropertiesIter(PacketReader::new(self.0))
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The bytes on the wire, without the length.
    #[inline]
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether the list has a property with this identifier.
    #[must_use]
    pub fn contains(self, id: PropertyId) -> bool {
        self.iter().any(|property| property.id() == id)
    }

    /// All user properties, as names and values, in the order of the packet.
    pub fn user_properties(self) -> impl Iterator<Item = (Text<'a>, Text<'a>)> {
        self.iter().filter_map(|property| match property {
            Property::UserProperty(name, value) => Some((name, value)),
            _ => None,
        })
    }

    /// Reads a list with its length and checks it.
    #[inline]
    pub(crate) fn read(
        reader: &mut PacketReader<'a>,
        place: PropertyPlaces,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let bytes = match reader.var_int()? {
            0 => return Ok(Self::EMPTY),
            len => reader.take(usize::try_from(len).map_err(|_| DecodeError::Truncated)?)?,
        };
        check(bytes, place, limits)?;
        Ok(Self(bytes))
    }

    /// Checks the list like the decoder, then writes its length and bytes.
    pub(crate) fn write(
        self,
        place: PropertyPlaces,
        writer: &mut PacketWriter<'_>,
    ) -> Result<(), EncodeError> {
        self.check(place)?;
        writer.length(self.0.len())?;
        writer.raw(self.0);
        Ok(())
    }

    /// Checks the list like the decoder.
    #[inline]
    pub(crate) fn check(self, place: PropertyPlaces) -> Result<(), EncodeError> {
        if self.0.is_empty() {
            return Ok(());
        }
        check(self.0, place, &Limits::MAX).map_err(EncodeError::Properties)
    }
}

impl<'a> IntoIterator for Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = PropertiesIter<'a>;

    fn into_iter(self) -> PropertiesIter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// Checks a property list in one pass: every property can be parsed, is allowed in its place, and occurs once if only
/// once is allowed.
fn check(bytes: &[u8], place: PropertyPlaces, limits: &Limits) -> Result<(), DecodeError> {
    let mut reader = PacketReader::new(bytes);
    let mut seen = 0_u64;
    let mut user_properties = UserProperties::default();
    while !reader.is_empty() {
        let before = reader.len();
        let id = read_id(&mut reader)?;
        let row = id.row();
        if row.many & place == 0 {
            if row.once & place == 0 {
                return Err(DecodeError::MisplacedProperty(id));
            }
            if seen & bit(id) != 0 {
                return Err(DecodeError::DuplicateProperty(id));
            }
        }
        seen |= bit(id);
        Property::read(id, &mut reader)?;
        if id == PropertyId::UserProperty {
            user_properties.add(before - reader.len(), limits)?;
        }
    }
    if seen & AUTHENTICATION == bit(PropertyId::AuthenticationData) {
        return Err(DecodeError::AuthenticationDataWithoutMethod);
    }
    Ok(())
}

#[inline]
fn read_id(reader: &mut PacketReader<'_>) -> Result<PropertyId, DecodeError> {
    let value = reader.var_int()?;
    PropertyId::from_value(value).ok_or(DecodeError::UnknownProperty(value))
}

/// The bit of a property; all identifiers are below 64.
#[inline]
const fn bit(id: PropertyId) -> u64 {
    1 << id as u64
}

const AUTHENTICATION: u64 =
    bit(PropertyId::AuthenticationMethod) | bit(PropertyId::AuthenticationData);

/// Number and bytes of the user properties of one list so far.
#[derive(Default)]
struct UserProperties {
    count: usize,
    bytes: usize,
}

impl UserProperties {
    #[inline]
    fn add(&mut self, bytes: usize, limits: &Limits) -> Result<(), DecodeError> {
        self.count += 1;
        self.bytes += bytes;
        if self.count > usize::from(limits.user_properties) {
            return Err(DecodeError::TooManyUserProperties);
        }
        if u64::try_from(self.bytes).is_ok_and(|bytes| bytes <= limits.user_property_bytes.into()) {
            return Ok(());
        }
        Err(DecodeError::UserPropertiesTooLong)
    }
}

/// Iterates over the properties of a packet.
#[derive(Clone, Debug)]
pub struct PropertiesIter<'a>(PacketReader<'a>);

impl<'a> Iterator for PropertiesIter<'a> {
    type Item = Property<'a>;

    #[inline]
    fn next(&mut self) -> Option<Property<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let property = read_id(&mut self.0).and_then(|id| Property::read(id, &mut self.0));
        if property.is_err() {
            self.0.take_rest();
        }
        property.ok()
    }
}

impl std::iter::FusedIterator for PropertiesIter<'_> {}

/// Builds a property list.
///
/// The default is empty and does not allocate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PropertiesBuf(Vec<u8>);

impl PropertiesBuf {
    /// Appends a property.
    ///
    /// # Errors
    ///
    /// [`EncodeError::FieldTooLong`] and [`EncodeError::VarIntTooLarge`] for values that cannot be encoded,
    /// [`EncodeError::Properties`] for a maximum QoS of 2; the list is then unchanged. [`encode`](crate::encode) checks
    /// whether the packet allows the property.
    pub fn push(&mut self, property: Property<'_>) -> Result<&mut Self, EncodeError> {
        let len = self.0.len();
        if let Err(error) = property.write(&mut PacketWriter::new(&mut self.0)) {
            self.0.truncate(len);
            return Err(error);
        }
        Ok(self)
    }

    /// The properties that were pushed so far.
    #[inline]
    #[must_use]
    pub fn as_properties(&self) -> Properties<'_> {
        Properties(&self.0)
    }

    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl From<Properties<'_>> for PropertiesBuf {
    fn from(properties: Properties<'_>) -> Self {
        Self(properties.0.to_vec())
    }
}
