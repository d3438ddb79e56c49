//! A segment: one of several parts of a job's rows that can be processed concurrently.
//!
//! For the whole table, it is a segment of DynamoDB's Scan. The system actors' rows are one item collection, which a Scan does
//! not divide: there it is a range of names, an equal share of every bucket, based on the characters that the library uses in
//! names. Names with other characters fall into one of the ranges too, so no row is missed.

use crate::bucket::Names;

/// Segment `number`, counted from 0, of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    number: u16,
    of: u16,
}

impl Segment {
    /// Far fewer than the 256 that two hexadecimal digits distinguish, and few enough for one answer to report them all.
    pub const MOST: u16 = 64;

    pub fn new(number: u16, of: u16) -> Option<Self> {
        (number < of && of <= Self::MOST).then_some(Self { number, of })
    }

    /// `Segment` and `TotalSegments` of a DynamoDB Scan.
    pub fn of_scan(self) -> (i32, i32) {
        (self.number.into(), self.of.into())
    }

    /// The range of a bucket's names in this segment: from the first, exclusive, to the second, inclusive. `None` is unbounded.
    pub fn range(self, names: Names) -> (Option<String>, Option<String>) {
        (self.boundary(self.number, names), self.boundary(self.number + 1, names))
    }

    /// The boundary between segments `number - 1` and `number`: the prefix and two characters.
    fn boundary(self, number: u16, names: Names) -> Option<String> {
        if number == 0 || number == self.of {
            return None;
        }
        let letters = names.alphabet.as_bytes();
        let place = usize::from(number) * letters.len() * letters.len() / usize::from(self.of);
        let (first, second) = (letters[place / letters.len()], letters[place % letters.len()]);
        Some(format!("{}{}{}", names.prefix, char::from(first), char::from(second)))
    }
}

#[cfg(test)]
mod tests {
    use super::Segment;
    use crate::bucket::{BUCKETS, Names};

    /// The number of segments that contain the name.
    fn holders(name: &str, names: Names, of: u16) -> usize {
        let segments = (0..of).filter_map(|number| Segment::new(number, of));
        let holds = |segment: &Segment| {
            let (after, until) = segment.range(names);
            after.is_none_or(|after| name > after.as_str()) && until.is_none_or(|until| name <= until.as_str())
        };
        segments.filter(holds).count()
    }

    #[test]
    fn every_name_is_in_exactly_one_segment() {
        let random = (0..2_000).map(|_| (0..fastrand::usize(0..6)).map(|_| fastrand::char(..)).collect::<String>());
        let odd = ["", "-", "~", "aw_", "aw", "ax", "zzzz", "ë", "\u{10ffff}", "rt_--", "mcp_ff"].map(str::to_owned);
        for name in random.chain(odd) {
            for bucket in &BUCKETS {
                for of in [1, 2, 3, 7, 16, Segment::MOST] {
                    assert_eq!(holders(&name, bucket.names, of), 1, "{name:?} in {of} segments of {}", bucket.name);
                    let named = format!("{}{name}", bucket.names.prefix);
                    assert_eq!(holders(&named, bucket.names, of), 1, "{named:?} in {of} segments of {}", bucket.name);
                }
            }
        }
    }

    #[test]
    fn names_as_the_library_makes_them_are_spread_evenly() {
        for bucket in &BUCKETS {
            let Names { prefix, alphabet } = bucket.names;
            assert!(alphabet.is_ascii() && alphabet.as_bytes().is_sorted(), "{}", bucket.name);
            for of in [2, 5, 16, Segment::MOST] {
                let mut counts = vec![0_usize; of.into()];
                for first in alphabet.chars() {
                    for second in alphabet.chars() {
                        let name = format!("{prefix}{first}{second}middle");
                        let here = (0..of).position(|number| {
                            let (after, until) = Segment::new(number, of).unwrap().range(bucket.names);
                            after.is_none_or(|after| name > after) && until.is_none_or(|until| name <= until)
                        });
                        counts[here.unwrap()] += 1;
                    }
                }
                let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
                assert!(most - least <= 1, "{}: {counts:?}", bucket.name);
            }
        }
    }

    #[test]
    fn there_is_no_segment_beyond_the_last() {
        assert_eq!(Segment::new(4, 4), None);
        assert_eq!(Segment::new(0, 0), None);
        assert_eq!(Segment::new(0, Segment::MOST + 1), None);
    }
}
