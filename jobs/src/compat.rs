//! Former names, for the command line and the tests until they call `Job::answer`.

use serde_json::{Value, json};

use crate::cleanup::Cleanup;
use crate::repair::Repair;
use crate::run::Job;
use crate::run::report::RunReport;

impl RunReport {
    pub fn to_answer(&self) -> Value {
        json!(Cleanup::answer(self))
    }

    pub fn to_repair_answer(&self) -> Value {
        json!(Repair::answer(self))
    }
}
