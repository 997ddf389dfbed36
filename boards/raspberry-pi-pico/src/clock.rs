//! 133 MHz, the highest that the chip and the board's flash are rated for.

use rp2040_hal::clocks::{ClocksManager, InitError};
use rp2040_hal::fugit::HertzU32;
use rp2040_hal::pac::{CLOCKS, PLL_SYS, PLL_USB, RESETS, XOSC};
use rp2040_hal::pll::common_configs::PLL_USB_48MHZ;
use rp2040_hal::pll::{PLLConfig, setup_pll_blocking};
use rp2040_hal::watchdog::Watchdog;
use rp2040_hal::xosc::setup_xosc_blocking;

/// The board's crystal.
const CRYSTAL: HertzU32 = HertzU32::MHz(12);

/// 12 MHz * 133 / 6 / 2.
const PLL: PLLConfig = PLLConfig { vco_freq: HertzU32::MHz(1596), refdiv: 1, post_div1: 6, post_div2: 2 };

/// The CPU's clock.
pub const HZ: u32 = PLL.vco_freq.to_Hz() / (PLL.post_div1 as u32 * PLL.post_div2 as u32);

/// Starts crystal, PLLs and clocks, and the tick of a microsecond that timer and watchdog count.
pub fn start(
    xosc: XOSC,
    clocks: CLOCKS,
    pll_sys: PLL_SYS,
    pll_usb: PLL_USB,
    resets: &mut RESETS,
    watchdog: &mut Watchdog,
) -> Result<ClocksManager, InitError> {
    let crystal = setup_xosc_blocking(xosc, CRYSTAL).map_err(InitError::XoscErr)?;
    watchdog.enable_tick_generation(CRYSTAL.to_MHz() as u8);
    let mut clocks = ClocksManager::new(clocks);
    let sys = setup_pll_blocking(pll_sys, CRYSTAL, PLL, &mut clocks, resets).map_err(InitError::PllError)?;
    let usb = setup_pll_blocking(pll_usb, CRYSTAL, PLL_USB_48MHZ, &mut clocks, resets).map_err(InitError::PllError)?;
    clocks.init_default(&crystal, &sys, &usb).map_err(InitError::ClockError)?;
    Ok(clocks)
}
