//! Networks of real models' shape and size, with made-up weights: what their memory maps look like
//! does not depend on the weights.

use kiln_core::DType;
use kiln_ops::{Activation, Add, Conv2d, FullyConnected, Pool2d, PoolKind, Reshape, Softmax};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::kiln_file::{About, KilnFile};

use crate::synthetic::weights;

/// A network being made: int8, images of `[1, height, width, channels]`.
struct Network {
    graph: Graph,
    /// The last value, and its shape without the batch.
    last: ValueId,
    shape: [u32; 3],
}

impl Network {
    fn new(name: &str, input: &str, shape: [u32; 3]) -> Network {
        let mut graph = Graph::new(name);
        graph.entries.push(Entry { name: "infer".into(), ..Entry::default() });
        let [height, width, channels] = shape;
        let ty = tensor_type(DType::I8, &[1, height, width, channels]).unwrap();
        let last = graph.add_input(input, ty, quant());
        graph.entries[0].inputs = vec![last];
        Network { graph, last, shape }
    }

    fn add(&mut self, name: &str, op: impl Into<kiln_ops::Op>, inputs: &[ValueId], quant: Quant) {
        self.last = self.graph.add_node(0, name, op, inputs, quant).unwrap();
    }

    /// A convolution with a window of `kernel` × `kernel` that keeps the size but for its stride.
    fn conv(&mut self, name: &str, channels: u32, kernel: u32, stride: u32, groups: u32) {
        let [height, width, before] = self.shape;
        let pad = kernel / 2;
        let (w, b) = weights(&mut self.graph, name, &[channels, kernel, kernel, before / groups], channels);
        let op =
            Conv2d { strides: [stride; 2], dilations: [1, 1], pads: [pad; 4], groups, activation: Activation::Relu };
        self.add(name, op, &[self.last, w, b], quant());
        let size = |n: u32| (n + 2 * pad - kernel) / stride + 1;
        self.shape = [size(height), size(width), channels];
    }

    fn depthwise(&mut self, name: &str, stride: u32) {
        self.conv(name, self.shape[2], 3, stride, self.shape[2]);
    }

    fn sum(&mut self, name: &str, other: ValueId) {
        self.add(name, Add { activation: Activation::None }, &[other, self.last], quant());
    }

    /// Pool, dense layer and softmax.
    fn classify(mut self, name: &str, classes: u32) -> Graph {
        let [height, width, channels] = self.shape;
        let pool = Pool2d {
            kind: PoolKind::Average,
            kernel: [height, width],
            strides: [1, 1],
            pads: [0; 4],
            activation: Activation::None,
        };
        self.add(&format!("{name}/pool"), pool, &[self.last], quant());
        let flat = Reshape { shape: tensor_type(DType::I8, &[1, channels]).unwrap().shape };
        self.add(&format!("{name}/flat"), flat, &[self.last], quant());
        let dense = format!("{name}/dense");
        let (w, b) = weights(&mut self.graph, &dense, &[classes, channels], classes);
        let op = FullyConnected { keep_dims: false, activation: Activation::None };
        self.add(&dense, op, &[self.last, w, b], quant());
        self.add("scores", Softmax { beta: 1.0 }, &[self.last], Quant::per_tensor(1.0 / 256.0, -128));
        self.graph.entries[0].outputs = vec![self.last];
        self.graph.validate().unwrap();
        self.graph
    }
}

fn quant() -> Quant {
    Quant::per_tensor(0.5, 3)
}

/// As large as a network that spots keywords in a second of sound: 49 × 10 features, separable
/// convolutions, a shortcut.
pub(crate) fn keywords() -> Graph {
    let mut n = Network::new("keywords", "features", [49, 10, 1]);
    n.conv("net/stem", 16, 3, 1, 1);
    n.depthwise("net/reduce_1", 2);
    n.conv("net/mix_1", 32, 1, 1, 1);
    let shortcut = n.last;
    n.depthwise("net/filter_2", 1);
    n.conv("net/mix_2", 32, 1, 1, 1);
    n.sum("net/sum_2", shortcut);
    n.depthwise("net/reduce_3", 2);
    n.conv("net/mix_3", 64, 1, 1, 1);
    n.classify("net", 12)
}

/// Sixty steps: blocks that widen, filter and narrow again, every other one with a shortcut.
pub(crate) fn sixty_steps() -> Graph {
    let mut n = Network::new("sixty", "image", [96, 96, 3]);
    n.conv("sixty/stem/Relu6;sixty/stem/Conv2D", 8, 3, 2, 1);
    for block in 0..16 {
        let name = |part: &str| format!("sixty/block_{block}_{part}/Relu6;sixty/block_{block}_{part}/Conv2D");
        let (before, narrow) = (n.last, n.shape[2]);
        let shortcut = block % 2 == 1;
        n.conv(&name("expand"), narrow * 3, 1, 1, 1);
        n.depthwise(&name("depthwise"), if block % 4 == 2 { 2 } else { 1 });
        n.conv(&name("project"), if shortcut { narrow } else { narrow + 4 }, 1, 1, 1);
        if shortcut {
            n.sum(&format!("sixty/block_{block}_add/add"), before);
        }
    }
    n.classify("sixty", 10)
}

/// One value that all steps read, each for an output of its own: everything is in memory at the end.
pub(crate) fn fan(steps: u32) -> Graph {
    let mut n = Network::new("fan", "image", [4, 4, 4]);
    let stem = n.last;
    let mut outputs = Vec::new();
    for i in 0..steps {
        n.add(&format!("net/branch_{i}/Add"), Add { activation: Activation::Relu }, &[stem, stem], quant());
        outputs.push(n.last);
    }
    n.graph.entries[0].outputs = outputs;
    n.graph.validate().unwrap();
    n.graph
}

/// A graph as the bytes of a `.kiln` file.
pub(crate) fn file(graph: Graph) -> Vec<u8> {
    let about = About { model: graph.name.clone(), board: "host".into(), kiln: "0.1.0".into() };
    KilnFile { graph: Some(graph), plans: Vec::new(), about }.to_bytes().unwrap()
}
