//! What happens when something goes wrong under emulation: it ends, with a code that says so.

use kiln_device::semihosting::exit;

use crate::Exit;

/// Required by the language. Nothing may panic, so the linker drops it; a check of the firmware's
/// symbols proves that it did.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(Exit::Panic)
}

// SAFETY: the names are those that start-up code calls for every exception and every interrupt that has
// no handler of its own, and nothing else has them. The handlers do not return to the interrupted code.
#[unsafe(export_name = "ExceptionHandler")]
extern "C" fn exception() -> ! {
    exit(Exit::HardFault)
}

// SAFETY: as for the exception.
#[unsafe(export_name = "DefaultHandler")]
extern "C" fn interrupt() -> ! {
    exit(Exit::Exception)
}
