//! Parses a schema of typed columns: `temperature DOUBLE, position STRUCT<x: INT, y: INT>, tags ARRAY<STRING>`.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};

use crate::ColumnarError;
use crate::schema::{instant, nullable};

/// Parses columns and types in the syntax of Spark's DDL.
///
/// Types are `BOOLEAN`, `TINYINT`, `SMALLINT`, `INT`, `BIGINT`, `FLOAT`, `DOUBLE`, `DECIMAL(precision, scale)`, `STRING`,
/// `BINARY`, `TIMESTAMP`, `DATE`, `STRUCT<name: type, ...>` and `ARRAY<type>`, and their other names in Spark, such as
/// `LONG`. Case is ignored; a name that is not a word is quoted with backquotes.
///
/// # Errors
///
/// [`ColumnarError::Option`] names the part that is not valid.
pub fn parse_payload_schema(text: &str) -> Result<Vec<Field>, ColumnarError> {
    let mut parser = Parser {
        rest: text,
        depth: 0,
    };
    let fields = parser.fields(None)?;
    Ok(fields.iter().map(|field| field.as_ref().clone()).collect())
}

/// Maximum nesting depth of types.
const MAX_DEPTH: usize = 32;

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// Parses names and types up to `close`, or to the end.
    fn fields(&mut self, close: Option<char>) -> Result<Fields, ColumnarError> {
        let mut fields: Vec<Arc<Field>> = Vec::new();
        loop {
            let name = self.name()?;
            self.take(':');
            let data_type = self.data_type()?;
            if fields
                .iter()
                .any(|field| field.name().eq_ignore_ascii_case(&name))
            {
                return Err(wrong(format!("duplicate name {name}")));
            }
            fields.push(Arc::new(nullable(&name, data_type)));
            if self.take(',') {
                continue;
            }
            let is_end = close.map_or(self.rest.trim_start().is_empty(), |close| self.take(close));
            if is_end {
                return Ok(fields.into());
            }
            return Err(self.unexpected("a comma"));
        }
    }

    fn data_type(&mut self) -> Result<DataType, ColumnarError> {
        let name = self.word().ok_or_else(|| self.unexpected("a type"))?;
        Ok(match name.to_ascii_lowercase().as_str() {
            "boolean" => DataType::Boolean,
            "tinyint" | "byte" => DataType::Int8,
            "smallint" | "short" => DataType::Int16,
            "int" | "integer" => DataType::Int32,
            "bigint" | "long" => DataType::Int64,
            "float" | "real" => DataType::Float32,
            "double" => DataType::Float64,
            "decimal" | "dec" | "numeric" => self.decimal()?,
            "string" => DataType::Utf8,
            "binary" => DataType::Binary,
            "timestamp" => instant(),
            "date" => DataType::Date32,
            "struct" => self.nested(|parser| Ok(DataType::Struct(parser.fields(Some('>'))?)))?,
            "array" => self.nested(|parser| {
                let item = parser.data_type()?;
                parser.expect('>')?;
                Ok(DataType::List(Arc::new(nullable("element", item))))
            })?,
            _ => return Err(wrong(format!("unknown type {name}"))),
        })
    }

    fn nested(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<DataType, ColumnarError>,
    ) -> Result<DataType, ColumnarError> {
        self.expect('<')?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(wrong(format!(
                "types are nested more than {MAX_DEPTH} levels deep"
            )));
        }
        let data_type = inner(self)?;
        self.depth -= 1;
        Ok(data_type)
    }

    /// Parses precision and scale; Spark's defaults are 10 and 0.
    fn decimal(&mut self) -> Result<DataType, ColumnarError> {
        if !self.take('(') {
            return Ok(DataType::Decimal128(10, 0));
        }
        let precision: u8 = self.number()?;
        let scale: i8 = if self.take(',') { self.number()? } else { 0 };
        self.expect(')')?;
        let is_decimal = (1..=38).contains(&precision)
            && u8::try_from(scale).is_ok_and(|scale| scale <= precision);
        if !is_decimal {
            return Err(wrong(format!("invalid type decimal({precision}, {scale})")));
        }
        Ok(DataType::Decimal128(precision, scale))
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, ColumnarError> {
        let word = self.word();
        let number = word.and_then(|word| word.parse().ok());
        number.ok_or_else(|| self.unexpected("a number"))
    }

    fn name(&mut self) -> Result<String, ColumnarError> {
        self.rest = self.rest.trim_start();
        let Some(quoted) = self.rest.strip_prefix('`') else {
            let word = self.word();
            return word
                .map(str::to_owned)
                .ok_or_else(|| self.unexpected("a name"));
        };
        let mut name = String::new();
        let mut rest = quoted;
        loop {
            let (part, behind) = rest
                .split_once('`')
                .ok_or_else(|| self.unexpected("a name"))?;
            name.push_str(part);
            match behind.strip_prefix('`') {
                Some(behind) => {
                    name.push('`');
                    rest = behind;
                }
                None if name.is_empty() => return Err(self.unexpected("a name")),
                None => {
                    self.rest = behind;
                    return Ok(name);
                }
            }
        }
    }

    fn word(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start();
        let is_other = |character: char| !character.is_alphanumeric() && character != '_';
        let end = self.rest.find(is_other).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn take(&mut self, character: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(character);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, character: char) -> Result<(), ColumnarError> {
        if self.take(character) {
            return Ok(());
        }
        Err(self.unexpected(&character.to_string()))
    }

    fn unexpected(&self, expected: &str) -> ColumnarError {
        match self.rest.trim() {
            "" => wrong(format!("{expected} is missing at the end")),
            rest => wrong(format!("{expected} is missing before {rest:?}")),
        }
    }
}

fn wrong(problem: String) -> ColumnarError {
    ColumnarError::Option {
        option: "payload_schema",
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_names() {
        let schema = "a boolean, b TINYINT, c byte, d smallint, e int, f Integer, g BIGINT, h long, i float, j double,
            k decimal(20, 3), l decimal, m dec(5), n string, o binary, p timestamp, q date";
        let types: Vec<DataType> = parse_payload_schema(schema)
            .expect("types")
            .iter()
            .map(|field| field.data_type().clone())
            .collect();

        let expected = [
            DataType::Boolean,
            DataType::Int8,
            DataType::Int8,
            DataType::Int16,
            DataType::Int32,
            DataType::Int32,
            DataType::Int64,
            DataType::Int64,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal128(20, 3),
            DataType::Decimal128(10, 0),
            DataType::Decimal128(5, 0),
            DataType::Utf8,
            DataType::Binary,
            instant(),
            DataType::Date32,
        ];
        assert_eq!(types, expected);
    }

    #[test]
    fn types_lie_in_each_other() {
        let schema = "`the ``name``` STRUCT<x: INT, y ARRAY<ARRAY<STRING>>>, größe double";
        let texts = DataType::List(Arc::new(nullable("element", DataType::Utf8)));
        let fields = vec![
            nullable("x", DataType::Int32),
            nullable("y", DataType::List(Arc::new(nullable("element", texts)))),
        ];

        assert_eq!(
            parse_payload_schema(schema).expect("types"),
            [
                nullable("the `name`", DataType::Struct(fields.into())),
                nullable("größe", DataType::Float64),
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (schema, problem) in [
            ("", "a name is missing at the end"),
            ("a", "a type is missing at the end"),
            ("a int,", "a name is missing at the end"),
            ("a int b int", "a comma is missing before \"b int\""),
            ("a speed", "unknown type speed"),
            ("a int, A int", "duplicate name A"),
            ("a array<int", "> is missing at the end"),
            ("a struct<>", "a name is missing before \">\""),
            ("`a int", "a name is missing before \"`a int\""),
            ("`` int", "a name is missing before \"`` int\""),
            ("a decimal(0)", "invalid type decimal(0, 0)"),
            ("a decimal(39)", "invalid type decimal(39, 0)"),
            ("a decimal(5, 6)", "invalid type decimal(5, 6)"),
            ("a decimal(x)", "a number is missing before \")\""),
        ] {
            let error = parse_payload_schema(schema).expect_err(schema).to_string();
            assert_eq!(error, format!("option payload_schema: {problem}"));
        }
        let deep = format!("a {}int{}", "array<".repeat(40), ">".repeat(40));
        assert!(parse_payload_schema(&deep).is_err());
    }
}
