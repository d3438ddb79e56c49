//! Rows of old releases.
