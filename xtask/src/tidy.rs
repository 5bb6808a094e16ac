//! Tidy rules: who may import whom, what every file says at its door, and where `unsafe` may stand.

mod documents;
mod fields;
mod imports;
mod planted;
mod prose;
mod selections;
mod sources;
mod troubleshooting;
mod versions;
