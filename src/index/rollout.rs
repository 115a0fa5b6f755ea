//! What this process knows of the roll-out: the view of the last look, and what the target would do to each group.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use crate::rollout::{Forecast, RolloutView};

/// The roll-out, as all reconciles share it.
#[derive(Default)]
pub(crate) struct RolloutState {
    view: RwLock<Option<Arc<RolloutView>>>,
    /// What the target would do to each group, with what that depends on.
    forecasts: Mutex<HashMap<String, (String, Forecast)>>,
    /// How many groups of each wave replace nodes.
    running: Mutex<Vec<usize>>,
}

impl RolloutState {
    /// The roll-out of the last look; `None` without the key `rollout`.
    pub(crate) fn view(&self) -> Option<Arc<RolloutView>> {
        self.view.read().expect("lock is not poisoned").clone()
    }

    /// Replaces the roll-out.
    pub(crate) fn set_view(&self, view: Option<Arc<RolloutView>>) {
        *self.view.write().expect("lock is not poisoned") = view;
    }

    /// What the target would do to a group, if that is known for `inputs`.
    pub(crate) fn forecast(&self, key: &str, inputs: &str) -> Forecast {
        let forecasts = self.forecasts.lock().expect("lock is not poisoned");
        forecasts.get(key).filter(|(known, _)| known == inputs).map(|(_, found)| found.clone()).unwrap_or_default()
    }

    /// Records what the target would do to a group.
    pub(crate) fn set_forecast(&self, key: &str, inputs: String, forecast: Forecast) {
        self.forecasts.lock().expect("lock is not poisoned").insert(key.to_owned(), (inputs, forecast));
    }

    /// Drops what is known of a group that is gone.
    pub(crate) fn forget(&self, key: &str) {
        self.forecasts.lock().expect("lock is not poisoned").remove(key);
    }

    /// Sets how many groups of each wave replace nodes.
    pub(crate) fn set_running(&self, running: Vec<usize>) {
        *self.running.lock().expect("lock is not poisoned") = running;
    }

    /// Counts a group that takes the target in its wave, until the next look counts all of them.
    pub(crate) fn count_taken(&self, wave: usize) {
        if let Some(running) = self.running.lock().expect("lock is not poisoned").get_mut(wave) {
            *running += 1;
        }
    }

    /// Whether another group of the wave at an index may replace nodes.
    pub(crate) fn has_room(&self, view: &RolloutView, wave: usize) -> bool {
        let limit = view.policy.waves.get(wave).and_then(|wave| wave.at_once);
        let running = self.running.lock().expect("lock is not poisoned").get(wave).copied().unwrap_or_default();
        limit.is_none_or(|limit| running < limit)
    }
}
