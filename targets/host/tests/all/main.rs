//! Plans on the host: held against the graph's reference, and hostile ones.

mod assigns;
mod canaries;
mod check;
mod extents;
mod generate;
mod hostile_plans;
mod random_graphs;
mod references;
mod runner;
mod support;
