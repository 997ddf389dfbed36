//! What is read from a small model, and what each fault in it is called.

mod accepted;
mod draft;
mod refused;
