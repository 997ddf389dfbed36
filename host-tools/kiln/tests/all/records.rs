//! Modules and optimizers as files.

use kiln::nn::{BatchNorm, Linear};
use kiln::optim::{Adam, AdamConfig, Optimizer};
use kiln::{Counter, Device, Distribution, Module, RandomState, Record, RecordError, Tensor};

#[derive(Module, Clone, Debug)]
struct Net {
    input: Linear,
    norm: BatchNorm,
    output: Linear,
}

#[derive(Module, Clone, Debug)]
struct Training {
    model: Net,
    optimizer: Adam,
    epoch: Counter,
    random: RandomState,
}

impl Training {
    fn new(device: &Device, hidden: usize) -> Training {
        let model = Net {
            input: Linear::new(3, hidden, device),
            norm: BatchNorm::new(hidden, device),
            output: Linear::new(hidden, 1, device),
        };
        let optimizer = Adam::new(AdamConfig::default(), &model);
        Training { model, optimizer, epoch: Counter(0), random: device.random_state() }
    }

    fn step(&mut self) -> f32 {
        let device = self.model.input.weight.device();
        let x = Tensor::<2>::random([8, 3], Distribution::Normal, device);
        let y = self.model.norm.forward(&self.model.input.forward(&x)).tanh();
        let loss = (self.model.output.forward(&y) - x.sum_dim(1)).square().mean();
        let gradients = loss.backward().unwrap();
        self.optimizer.step(0.01, &mut self.model, &gradients).unwrap();
        self.epoch.0 += 1;
        loss.into_scalar().unwrap()
    }
}

#[test]
fn training_goes_on_exactly_where_it_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("training.safetensors");
    let device = Device::cpu();
    device.seed(11);
    let mut training = Training::new(&device, 4);
    for _ in 0..5 {
        training.step();
    }
    training.random = device.random_state();
    training.save(&file).unwrap();
    let expected: Vec<f32> = (0..5).map(|_| training.step()).collect();

    let device = Device::cpu();
    let mut resumed = Training::new(&device, 4);
    resumed.load(&file).unwrap();
    device.set_random_state(resumed.random);
    assert_eq!(resumed.epoch, Counter(5));
    let found: Vec<f32> = (0..5).map(|_| resumed.step()).collect();
    assert_eq!(found, expected);

    // A part of the file is a model; the same state is the same bytes.
    let mut model = Training::new(&device, 4).model;
    Record::read(&file).unwrap().part("model").restore(&mut model).unwrap();
    let again = folder.path().join("again.safetensors");
    let first = std::fs::read(&file).unwrap();
    Record::read(&file).unwrap().write(&again).unwrap();
    assert_eq!(std::fs::read(&again).unwrap(), first);
}

fn snapshot(training: &Training) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    training.save(file.path()).unwrap();
    std::fs::read(file.path()).unwrap()
}

#[test]
fn what_does_not_fit_is_named_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.safetensors");
    let device = Device::cpu();
    let mut training = Training::new(&device, 4);
    let before = snapshot(&training);
    let mut refused = |message: &str| {
        let text = training.load(&file).unwrap_err().to_string();
        assert!(text.starts_with(&file.display().to_string()) && text.contains(message), "{text}");
        assert_eq!(snapshot(&training), before);
    };

    refused("No such file");
    Training::new(&device, 5).save(&file).unwrap();
    refused("model.input.weight is F32 [5, 3], and the module's is F32 [4, 3]");
    let full = Training::new(&device, 4);
    full.model.save(&file).unwrap();
    refused("has no tensor model.input.weight");
    (full.model.clone(), full.clone()).save(&file).unwrap();
    refused("has no tensor model.input.weight");
    #[derive(Module, Clone)]
    struct More {
        model: Net,
        optimizer: Adam,
        epoch: Counter,
        random: RandomState,
        extra: Tensor<1>,
    }
    let Training { model, optimizer, epoch, random } = full.clone();
    More { model, optimizer, epoch, random, extra: Tensor::zeros([1], &device) }.save(&file).unwrap();
    refused("has a tensor extra, which the module has not");

    // Damage: every length short of the whole, and every bit of the header's start.
    full.save(&file).unwrap();
    let whole = std::fs::read(&file).unwrap();
    for len in (0..whole.len()).step_by(61) {
        std::fs::write(&file, &whole[..len]).unwrap();
        refused("");
    }
    for bit in 0..256 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, &bytes).unwrap();
        if let Err(error) = training.load(&file) {
            assert!(error.to_string().starts_with(&file.display().to_string()), "{error}");
            assert_eq!(snapshot(&training), before);
        } else {
            // Names changed by one bit would be other tensors: only what is not read may differ.
            panic!("bit {bit} of the header may be anything");
        }
    }
    let error = full.save(folder.path().join("no/such/folder")).unwrap_err();
    assert!(matches!(error, RecordError::File { .. }), "{error}");
}
