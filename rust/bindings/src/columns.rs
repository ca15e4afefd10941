//! Numeric columns as arguments and results of Python calls, without numpy.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::CoreError;

/// One value for all rows, or one for each row.
pub(crate) enum InputColumn<T> {
    All(T),
    Each(Vec<T>),
}

impl<T: Copy> InputColumn<T> {
    /// Reads an integer, a sequence of integers, or a buffer of them: `array.array`, `bytes`, a numpy array.
    pub(crate) fn read<'py>(
        name: &str,
        value: &Bound<'py, PyAny>,
        rows: usize,
    ) -> Result<Self, CoreError>
    where
        T: Element + FromPyObjectOwned<'py>,
    {
        if let Ok(value) = value.extract::<T>() {
            return Ok(Self::All(value));
        }
        let buffer = PyBuffer::<T>::get(value).and_then(|buffer| buffer.to_vec(value.py()));
        let Ok(values) = buffer.or_else(|_| value.extract::<Vec<T>>()) else {
            let bits = 8 * size_of::<T>();
            return Err(CoreError::Argument(format!(
                "{name} is a number from 0 to 2**{bits} - 1, a list of such numbers, or a buffer of {bits}-bit unsigned integers"
            )));
        };
        if values.len() != rows {
            return Err(CoreError::Argument(format!(
                "{name} has {} rows and filters has {rows}",
                values.len()
            )));
        }
        Ok(Self::Each(values))
    }

    pub(crate) fn get(&self, row: usize) -> T {
        match self {
            Self::All(value) => *value,
            Self::Each(values) => values[row],
        }
    }
}

/// Creates an `array('Q')`.
pub(crate) fn array_of_words<'py>(py: Python<'py>, words: &[u64]) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    array(py, "Q", &bytes)
}

/// Creates an `array.array` of this type code from the bytes of its items.
pub(crate) fn array<'py>(py: Python<'py>, code: &str, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    py.import("array")?
        .getattr("array")?
        .call1((code, PyBytes::new(py, bytes)))
}
