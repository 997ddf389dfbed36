//! The command as its users meet it: what it prints, and how it ends.

mod consistency;
mod exit_codes;
mod hostile;
mod snapshots;
mod support;
mod synthetic;
