use super::super::tests::wanted;
use super::*;
