//! A tensor's memory.

use kiln::{Distribution, Tensor};
use kiln_planner::backend::{Backend, BackendError};
use kiln_target_host::Cpu;

use crate::{cube, device};

#[test]
fn tensors_are_written_read_and_counted() {
    let Some(cube) = cube() else { return };
    for len in [0usize, 1, 3, 4, 5, 1023, 70_001] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
        let before = cube.memory().tensors;
        let handle = cube.write(&bytes).unwrap();
        assert_eq!((handle.bytes(), cube.memory().tensors), (len, before + len as u64));
        assert_eq!(cube.read(&handle).unwrap(), bytes);
        let other = handle.clone();
        drop(handle);
        assert_eq!(cube.memory().tensors, before + len as u64);
        drop(other);
        assert_eq!(cube.memory().tensors, before);
    }
    cube.synchronize().unwrap();
    assert!(cube.memory().peak >= 70_001);
}

#[test]
fn tensors_of_other_devices_and_too_much_memory_are_refused() {
    let Some(cube) = cube() else { return };
    let foreign = Cpu::with_threads(1).write(&[1, 2, 3, 4]).unwrap();
    assert!(matches!(cube.read(&foreign), Err(BackendError::Foreign { .. })));
    // Another opening of the same adapter is another device.
    let twin = crate::cube().unwrap();
    let own = cube.write(&[1, 2, 3, 4]).unwrap();
    assert!(matches!(twin.read(&own), Err(BackendError::Foreign { .. })));
}

#[test]
fn a_tensor_of_more_than_a_buffer_holds_is_refused() {
    let Some(gpu) = device() else { return };
    let small = Tensor::<2>::ones([1, 1], &gpu);
    let huge = small.expand([40_000, 40_000]).tanh();
    let error = huge.realize().unwrap_err().to_string();
    assert!(error.contains("no memory for 6400000000 bytes"), "{error}");
}

#[test]
fn memory_is_free_when_the_last_tensor_is_dropped() {
    let Some(gpu) = device() else { return };
    {
        let x = Tensor::<2>::random([64, 64], Distribution::Normal, &gpu);
        let y = x.matmul(&x).relu();
        y.realize().unwrap();
        assert!(gpu.memory().tensors >= 64 * 64 * 4);
    }
    assert_eq!(gpu.memory().tensors, 0);
}

#[test]
fn threads_share_a_gpu() {
    let Some(gpu) = device() else { return };
    let x = Tensor::<2>::random([33, 65], Distribution::Uniform, &gpu);
    let want = (x.clone() * x.clone()).sum().into_scalar().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let sum = (x.clone() * x.clone()).sum().into_scalar().unwrap();
                    assert_eq!(sum, want);
                }
            });
        }
    });
}
