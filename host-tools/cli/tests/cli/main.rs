//! The command as its users meet it: what it prints, and how it ends.

#![allow(clippy::result_large_err, reason = "tests take the errors of the command as they are")]

mod c;
mod compile;
mod consistency;
mod exit_codes;
mod hostile;
mod inputs;
mod networks;
mod patches;
mod pictures;
mod profile;
mod quantize;
mod real_boards;
mod regions;
mod snapshots;
mod support;
mod synthetic;
mod training;
mod verify;
