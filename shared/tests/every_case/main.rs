//! Every case of the decisions, each held against the model of the tests and against the sentences of docs/rows.md.
//!
//! Why these are all cases. A decision sees a row as a bucket, a TTL and a few fields, each of which is missing, malformed or a
//! number; it compares `number + constant` with `now`, and nothing else. So its verdict depends only on (1) which fields are missing
//! or malformed, and (2) where `now` lies among the instants `number + constant`. [`cases`] makes every row whose fields are each
//! missing, malformed, an extreme of the type, or at one of three places chosen so that the instants of two fields come before, at
//! and after each other; and [`cases::instants`] moves `now` to each instant of that row, the second before it and the second after.
//! [`outside`] tests this argument: rows and times at random, outside the classes, have the verdict of the model as well. That a
//! field is read as missing, malformed or a number whatever its spelling is [`outside`]'s too.
//!
//! A product is of what a decision reads. What it does not read takes turns ([`cases::Turns`]): of `compare` the index row's TTL and
//! `data`, because it asks no more than whose the index row is, whose the target is, and what `judge` says of the target. That is
//! tested too: in [`relations`] with every index row and every policy beside one target of each verdict, in [`outside`] with random
//! pairs. `PROOF=long` takes the whole product of the policies.
//!
//! A dry verdict equals a real one because no decision knows which it is: see [`cases::policy`].

mod backfill;
mod cases;
mod disposal;
mod outside;
mod own;
mod relations;
mod unindexed;
