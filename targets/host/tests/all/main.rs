//! Plans on the host: held against the graph's reference, and hostile ones.

mod again;
mod assigns;
mod banks;
mod canaries;
mod check;
mod donate;
mod extents;
mod generate;
mod hostile_plans;
mod random_graphs;
mod references;
mod runner;
mod support;
