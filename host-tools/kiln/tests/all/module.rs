//! `#[derive(Module)]`: what is visited, under which names, and what is done with it.

use kiln::nn::{Activation, BatchNorm, Conv2d, Dropout, Linear};
use kiln::{Bool, Buffer, Counter, Device, Int, Kind, Module, ModulePath, Tensor, Visitor};

use crate::reference::Reference;

/// Something that is no module.
#[derive(Clone, Debug)]
struct Note;

#[derive(Module, Clone, Debug)]
struct Block<M, const N: usize> {
    layers: [M; N],
    norm: Option<BatchNorm>,
    #[module(skip)]
    _note: Note,
    _width: usize,
}

#[derive(Module, Clone, Debug)]
enum Head {
    Plain(Linear),
    Gated { gate: Linear, r#type: Box<Linear> },
    None,
}

#[derive(Module, Clone, Debug)]
struct Net {
    blocks: Vec<Block<Conv2d, 2>>,
    dropout: Dropout,
    activation: Activation,
    heads: (Head, Head),
    last: Head,
    scale: Tensor<0>,
    frozen: Tensor<1>,
    classes: Tensor<1, Int>,
    mask: Tensor<1, Bool>,
    seen: Counter,
    pair: Pair,
}

#[derive(Module, Clone, Debug)]
struct Pair(Tensor<1>, Buffer<1>);

fn net(device: &Device) -> Net {
    let conv = |i, o| Conv2d::new([i, o], [1, 1], device);
    let linear = |i, o| Linear::without_bias(i, o, device);
    let block = |norm| Block { layers: [conv(1, 2), conv(2, 1)], norm, _note: Note, _width: 3 };
    Net {
        blocks: vec![block(Some(BatchNorm::new(1, device))), block(None)],
        dropout: Dropout::new(0.5),
        activation: Activation::Relu,
        heads: (Head::Plain(linear(1, 2)), Head::Gated { gate: linear(2, 3), r#type: Box::new(linear(1, 1)) }),
        last: Head::None,
        scale: Tensor::full([], 2.0, device).require_grad(),
        frozen: Tensor::ones([5], device),
        classes: Tensor::arange(0..3, device),
        mask: Tensor::ones([2], device),
        seen: Counter(7),
        pair: Pair(Tensor::zeros([4], device).require_grad(), Buffer::new(Tensor::ones([6], device))),
    }
}

#[derive(Default)]
struct Names {
    parameters: Vec<String>,
    buffers: Vec<String>,
    tracked: usize,
}

impl Visitor for Names {
    fn parameter<const D: usize>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        self.parameters.push(format!("{path} {:?}", tensor.dims()));
        self.tracked += usize::from(tensor.is_tracked());
    }

    fn buffer<const D: usize, K: Kind>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        self.buffers.push(format!("{path} {:?}", tensor.dims()));
    }

    fn counter(&mut self, path: &ModulePath<'_>, number: &mut u64) {
        self.buffers.push(format!("{path} = {number}"));
    }
}

fn names(module: &impl Module) -> Names {
    let mut names = Names::default();
    module.clone().visit(&ModulePath::ROOT, &mut names);
    names
}

#[test]
fn every_tensor_is_visited_once_in_order_under_its_path() {
    let net = net(&Device::cpu());
    let seen = names(&net);
    assert_eq!(
        seen.parameters,
        [
            "blocks.0.layers.0.weight [2, 1, 1, 1]",
            "blocks.0.layers.0.bias [2]",
            "blocks.0.layers.1.weight [1, 1, 1, 2]",
            "blocks.0.layers.1.bias [1]",
            "blocks.0.norm.weight [1]",
            "blocks.0.norm.bias [1]",
            "blocks.1.layers.0.weight [2, 1, 1, 1]",
            "blocks.1.layers.0.bias [2]",
            "blocks.1.layers.1.weight [1, 1, 1, 2]",
            "blocks.1.layers.1.bias [1]",
            "heads.0.0.weight [2, 1]",
            "heads.1.gate.weight [3, 2]",
            "heads.1.type.weight [1, 1]",
            "scale []",
            "frozen [5]",
            "pair.0 [4]",
        ]
    );
    assert_eq!(
        seen.buffers,
        [
            "blocks.0.norm.running_mean [1]",
            "blocks.0.norm.running_var [1]",
            "classes [3]",
            "mask [2]",
            "seen = 7",
            "pair.1 [6]"
        ]
    );
    assert_eq!(net.num_params(), 7 + 2 + 7 + 2 + 6 + 1 + 1 + 5 + 4);
    assert_eq!(seen.tracked, seen.parameters.len() - 1);
}

#[test]
fn a_copy_for_evaluation_is_untracked_and_leaves_the_module_as_it_is() {
    let device = Device::cpu();
    let net = net(&device);
    let valid = net.valid();
    assert_eq!(names(&valid).tracked, 0);
    assert_eq!(names(&net).tracked, names(&net).parameters.len() - 1);
    let x = Tensor::<2>::ones([4, 5], &device);
    assert_eq!(valid.dropout.forward(&x).to_vec().unwrap(), [1.0; 20]);
    let dropped = net.dropout.forward(&x).to_vec().unwrap();
    assert!(dropped.contains(&0.0) && dropped.contains(&2.0) && dropped.iter().all(|v| [0.0, 2.0].contains(v)));
    // What a buffer's copy is set to does not show in the original.
    valid.pair.1.set(&Tensor::zeros([6], &device));
    assert_eq!(net.pair.1.get().to_vec().unwrap(), [1.0; 6]);
}

#[test]
fn modules_move_between_devices() {
    let (cpu, other) = (Device::cpu(), Device::new(Box::new(Reference::default())));
    let net = net(&cpu);
    let moved = net.to_device(&other).unwrap();
    assert_eq!(moved.scale.device(), &other);
    assert_eq!(moved.pair.1.get().device(), &other);
    assert_eq!(names(&moved).tracked, names(&net).tracked);
    assert_eq!(moved.to_record().unwrap().names().count(), 22);
    assert_eq!(moved.blocks[0].layers[0].weight.to_vec().unwrap(), net.blocks[0].layers[0].weight.to_vec().unwrap());
    assert!(moved.scale.add_scalar(1.0).backward().is_ok());
}
