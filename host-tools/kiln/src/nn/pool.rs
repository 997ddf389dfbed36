//! Pooling layers.

use crate::{Module, Tensor};

macro_rules! pools {
    ($($(#[$doc:meta])* $name:ident => $method:ident,)*) => {
        $($(#[$doc])*
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// The window: height, width.
            pub kernel: [usize; 2],
            /// Steps between windows: height, width.
            pub stride: [usize; 2],
            /// Padding: top, left, bottom, right.
            pub padding: [usize; 4],
        }

        impl $name {
            /// Windows of `[height, width]` side by side, without padding.
            pub fn new(kernel: [usize; 2]) -> $name {
                $name { kernel, stride: kernel, padding: [0; 4] }
            }

            /// `[N, H, W, C]` to `[N, H', W', C]`.
            #[track_caller]
            pub fn forward(&self, x: &Tensor<4>) -> Tensor<4> {
                x.$method(self.kernel, self.stride, self.padding)
            }
        })*
    };
}

pools! {
    /// The largest element of each window.
    MaxPool2d => max_pool2d,
    /// The mean of each window; padding does not count.
    AvgPool2d => avg_pool2d,
}
