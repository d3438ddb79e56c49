//! Every case of the decisions, compared with the model and with the rules of docs/rows.md.
//!
//! Why these are all cases: a decision reads a row as a bucket, a TTL and a few fields, each of which is missing, malformed or a
//! number; it only compares `number + constant` with `now`. So its verdict depends only on (1) which fields are missing or
//! malformed, and (2) where `now` lies among the instants `number + constant`. [`cases`] makes every row whose fields are each
//! missing, malformed, an extreme of the type, or at one of three places chosen so that the instants of two fields come before, at
//! and after each other; [`cases::instants`] moves `now` to each instant of that row, the second before it and the second after.
//! [`outside`] tests this argument: random rows and times outside the classes also have the model's verdict, and a field is read as
//! missing, malformed or a number whatever its spelling.
//!
//! A product covers all values that a decision reads. Other values take turns ([`cases::Turns`]): for `compare` the TTL and `data` of
//! the index row, because it reads only the owner and bucket of both rows and `judge`'s verdict on the target. That is tested too: in
//! [`relations`] with every index row and every policy and one target of each verdict, in [`outside`] with random pairs. `PROOF=long`
//! takes the whole product of the policies.
//!
//! Dry runs have the same verdicts, because no decision knows whether the run is dry: see [`cases::policy`].

mod backfill;
mod cases;
mod disposal;
mod outside;
mod own;
mod relations;
mod unindexed;
