//! Elements in and out.

use std::marker::PhantomData;

use kiln_core::{DType, TensorType};

use super::{Bool, Float, Int, Kind, Tensor, shape_of};
use crate::node::{Held, Node};
use crate::{Device, Error};

/// A number of a host program that is an element of a tensor.
pub trait Element: Copy {
    /// The kind of tensor.
    type Kind: Kind;

    /// Its bytes in a tensor.
    fn store(self, to: &mut Vec<u8>);

    /// The element with these bytes.
    fn load(bytes: &[u8]) -> Self;
}

impl Element for f32 {
    type Kind = Float;

    fn store(self, to: &mut Vec<u8>) {
        to.extend(self.to_le_bytes());
    }

    fn load(bytes: &[u8]) -> f32 {
        bytes.try_into().map_or(0.0, f32::from_le_bytes)
    }
}

impl Element for i32 {
    type Kind = Int;

    fn store(self, to: &mut Vec<u8>) {
        to.extend(self.to_le_bytes());
    }

    fn load(bytes: &[u8]) -> i32 {
        bytes.try_into().map_or(0, i32::from_le_bytes)
    }
}

impl Element for bool {
    type Kind = Bool;

    fn store(self, to: &mut Vec<u8>) {
        to.push(self.into());
    }

    fn load(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|b| *b != 0)
    }
}

impl<const D: usize, K: Kind> Tensor<D, K> {
    /// A tensor of elements, the innermost dimension varying fastest.
    ///
    /// # Panics
    ///
    /// If there are not as many elements as the shape has, or the device has no memory for them.
    #[track_caller]
    pub fn from_slice<E: Element<Kind = K>>(elements: &[E], dims: [usize; D], device: &Device) -> Self {
        let shape = shape_of(&dims);
        let wanted = shape.elements().unwrap_or(u64::MAX);
        assert!(
            wanted == elements.len() as u64,
            "from_slice: {} elements can't have the shape {dims:?}, which takes {wanted}",
            elements.len()
        );
        let mut bytes = Vec::with_capacity(elements.len() * 4);
        elements.iter().for_each(|e| e.store(&mut bytes));
        Tensor::from_bytes(&bytes, TensorType::new(K::DTYPE, shape), device)
    }

    #[track_caller]
    pub(crate) fn from_bytes(bytes: &[u8], ty: TensorType, device: &Device) -> Self {
        match Tensor::try_from_bytes(bytes, ty, device) {
            Ok(tensor) => tensor,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn try_from_bytes(bytes: &[u8], ty: TensorType, device: &Device) -> Result<Self, Error> {
        let handle = device.backend().write(bytes)?;
        Ok(Tensor { held: Held::new(Node::leaf(device, ty, handle)), kind: PhantomData })
    }

    /// The bytes of its elements, little-endian, computed if need be.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        self.node().read()
    }

    fn elements_as<E: Element<Kind = K>>(&self) -> Result<Vec<E>, Error> {
        let size = match K::DTYPE {
            DType::Bool => 1,
            _ => 4,
        };
        Ok(self.to_bytes()?.chunks_exact(size).map(E::load).collect())
    }

    /// The same tensor on another device.
    pub fn to_device(&self, device: &Device) -> Result<Self, Error> {
        if device == self.device() {
            return Ok(self.clone());
        }
        let handle = device.backend().write(&self.to_bytes()?)?;
        let leaf = Node::leaf(device, self.node().ty, handle);
        Ok(Tensor::from_node(if self.node().parameter { leaf.cut(true) } else { leaf }))
    }
}

macro_rules! readable {
    ($kind:ident, $element:ty) => {
        impl<const D: usize> Tensor<D, $kind> {
            /// Its elements, computed if need be, the innermost dimension varying fastest.
            pub fn to_vec(&self) -> Result<Vec<$element>, Error> {
                self.elements_as()
            }

            /// Its only element, computed if need be.
            ///
            /// # Panics
            ///
            /// If it has more than one, or none.
            #[track_caller]
            pub fn into_scalar(self) -> Result<$element, Error> {
                assert!(
                    self.elements() == 1,
                    "into_scalar: {:?} is the shape of {} elements",
                    self.dims(),
                    self.elements()
                );
                Ok(self.to_vec()?.into_iter().next().unwrap_or_default())
            }
        }
    };
}

readable!(Float, f32);
readable!(Int, i32);
readable!(Bool, bool);
