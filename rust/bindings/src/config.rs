//! Parses TOML into values that record their position in the text.
//!
//! It checks only the syntax; `mqttcore.config` validates keys and values.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One value of a TOML document and where it stands.
#[pyclass(name = "TomlValue", module = "mqttcore._core", frozen, get_all)]
pub(crate) struct PyTomlValue {
    /// `dict[str, TomlValue]`, `list[TomlValue]`, `str`, `int`, `float`, `bool`; `None` for a date.
    value: Py<PyAny>,
    /// Its type in TOML: `table`, `array`, `string`, `integer`, `float`, `boolean`, `datetime`.
    kind: &'static str,
    /// Line and column of the value, from 1.
    place: (usize, usize),
    /// Line and column of its key; those of the value where it has none.
    key_place: (usize, usize),
}

/// Line, column and message of a syntax error.
type Fault = (usize, usize, String);

/// Reads a document.
///
/// Answers with the root table, as much of it as could be read, and every fault of syntax as
/// (line, column, what).
#[pyfunction]
#[pyo3(signature = (text, /))]
pub(crate) fn parse_toml(py: Python<'_>, text: &str) -> PyResult<(PyTomlValue, Vec<Fault>)> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let places = Places::new(text);
    let mut reader = Reader {
        py,
        places: &places,
        faults: Vec::new(),
    };
    for error in errors {
        let (line, column) = places.find(error.span().map_or(0, |span| span.start));
        reader.faults.push((line, column, error.message().into()));
    }
    let place = places.find(table.span().start);
    let value = reader.table(table.get_ref())?;
    let root = PyTomlValue {
        value,
        kind: "table",
        place,
        key_place: place,
    };
    Ok((root, reader.faults))
}

struct Reader<'a, 'py> {
    py: Python<'py>,
    places: &'a Places<'a>,
    faults: Vec<Fault>,
}

impl Reader<'_, '_> {
    fn value(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        key_start: Option<usize>,
    ) -> PyResult<Py<PyTomlValue>> {
        let place = self.places.find(value.span().start);
        let entry = PyTomlValue {
            value: self.convert(value.get_ref(), place)?,
            kind: value.get_ref().type_str(),
            place,
            key_place: key_start.map_or(place, |start| self.places.find(start)),
        };
        Py::new(self.py, entry)
    }

    fn convert(&mut self, value: &DeValue<'_>, place: (usize, usize)) -> PyResult<Py<PyAny>> {
        let py = self.py;
        Ok(match value {
            DeValue::String(text) => text.as_ref().into_pyobject(py)?.into_any().unbind(),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                let parsed = parsed.unwrap_or_else(|_| self.refuse(place, "integer out of range"));
                parsed.into_pyobject(py)?.into_any().unbind()
            }
            DeValue::Float(number) => {
                let parsed = number.as_str().parse::<f64>();
                let parsed = parsed.unwrap_or_else(|_| self.refuse(place, "float out of range"));
                parsed.into_pyobject(py)?.into_any().unbind()
            }
            DeValue::Boolean(answer) => answer.into_pyobject(py)?.to_owned().into_any().unbind(),
            DeValue::Datetime(_) => py.None(),
            DeValue::Array(items) => {
                let list = PyList::empty(py);
                for item in items {
                    list.append(self.value(item, None)?)?;
                }
                list.into_any().unbind()
            }
            DeValue::Table(table) => self.table(table)?,
        })
    }

    fn table(&mut self, table: &DeTable<'_>) -> PyResult<Py<PyAny>> {
        let dict = PyDict::new(self.py);
        for (key, value) in table {
            let entry = self.value(value, Some(key.span().start))?;
            dict.set_item(key.get_ref().as_ref(), entry)?;
        }
        Ok(dict.into_any().unbind())
    }

    fn refuse<T: Default>(&mut self, (line, column): (usize, usize), what: &str) -> T {
        self.faults.push((line, column, what.into()));
        T::default()
    }
}

/// Converts byte offsets to lines and columns.
struct Places<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> Places<'a> {
    fn new(text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let line_starts = std::iter::once(0)
            .chain(breaks.map(|(at, _)| at + 1))
            .collect();
        Self { text, line_starts }
    }

    /// Line and column of the character at `offset`, both from 1.
    fn find(&self, offset: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = self.line_starts.get(line.wrapping_sub(1)).copied();
        let before = self.text.get(start.unwrap_or(0)..offset).unwrap_or("");
        (line.max(1), before.chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let places = Places::new("a = 1\nü = 2\n");

        assert_eq!(places.find(0), (1, 1));
        assert_eq!(places.find(4), (1, 5));
        assert_eq!(places.find(6), (2, 1));
        assert_eq!(places.find(11), (2, 5));
    }
}
