//! Generated model crates and C libraries: what they look like, that they compile without a warning, and that they
//! compute what their plans compute.

mod banks;
mod c;
mod graphs;
mod run;
mod shared;
mod snapshots;
mod trial;
mod workspace;
