//! The GPU, where there is one.

use kiln::Device;
use kiln_cube::Cube;
use kiln_planner::backend::Backend;

/// The GPU, or none where that is all right. Where one is required, it is reached through Vulkan if the system has that.
pub(crate) fn cube() -> Option<Cube> {
    let required = std::env::var("KILN_REQUIRE_GPU").is_ok_and(|value| value == "1");
    match Cube::webgpu() {
        Ok(cube) if required && cfg!(target_os = "linux") && !cube.name().ends_with("(vulkan)") => {
            panic!("KILN_REQUIRE_GPU=1, but there is no adapter for Vulkan, only {}", cube.name())
        }
        Ok(cube) => Some(cube),
        Err(error) if required => panic!("KILN_REQUIRE_GPU=1, but {error}"),
        Err(error) => {
            eprintln!("skipped: no adapter ({error})");
            None
        }
    }
}

/// The GPU as a device.
pub(crate) fn device() -> Option<Device> {
    Some(Device::new(Box::new(cube()?)))
}
