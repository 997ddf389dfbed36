//! What is read from a small model, what graph it becomes, and what each fault in it is called.

mod accepted;
mod converted;
mod draft;
mod labels;
mod refused;
