//! Enables the table's TTL and, on request, its stream. While the janitor is paused, nothing is enabled.

pub mod stream;
pub mod ttl;

#[cfg(test)]
mod script {
    use std::cell::{Cell, RefCell};

    use crate::run::pause;
    use crate::store::{Page, PageOf, ReadRows, Result};
    use shared::bucket::STATE_BUCKET;
    use shared::integrity::Lookup;
    use shared::row::{Raw, Row, RowKey};

    /// A table that gives its answers in turn, and repeats the last one.
    pub(super) struct Script<T, A> {
        pub(super) seen: RefCell<Vec<T>>,
        pub(super) answers: RefCell<Vec<A>>,
        pub(super) asked: Cell<u32>,
        pub(super) is_paused: bool,
    }

    fn next<T: Clone>(answers: &RefCell<Vec<T>>) -> T {
        let mut answers = answers.borrow_mut();
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    }

    impl<T: Clone, A: Clone> Script<T, A> {
        pub(super) fn new(seen: Vec<T>, answers: Vec<A>) -> Self {
            Self { seen: RefCell::new(seen), answers: RefCell::new(answers), asked: Cell::new(0), is_paused: false }
        }

        pub(super) fn see(&self) -> T {
            next(&self.seen)
        }

        pub(super) fn ask(&self) -> A {
            self.asked.set(self.asked.get() + 1);
            next(&self.answers)
        }
    }

    impl<T, A> ReadRows for Script<T, A> {
        async fn page(&self, _: &PageOf) -> Result<Page<String>> {
            Ok(Page { rows: Vec::new(), next: None })
        }

        async fn get_consistent(&self, _: &[RowKey]) -> Result<Vec<Lookup>> {
            let row = || Row {
                key: pause::key(),
                bucket: Raw::Text(STATE_BUCKET.to_owned()),
                data: Raw::Text(r#"{"until": 3600}"#.to_owned()),
                ttl: Raw::Absent,
                retired_from: Raw::Absent,
                bytes: 100,
            };
            Ok(vec![if self.is_paused { Lookup::Found(row()) } else { Lookup::Absent }])
        }

        async fn get_eventual(&self, keys: &[RowKey]) -> Result<Vec<Lookup>> {
            self.get_consistent(keys).await
        }
    }
}
