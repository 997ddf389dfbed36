//! 120 MHz, the highest the chip allows.
//!
//! The HAL stops at 80 MHz: above, the regulator must be in boost mode and flash needs a fifth wait state, neither of
//! which it sets. So it starts the chip at 60 MHz, and what is left to do follows RM0432 (STM32L4+ reference manual), section
//! on dynamic voltage scaling. The buses to peripherals stay at 60 MHz, as the HAL believes them to be; only a timer's
//! clock is twice what it believes.

use embassy_stm32::pac::rcc::vals::{Hpre, Pllr, Ppre, Sw};
use embassy_stm32::pac::{FLASH, PWR, RCC};
use embassy_stm32::rcc::{AHBPrescaler, APBPrescaler, Pll, PllMul, PllPreDiv, PllRDiv, PllSource, Sysclk};
use embassy_stm32::{Config, Peripherals};

/// The CPU's clock.
pub const HZ: u32 = 120_000_000;

/// Where the register PWR_CR5 lies behind the first of PWR.
const PWR_CR5: usize = 0x80;

/// The bit of PWR_CR5 that is set while the regulator is in normal mode.
const R1MODE: u32 = 1 << 8;

/// Wait states of flash above 100 MHz.
const WAIT_STATES: u8 = 5;

/// Starts the chip at [`HZ`].
pub fn start() -> Peripherals {
    let mut config = Config::default();
    config.rcc.hsi = true;
    // 16 MHz / 4 * 60 = 240 MHz, the PLL's own clock; / 4 = 60 MHz.
    config.rcc.pll = Some(Pll {
        source: PllSource::HSI,
        prediv: PllPreDiv::DIV4,
        mul: PllMul::MUL60,
        divp: None,
        divq: None,
        divr: Some(PllRDiv::DIV4),
    });
    config.rcc.sys = Sysclk::PLL1_R;
    config.rcc.ahb_pre = AHBPrescaler::DIV1;
    config.rcc.apb1_pre = APBPrescaler::DIV1;
    config.rcc.apb2_pre = APBPrescaler::DIV1;
    let chip = embassy_stm32::init(config);
    double();
    chip
}

/// From 60 MHz to [`HZ`], by halving what the PLL's clock is divided by.
fn double() {
    // The PLL is changed while the chip runs from MSI, at 4 MHz.
    RCC.cfgr().modify(|w| w.set_sw(Sw::MSI));
    while RCC.cfgr().read().sws() != Sw::MSI {}
    RCC.cr().modify(|w| w.set_pllon(false));
    while RCC.cr().read().pllrdy() {}
    RCC.pllcfgr().modify(|w| w.set_pllr(Pllr::DIV2));

    let cr5 = PWR.as_ptr().wrapping_byte_add(PWR_CR5).cast::<u32>();
    // SAFETY: the address is that of PWR_CR5, a register of this chip that the PAC leaves out; `init` has switched PWR on, and
    // nothing else runs yet that could use it.
    unsafe { cr5.write_volatile(cr5.read_volatile() & !R1MODE) };
    FLASH.acr().modify(|w| w.set_latency(WAIT_STATES));
    while FLASH.acr().read().latency() != WAIT_STATES {}

    // Through half the clock, for a microsecond at least.
    RCC.cfgr().modify(|w| {
        w.set_hpre(Hpre::DIV2);
        w.set_ppre1(Ppre::DIV2);
        w.set_ppre2(Ppre::DIV2);
    });
    RCC.cr().modify(|w| w.set_pllon(true));
    while !RCC.cr().read().pllrdy() {}
    RCC.cfgr().modify(|w| w.set_sw(Sw::PLL1_R));
    while RCC.cfgr().read().sws() != Sw::PLL1_R {}
    cortex_m::asm::delay(HZ / 1_000_000);
    RCC.cfgr().modify(|w| w.set_hpre(Hpre::DIV1));
}
