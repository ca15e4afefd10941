//! Traces by operators (ADR 0058).

use std::sync::Arc;
use std::time::Instant;

use crate::clients::traces::{Trace, TraceError, TraceSpec};
use crate::service::{BrokerHandle, BrokerStopped};

/// Why a trace is not started.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TraceStartError {
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] BrokerStopped),
    /// There are too many traces.
    #[error(transparent)]
    TooMany(#[from] TraceError),
}

impl BrokerHandle {
    /// Starts a trace: from now on it keeps packets, in bounded memory, until its time is over.
    ///
    /// # Errors
    ///
    /// [`TraceStartError`]
    pub fn start_trace(&self, spec: TraceSpec) -> Result<Arc<Trace>, TraceStartError> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        let id = format!("{:016x}", engine.unique());
        Ok(engine.traces.start(id, spec, Instant::now())?)
    }

    /// Ends a trace, and removes it unless `keep`; returns false if there is none.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub fn end_trace(&self, id: &str, keep: bool) -> Result<bool, BrokerStopped> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        Ok(engine.traces.end(id, keep, Instant::now()))
    }

    /// All traces, the oldest first. Ended ones are removed an hour after their end.
    pub fn traces(&self) -> Vec<Arc<Trace>> {
        let engine = self.engine();
        engine.map_or_else(Vec::new, |engine| engine.traces.list())
    }
}
