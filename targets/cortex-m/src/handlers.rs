//! What happens when something goes wrong under emulation: it ends, with a code that says so.

use kiln_device::semihosting::exit;

use crate::Exit;

/// Required by the language. Nothing may panic, so the linker drops it; a check of the firmware's
/// symbols proves that it did.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(Exit::Panic)
}

// SAFETY: the handler touches no memory but its own stack frame, and does not return to the
// interrupted code.
#[cortex_m_rt::exception(trampoline = false)]
unsafe fn HardFault() -> ! {
    exit(Exit::HardFault)
}

// SAFETY: as for the hard fault.
#[cortex_m_rt::exception]
unsafe fn DefaultHandler(_: i16) -> ! {
    exit(Exit::Exception)
}
