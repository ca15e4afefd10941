//! Decodes payloads of one value: a number, `true`, `false`, or any text.

use std::borrow::Cow;

use super::json;
use super::value::{DocumentNode, Malformed, SchemaKeys, Value};

/// A payload as an object with one field of any name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TextNode<'a>(&'a str);

/// Opens a document; returns [`Value::Missing`] for an empty payload.
pub(crate) fn document(payload: &[u8]) -> Result<Value<'_, TextNode<'_>>, Malformed> {
    let text = str::from_utf8(payload).map_err(|_| Malformed)?;
    Ok(if text.is_empty() {
        Value::Missing
    } else {
        Value::Object(TextNode(text))
    })
}

impl<'a> DocumentNode<'a> for TextNode<'a> {
    fn fields(self, _: &mut SchemaKeys, slots: &mut [Value<'a, Self>]) -> Result<(), Malformed> {
        let value = match json::document(self.0.as_bytes()) {
            Ok(Value::Number(number, is_integer)) => Value::Number(number, is_integer),
            Ok(Value::Boolean(boolean)) => Value::Boolean(boolean),
            _ => Value::Text(self.0.into()),
        };
        for slot in slots {
            *slot = value.clone();
        }
        Ok(())
    }

    fn items(self, _: &mut dyn FnMut(Value<'a, Self>)) -> Result<(), Malformed> {
        Err(Malformed)
    }

    fn as_text(self) -> Option<Cow<'a, str>> {
        Some(Cow::Borrowed(self.0))
    }
}
