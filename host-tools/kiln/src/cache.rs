//! Plans that were made, found again by what was recorded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kiln_planner::backend::Prepared;

/// The most plans that are kept; the one that was not used for longest goes first.
const MOST: usize = 128;

/// A plan, used by one thread at a time.
pub(crate) type Shared = Arc<Mutex<Box<dyn Prepared>>>;

/// Plans by the bytes that describe their graph.
#[derive(Default)]
pub(crate) struct Cache {
    plans: HashMap<Vec<u8>, (Shared, u64)>,
    clock: u64,
}

impl Cache {
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Shared> {
        self.clock += 1;
        let (plan, used) = self.plans.get_mut(key)?;
        *used = self.clock;
        Some(plan.clone())
    }

    pub(crate) fn insert(&mut self, key: Vec<u8>, plan: Box<dyn Prepared>) -> Shared {
        if self.plans.len() >= MOST {
            let oldest = self.plans.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.plans.remove(&oldest);
            }
        }
        self.clock += 1;
        let plan: Shared = Arc::new(Mutex::new(plan));
        self.plans.insert(key, (plan.clone(), self.clock));
        plan
    }
}
