//! The only import of atomics, reference counts and locks.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
