//! Walks over dense tensors in the order of their elements, along which other tensors are visited at strides.

/// The most axes of a walk.
pub(crate) const MAX_AXES: usize = 8;

/// A walk over the elements of some axes, the innermost fastest, that follows a tensor at its strides.
pub(crate) struct Walk<'a> {
    sizes: &'a [u32],
    strides: &'a [u32],
    at: [u32; MAX_AXES],
    position: usize,
}

/// Elements that lie evenly, along the innermost axis.
pub(crate) struct Run {
    /// Of the first.
    pub(crate) position: usize,
    /// How many.
    pub(crate) length: usize,
    /// From one to the next.
    pub(crate) stride: usize,
}

impl<'a> Walk<'a> {
    /// A walk from element `first` on over axes of these sizes and strides, at most [`MAX_AXES`].
    pub(crate) fn new(sizes: &'a [u32], strides: &'a [u32], first: usize) -> Walk<'a> {
        let (mut at, mut position, mut rest) = ([0; MAX_AXES], 0usize, first);
        for ((&size, &stride), at) in sizes.iter().zip(strides).zip(&mut at).rev() {
            let outer = rest.checked_div(size as usize).unwrap_or(0);
            let index = rest.wrapping_sub(outer.wrapping_mul(size as usize));
            position = position.wrapping_add(index.wrapping_mul(stride as usize));
            *at = index as u32;
            rest = outer;
        }
        Walk { sizes, strides, at, position }
    }

    /// The next elements, at most `most` of them, as far as they lie evenly. Beyond the last element the walk
    /// begins anew.
    pub(crate) fn next(&mut self, most: usize) -> Run {
        let mut axes = self.sizes.iter().zip(self.strides).zip(&mut self.at).rev();
        let Some(((&size, &stride), at)) = axes.next() else {
            return Run { position: 0, length: most.min(1), stride: 0 };
        };
        let length = most.min(size.wrapping_sub(*at) as usize);
        let run = Run { position: self.position, length, stride: stride as usize };
        *at = at.wrapping_add(length as u32);
        self.position = self.position.wrapping_add(length.wrapping_mul(stride as usize));
        if *at >= size {
            self.position = self.position.wrapping_sub((stride as usize).wrapping_mul(size as usize));
            *at = 0;
            for ((&size, &stride), at) in axes {
                *at = at.wrapping_add(1);
                self.position = self.position.wrapping_add(stride as usize);
                if *at < size {
                    break;
                }
                self.position = self.position.wrapping_sub((stride as usize).wrapping_mul(size as usize));
                *at = 0;
            }
        }
        run
    }
}

/// The product of some sizes; none where one of them is 0 or the product does not fit.
pub(crate) fn elements(sizes: &[u32]) -> Option<u64> {
    sizes.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64)).filter(|&n| n != 0)
}

/// One more than the position of the last element of axes of these sizes (none of them 0) and strides;
/// saturating.
pub(crate) fn reach(sizes: &[u32], strides: &[u32]) -> u64 {
    // Each product is of 32-bit factors and fits.
    let last = |(&size, &stride): (&u32, &u32)| (size as u64).saturating_sub(1) * stride as u64;
    sizes.iter().zip(strides).map(last).fold(1, u64::saturating_add)
}

/// How planning finds walks.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::Shape;

    use super::MAX_AXES;

    /// Axes of a shape with the strides of `N` tensors along each; neighbours that every tensor walks as one
    /// are one, and axes of one element are left out.
    pub(crate) struct Axes<const N: usize> {
        pub(crate) used: usize,
        pub(crate) sizes: [u32; MAX_AXES],
        pub(crate) strides: [[u32; MAX_AXES]; N],
    }

    impl<const N: usize> Axes<N> {
        /// The same as all of the arrays: axes that are not used have size 1 and come first.
        pub(crate) fn at_the_end(mut self) -> Axes<N> {
            let unused = MAX_AXES.saturating_sub(self.used);
            self.sizes.rotate_right(unused);
            self.strides.iter_mut().for_each(|all| all.rotate_right(unused));
            self.used = MAX_AXES;
            self
        }
    }

    /// Finds the axes; strides are in elements. `None` where one does not fit in 32 bits.
    pub(crate) fn axes<const N: usize>(shape: &Shape, strides: &[[usize; MAX_AXES]; N]) -> Option<Axes<N>> {
        let mut axes = Axes { used: 0, sizes: [1; MAX_AXES], strides: [[0; MAX_AXES]; N] };
        for (axis, &size) in shape.dims().iter().enumerate().filter(|(_, size)| **size != 1) {
            let mut own = [0u32; N];
            for (own, all) in own.iter_mut().zip(strides) {
                *own = u32::try_from(*all.get(axis)?).ok()?;
            }
            let joins = |before: usize| {
                let mut pairs = own.iter().zip(&axes.strides);
                pairs.all(|(&own, all)| all[before] as u64 == own as u64 * size as u64)
            };
            let place = match axes.used.checked_sub(1).filter(|&before| joins(before)) {
                Some(before) => before,
                None => {
                    axes.used += 1;
                    axes.used - 1
                }
            };
            *axes.sizes.get_mut(place)? = axes.sizes.get(place)?.checked_mul(size)?;
            for (all, own) in axes.strides.iter_mut().zip(own) {
                all[place] = own;
            }
        }
        // A single element is an axis of one.
        axes.used = axes.used.max(1);
        Some(axes)
    }
}
