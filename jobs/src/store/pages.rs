//! The pages of a Query or a Scan as a stream. A page is read when it is polled for, so one page is held at a time.

use futures_util::stream::{self, Stream};

use super::{PageOf, ReadRows, Result, ScanTable};
use shared::row::{Row, RowKey};

/// The pages of a Query, from `of.after` to the end.
pub fn pages<'a, S: ReadRows>(store: &'a S, of: PageOf<'a>) -> impl Stream<Item = Result<Vec<Row>>> + use<'a, S> {
    follow(of.after.map(str::to_owned), move |after: Option<String>| async move {
        let page = store.page(PageOf { after: after.as_deref(), ..of }).await?;
        Ok((page.rows, page.next))
    })
}

/// The pages of one segment of a Scan, with eventually consistent reads.
pub fn scan_pages<S: ScanTable>(
    store: &S,
    segment: i32,
    segments: i32,
) -> impl Stream<Item = Result<Vec<Row>>> + use<'_, S> {
    follow(None, move |after: Option<RowKey>| async move {
        let page = store.scan(segment, segments, after.as_ref()).await?;
        Ok((page.rows, page.next))
    })
}

/// The pages that `read` returns, each given the key that the page before ended at, until there is no such key.
pub fn follow<K, F>(from: Option<K>, mut read: impl FnMut(Option<K>) -> F) -> impl Stream<Item = Result<Vec<Row>>>
where
    F: Future<Output = Result<(Vec<Row>, Option<K>)>>,
{
    stream::try_unfold(Some(from), move |after| {
        let page = after.map(&mut read);
        async move {
            let Some(page) = page else { return Ok(None) };
            let (rows, next) = page.await?;
            Ok(Some((rows, next.map(Some))))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::TryStreamExt;

    use super::follow;
    use crate::store::StoreError;

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
                    Ok((Vec::new(), (at < last).then_some(at)))
                }
            });
            let read: Result<Vec<_>, _> = pages.try_collect().await;
            assert_eq!(read.map(|pages| pages.len()), if ends_well { Ok(4) } else { Err(StoreError::OutOfTime) });
            assert_eq!(reads.get(), u32::from(last) + 1);
        }
    }
}
