//! The pages of a Query or a Scan as a stream. A page is read when it is polled for, so one page is held at a time.

use std::collections::VecDeque;

use futures_util::stream::{self, LocalBoxStream, Stream, StreamExt, TryStreamExt};

use super::{Consistency, Page, PageOf, ReadRows, Result, ScanTable};
use shared::row::{Row, RowKey};

/// The pages of a Query, from `of.after` to the end.
pub fn pages<S: ReadRows>(store: &S, of: PageOf) -> impl Stream<Item = Result<Vec<Row>>> + use<'_, S> {
    let pages = follow(of.after.clone(), move |after| {
        let of = PageOf { after, ..of.clone() };
        async move { store.page(&of).await }
    });
    pages.map_ok(|page| page.rows)
}

/// Maps the rows of a Query by `take`; only for few rows.
pub async fn collect<S: ReadRows, T>(store: &S, of: PageOf, take: impl Fn(Row) -> Option<T>) -> Result<Vec<T>> {
    pages(store, of).map_ok(|rows| rows.into_iter().filter_map(&take).collect()).try_concat().await
}

/// The pages of one segment of a Scan, with eventually consistent reads.
pub fn scan_pages<S: ScanTable>(
    store: &S,
    segment: i32,
    segments: i32,
) -> impl Stream<Item = Result<Vec<Row>>> + use<'_, S> {
    scan_segment(store, segment, segments, None, Consistency::Eventual)
}

/// The pages of one segment of a Scan, after a key.
pub fn scan_segment<S: ScanTable>(
    store: &S,
    segment: i32,
    segments: i32,
    after: Option<RowKey>,
    reading: Consistency,
) -> impl Stream<Item = Result<Vec<Row>>> + use<'_, S> {
    let read = move |after: Option<RowKey>| async move { store.scan(segment, segments, after.as_ref(), reading).await };
    follow(after, read).map_ok(|page| page.rows)
}

/// The pages that `read` returns. Each call gets the key at which the page before ended, until there is none.
pub fn follow<K: Clone, E, F>(
    from: Option<K>,
    mut read: impl FnMut(Option<K>) -> F,
) -> impl Stream<Item = Result<Page<K>, E>>
where
    F: Future<Output = Result<Page<K>, E>>,
{
    stream::try_unfold(Some(from), move |after| {
        let page = after.map(&mut read);
        async move {
            let Some(page) = page else { return Ok(None) };
            let page = page.await?;
            let next = page.next.clone().map(Some);
            Ok(Some((page, next)))
        }
    })
}

/// The rows of pages, one at a time.
pub struct Rows<'a> {
    pages: LocalBoxStream<'a, Result<Vec<Row>>>,
    page: VecDeque<Row>,
}

impl<'a> Rows<'a> {
    pub fn new(pages: impl Stream<Item = Result<Vec<Row>>> + 'a) -> Self {
        Self { pages: pages.boxed_local(), page: VecDeque::new() }
    }

    /// Reads the next page if there is no row to peek at.
    pub async fn fill(&mut self) -> Result<()> {
        while self.page.is_empty()
            && let Some(page) = self.pages.try_next().await?
        {
            self.page = page.into();
        }
        Ok(())
    }

    pub fn peek(&self) -> Option<&Row> {
        self.page.front()
    }

    pub fn pop(&mut self) -> Option<Row> {
        self.page.pop_front()
    }

    /// Returns a popped row, so that it is the next one again.
    pub fn push_back(&mut self, row: Row) {
        self.page.push_front(row);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::TryStreamExt;

    use super::follow;
    use crate::store::{Page, StoreError};

    #[tokio::test]
    async fn reads_each_page_once_and_stops_at_the_last_one_or_at_an_error() {
        for (last, ends_well) in [(3, true), (2, false)] {
            let reads = Cell::new(0);
            let pages = follow(None, |after: Option<u8>| {
                let at = after.map_or(0, |after| after + 1);
                reads.set(reads.get() + 1);
                async move {
                    if at == last && !ends_well {
                        return Err(StoreError::OutOfTime);
                    }
                    Ok(Page { rows: Vec::new(), next: (at < last).then_some(at) })
                }
            });
            let read: Result<Vec<_>, _> = pages.try_collect().await;
            assert_eq!(read.map(|pages| pages.len()), if ends_well { Ok(4) } else { Err(StoreError::OutOfTime) });
            assert_eq!(reads.get(), u32::from(last) + 1);
        }
    }
}
