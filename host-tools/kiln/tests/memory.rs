//! Memory over thousands of steps, in a process of its own.

use kiln::nn::{BatchNorm, Dropout, Linear};
use kiln::optim::{Adam, AdamConfig, Optimizer, schedule};
use kiln::{Device, Distribution, Module, Tensor};

#[derive(Module, Clone, Debug)]
struct Net {
    input: Linear,
    norm: BatchNorm,
    dropout: Dropout,
    output: Linear,
}

impl Net {
    fn forward(&self, x: &Tensor<2>) -> Tensor<2> {
        let x = self.norm.forward(&self.input.forward(x)).relu();
        self.output.forward(&self.dropout.forward(&x))
    }
}

/// Bytes of memory that the process occupies.
fn resident() -> usize {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// What a loop does at each step besides training.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    Never,
    /// Prints the loss before `backward`, clips, and has a short last batch in every ten.
    Everywhere,
}

fn train(device: &Device, steps: usize, look: Look, mut after: impl FnMut(usize)) {
    device.seed(1);
    let mut net = Net {
        input: Linear::new(4, 8, device),
        norm: BatchNorm::new(8, device),
        dropout: Dropout::new(0.1),
        output: Linear::new(8, 1, device),
    };
    let mut adam = Adam::new(AdamConfig::default(), &net);
    for step in 0..steps {
        let rows = if look == Look::Everywhere && step % 10 == 9 { 3 } else { 16 };
        let x = Tensor::<2>::random([rows, 4], Distribution::Normal, device);
        let y = x.sum_dim(1);
        // Data come from outside.
        kiln::realize_all(&[&x, &y]).unwrap();
        let loss = (net.forward(&x) - y).square().mean();
        if look == Look::Everywhere {
            assert!(loss.to_string().parse::<f32>().unwrap().is_finite());
        }
        let mut gradients = loss.backward().unwrap();
        if look == Look::Everywhere {
            gradients = gradients.clip_norm(1.0);
        }
        let rate = 0.01 * schedule::warm_up(step as u64, 20) * schedule::cosine(step as u64, steps as u64, 0.1);
        match look {
            // Given away, parameters and state are written over.
            Look::Never => adam.step(rate, &mut net, gradients).unwrap(),
            Look::Everywhere => adam.step(rate, &mut net, &gradients).unwrap(),
        }
        drop((x, loss));
        after(step);
    }
}

#[test]
fn ten_thousand_steps_take_no_more_memory_than_a_few() {
    for look in [Look::Never, Look::Everywhere] {
        let device = Device::cpu();
        let steps = 10_000;
        let mut at: Vec<(u64, u64, u64, usize)> = Vec::new();
        train(&device, steps, look, |step| {
            if [999, steps - 1].contains(&step) {
                let memory = device.memory();
                at.push((memory.tensors, memory.peak, device.plans_built(), resident()));
            }
        });
        let [(tensors, peak, plans, pages), (tensors_last, peak_last, plans_last, pages_last)] = at[..] else {
            panic!("{at:?}")
        };
        println!("{tensors} bytes of tensors, peak {peak}, {plans} plans, resident {pages} then {pages_last}");
        assert_eq!((tensors, peak, plans), (tensors_last, peak_last, plans_last));
        // 28 bytes a step would be more.
        assert!(pages_last <= pages + 256 * 1024, "{pages} bytes grew to {pages_last}");
    }
}

#[test]
fn the_peak_of_a_step_is_what_its_plan_says() {
    let device = Device::cpu();
    train(&device, 3, Look::Never, |_| ());
    assert_eq!(device.memory().peak, device.largest_plan());
}
