//! Risks of the configuration and of the machine, which the program looks for once a minute.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::configuration::ProgramCalls;
use super::problem::Problem;
use super::system::{Finding, Warning};

/// Interval between two searches.
const SEARCHED_EVERY: Duration = Duration::from_secs(60);

/// The risks that the last search has found.
#[derive(Default)]
pub(super) struct Risks {
    found: Mutex<Vec<Finding>>,
    /// Nobody has searched yet, or the configuration is another one since.
    outdated: Notify,
}

impl Risks {
    /// The risks, as warnings.
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.lock().clone()
    }

    /// Has the next search begin now.
    pub(super) fn search_again(&self) {
        self.outdated.notify_one();
    }

    /// Searches at intervals from the first `search_again` on, until it is dropped.
    pub(super) async fn search(&self, program: &ProgramCalls) {
        self.outdated.notified().await;
        loop {
            let found = ask(program).await;
            *self.lock() = found.unwrap_or_else(|problem| vec![failed(&problem)]);
            // Either way, it is time for the next one.
            let _ = timeout(SEARCHED_EVERY, self.outdated.notified()).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Finding>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(program: &ProgramCalls) -> Result<Vec<Finding>, Problem> {
    let text = program.ask("risks").await?;
    serde_json::from_str(&text).map_err(|error| Problem::internal(&error))
}

fn failed(problem: &Problem) -> Finding {
    let text = "the risks of the configuration are not known";
    Finding {
        warning: Warning {
            code: "risks".into(),
            text: format!("{text}: {}", problem.detail()),
            fix: "mqttcore doctor prints them".into(),
        },
        // The detail may name a file.
        view_text: Some(text.into()),
    }
}
