//! Writes records, arrays and maps as JSON.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::{AvroNode, AvroValue, Part};
use crate::decode::time::format_instant;
use crate::decode::value::{DocumentNode, Malformed, Value};

impl AvroNode<'_> {
    /// Returns a record or map as a JSON object, an array as a JSON array.
    pub(super) fn json(self) -> Result<String, Malformed> {
        let mut out = String::new();
        self.write(&mut out)?;
        Ok(out)
    }

    fn write(self, out: &mut String) -> Result<(), Malformed> {
        match self.part {
            Part::Record(_) | Part::Entry(_) => self.write_record(out),
            Part::Array(_) => self.write_array(out),
            Part::Map(_) => self.write_map(out),
        }
    }

    fn write_record(self, out: &mut String) -> Result<(), Malformed> {
        let mut separator = '{';
        self.each_field(&mut |name, place, rest| {
            let value = self.schemas.value(place, rest, 1)?;
            out.push(separator);
            separator = ',';
            write_text(name, out);
            out.push(':');
            write_value(value, out)
        })?;
        close(separator, '{', '}', out);
        Ok(())
    }

    fn write_array(self, out: &mut String) -> Result<(), Malformed> {
        let mut separator = '[';
        let mut written = Ok(());
        self.items(&mut |item| {
            out.push(separator);
            separator = ',';
            written = written.and_then(|()| write_value(item, out));
        })?;
        close(separator, '[', ']', out);
        written
    }

    fn write_map(self, out: &mut String) -> Result<(), Malformed> {
        let mut separator = '{';
        let mut written = Ok(());
        self.items(&mut |entry| {
            out.push(separator);
            separator = ',';
            written = written.and_then(|()| write_entry(&entry, out));
        })?;
        close(separator, '{', '}', out);
        written
    }
}

fn write_entry(entry: &AvroValue<'_>, out: &mut String) -> Result<(), Malformed> {
    let Value::Object(entry) = entry else {
        return Err(Malformed);
    };
    let mut is_key = true;
    entry.each_field(&mut |_, place, rest| {
        let value = entry.schemas.value(place, rest, 1)?;
        write_value(value, out)?;
        if is_key {
            out.push(':');
        }
        is_key = false;
        Ok(())
    })
}

fn write_value(value: AvroValue<'_>, out: &mut String) -> Result<(), Malformed> {
    match value {
        Value::Missing | Value::Null => out.push_str("null"),
        Value::Boolean(boolean) => out.push_str(if boolean { "true" } else { "false" }),
        Value::Number(text, _) => out.push_str(text),
        Value::Integer(number) => out.push_str(&number.to_string()),
        Value::Unsigned(number) => out.push_str(&number.to_string()),
        Value::Float(number) if number.is_finite() => {
            out.push_str(&serde_json::Value::from(number).to_string());
        }
        Value::Float(number) if number.is_nan() => write_text("NaN", out),
        Value::Float(number) => {
            write_text(
                if number > 0.0 {
                    "Infinity"
                } else {
                    "-Infinity"
                },
                out,
            );
        }
        Value::Text(text) => write_text(&text, out),
        Value::Blob(blob) => write_text(&BASE64_STANDARD.encode(blob), out),
        Value::Instant(micros) => write_text(&format_instant(micros), out),
        Value::Object(node) | Value::Array(node) => node.write(out)?,
    }
    Ok(())
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Ends an object or array, and begins it if nothing has been written.
fn close(separator: char, begin: char, end: char, out: &mut String) {
    if separator == begin {
        out.push(begin);
    }
    out.push(end);
}
