//! Operators as 32-bit words: how one travels in a plan's parameters, so that a device can run its reference.
//!
//! Every attribute has a fixed number of words, in the order of its fields; reading needs no heap and has no
//! panic path. Numbers of enumerations are explicit and never reused.

use kiln_core::{DType, MAX_RANK, Shape, TensorType};

use crate::*;

/// Words to read, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    words: &'a [u32],
}

impl<'a> Reader<'a> {
    /// A reader of these words.
    pub fn new(words: &'a [u32]) -> Reader<'a> {
        Reader { words }
    }

    /// The next word.
    pub fn word(&mut self) -> Option<u32> {
        let (&word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(word)
    }

    /// The next `n` words.
    pub fn take(&mut self, n: usize) -> Option<&'a [u32]> {
        let (taken, rest) = self.words.split_at_checked(n)?;
        self.words = rest;
        Some(taken)
    }

    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        self.words.is_empty()
    }
}

/// Where words are written.
pub trait Writer {
    /// Adds a word.
    fn word(&mut self, word: u32);
}

/// What can be written as words and read again.
pub trait Words: Sized {
    /// Adds its words.
    fn write(&self, to: &mut dyn Writer);
    /// Reads it; `None` where the words are not those of one.
    fn read(from: &mut Reader<'_>) -> Option<Self>;
}

impl Words for u32 {
    fn write(&self, to: &mut dyn Writer) {
        to.word(*self);
    }

    fn read(from: &mut Reader<'_>) -> Option<u32> {
        from.word()
    }
}

impl Words for u8 {
    fn write(&self, to: &mut dyn Writer) {
        to.word((*self).into());
    }

    fn read(from: &mut Reader<'_>) -> Option<u8> {
        u8::try_from(from.word()?).ok()
    }
}

impl Words for bool {
    fn write(&self, to: &mut dyn Writer) {
        to.word((*self).into());
    }

    fn read(from: &mut Reader<'_>) -> Option<bool> {
        match from.word()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Words for f32 {
    fn write(&self, to: &mut dyn Writer) {
        to.word(self.to_bits());
    }

    fn read(from: &mut Reader<'_>) -> Option<f32> {
        Some(f32::from_bits(from.word()?))
    }
}

impl<T: Words + core::marker::Copy + Default, const N: usize> Words for [T; N] {
    fn write(&self, to: &mut dyn Writer) {
        self.iter().for_each(|item| item.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Option<[T; N]> {
        let mut all = [T::default(); N];
        for item in &mut all {
            *item = T::read(from)?;
        }
        Some(all)
    }
}

impl Words for DType {
    fn write(&self, to: &mut dyn Writer) {
        to.word(*self as u32);
    }

    fn read(from: &mut Reader<'_>) -> Option<DType> {
        DType::from_code(u8::read(from)?)
    }
}

impl Words for Function {
    fn write(&self, to: &mut dyn Writer) {
        to.word(*self as u32);
    }

    fn read(from: &mut Reader<'_>) -> Option<Function> {
        Function::from_code(u8::read(from)?)
    }
}

impl Words for Shape {
    fn write(&self, to: &mut dyn Writer) {
        to.word(self.rank() as u32);
        (0..MAX_RANK).for_each(|axis| to.word(self.dim(axis)));
    }

    fn read(from: &mut Reader<'_>) -> Option<Shape> {
        let rank = from.word()?;
        let dims: [u32; MAX_RANK] = Words::read(from)?;
        Shape::new(dims.get(..rank as usize)?).ok()
    }
}

impl Words for TensorType {
    fn write(&self, to: &mut dyn Writer) {
        self.dtype.write(to);
        self.shape.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<TensorType> {
        Some(TensorType { dtype: Words::read(from)?, shape: Words::read(from)? })
    }
}

/// Structures as their fields in order. A field that is missing here does not compile.
macro_rules! structures {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl Words for $name {
            #[allow(unused_variables, reason = "some operators have no attributes")]
            fn write(&self, to: &mut dyn Writer) {
                let $name { $($field),* } = self;
                $($field.write(to);)*
            }

            #[allow(unused_variables, reason = "some operators have no attributes")]
            fn read(from: &mut Reader<'_>) -> Option<$name> {
                Some($name { $($field: Words::read(from)?),* })
            }
        }
    )*};
}

/// Enumerations as numbers.
macro_rules! enumerations {
    ($($name:ident { $($variant:ident = $number:literal),* })*) => {$(
        impl Words for $name {
            fn write(&self, to: &mut dyn Writer) {
                to.word(match self { $($name::$variant => $number),* });
            }

            fn read(from: &mut Reader<'_>) -> Option<$name> {
                match from.word()? { $($number => Some($name::$variant),)* _ => None }
            }
        }
    )*};
}

enumerations! {
    Activation { None = 0, Relu = 1, Relu6 = 2, ReluN1To1 = 3 }
    PoolKind { Average = 0, Max = 1 }
    ReduceKind { Sum = 0, Max = 1, Min = 2 }
    Distribution { Uniform = 0, Normal = 1 }
}

structures! {
    Conv2d { strides, dilations, pads, groups, activation }
    FullyConnected { keep_dims, activation }
    Pool2d { kind, kernel, strides, pads, activation }
    Softmax { beta }
    Reshape { shape }
    Copy {}
    Add { activation }
    Transpose { permutation }
    Quantize {}
    Dequantize {}
    LogSoftmax {}
    MatMul { transpose_a, transpose_b }
    Reduce { kind, axes }
    ArgMax { axis }
    Expand { shape }
    Slice { begin, size, step }
    Scatter { begin, shape, step }
    Concat { axis }
    Cast { dtype }
    Random { shape, distribution }
    Conv2dInputGrad { conv, size }
    Conv2dWeightGrad { conv, kernel }
    AveragePool2dGrad { pool, size }
    MaxPool2dGrad { pool }
    MaxPool2dPick { pool }
    AveragePool2dPart { taps, last, activation }
    Map { function }
    Fused { dtype, shape }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Writer for Vec<u32> {
        fn word(&mut self, word: u32) {
            self.push(word);
        }
    }

    #[test]
    fn operators_come_back_as_they_were() {
        fn trip<T: Words + PartialEq + core::fmt::Debug>(op: T) {
            let mut words = Vec::new();
            op.write(&mut words);
            let mut reader = Reader::new(&words);
            assert_eq!(T::read(&mut reader), Some(op));
            assert!(reader.is_done());
            for cut in 0..words.len() {
                assert_eq!(T::read(&mut Reader::new(&words[..cut])), None, "{cut} of {} words", words.len());
            }
        }
        let conv =
            Conv2d { strides: [1, 2], dilations: [3, 4], pads: [5, 6, 7, 8], groups: 9, activation: Activation::Relu6 };
        trip(conv);
        trip(Conv2dWeightGrad { conv, kernel: [10, 11] });
        trip(Slice { begin: [7; MAX_RANK], size: Shape::new(&[1, 2, 3]).unwrap(), step: [2; MAX_RANK] });
        trip(Fused { dtype: DType::Bool, shape: Shape::SCALAR });
        trip(Map { function: Function::Select });
        trip(Softmax { beta: 0.3 });
        trip(TensorType::new(DType::I4, Shape::new(&[4; 8]).unwrap()));
        assert_eq!(Shape::read(&mut Reader::new(&[9, 1, 1, 1, 1, 1, 1, 1, 1])), None);
        assert_eq!(Activation::read(&mut Reader::new(&[4])), None);
        assert_eq!(bool::read(&mut Reader::new(&[2])), None);
    }
}
