//! State that is on the heap only while it is needed.

use std::ops::{Deref, DerefMut};

/// State that is on the heap only while it is needed.
///
/// While there is none, reading returns the idle state; the first write allocates it.
#[derive(Debug)]
pub struct OnDemand<T>(Option<Box<T>>);

/// A type that has an idle state.
pub trait Idle: Sized + 'static {
    /// The idle state.
    const IDLE: Self;

    /// The idle state, shared by all.
    fn idle() -> &'static Self;
}

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<T> OnDemand<T> {
    /// No state.
    pub const NONE: Self = Self(None);

    /// Heap bytes of the state, plus those that `of` counts.
    pub fn heap_bytes(&self, of: impl FnOnce(&T) -> usize) -> usize {
        let state = self.0.as_deref();
        state.map_or(0, |state| size_of::<T>() + of(state))
    }

    /// The state, if it is allocated.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Frees the state.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

impl<T: Idle> Deref for OnDemand<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(state) => state,
            None => T::idle(),
        }
    }
}

impl<T: Idle> DerefMut for OnDemand<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(T::IDLE))
    }
}
