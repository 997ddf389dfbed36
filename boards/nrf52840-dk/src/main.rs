//! Runs a Kiln model on Nordic's nRF52840 DK once a second, and says over the debug probe whether it computes what it
//! should and how many cycles it takes.
//!
//! | pin | what |
//! | --- | --- |
//! | P0.13, LED1 | on: right; blinking: not |
//! | P1.10 | high while the model runs, low for a moment after each step: for a logic analyser or a power meter |
#![no_std]
#![no_main]

mod trial;

use cortex_m::delay::Delay;
use cortex_m::peripheral::DWT;
use defmt::{error, info};
use embassy_nrf::config::{Config, HfclkSource};
use embassy_nrf::gpio::{Level, Output, OutputDrive};
use embedded_hal::digital::{ErrorType, OutputPin, StatefulOutputPin};
use model::Arena;
use model::kiln_core::Done;
use static_cell::ConstStaticCell;
use trial::CLOCK_HZ;
use {defmt_rtt as _, panic_probe as _};

const _: () = assert!(CLOCK_HZ == 64_000_000, "the chip has one clock only");

static ARENA: ConstStaticCell<Arena> = ConstStaticCell::new(Arena::new());

#[cortex_m_rt::entry]
fn main() -> ! {
    let mut config = Config::default();
    // The crystal: cycles are the same without, seconds are more exact with it.
    config.hfclk_source = HfclkSource::ExternalXtal;
    let chip = embassy_nrf::init(config);
    // The LED lies between the supply and the pin.
    let led = Inverted(Output::new(chip.P0_13, Level::High, OutputDrive::Standard));
    let mark = Output::new(chip.P1_10, Level::Low, OutputDrive::HighDrive);
    let mut core = cortex_m::Peripherals::take().expect("nothing took them before");
    core.DCB.enable_trace();
    core.DWT.enable_cycle_counter();
    run(led, mark, Delay::new(core.SYST, CLOCK_HZ))
}

/// What is left once the board is set up: any HAL's pins will do.
fn run(mut led: impl StatefulOutputPin, mut mark: impl OutputPin, mut delay: Delay) -> ! {
    let mut model = match trial::model(ARENA.take()) {
        Ok(model) => model,
        Err(refused) => {
            error!("the plan was refused: {}", refused);
            loop {
                let _ = led.toggle();
                delay.delay_ms(100);
            }
        }
    };
    loop {
        trial::fill(&mut model);
        let start = DWT::cycle_count();
        let _ = mark.set_high();
        trial::run(&mut model, &mut |_: &Done<'_>| {
            let _ = mark.set_low();
            let _ = mark.set_high();
        });
        let _ = mark.set_low();
        let cycles = DWT::cycle_count().wrapping_sub(start);
        match trial::difference(&model) {
            None => {
                info!("ok, {} cycles at {} Hz", cycles, CLOCK_HZ);
                let _ = led.set_high();
                delay.delay_ms(1000);
            }
            Some(byte) => {
                error!("output byte {} is {}, expected {}; {} cycles", byte.at, byte.found, byte.expected, cycles);
                for _ in 0..10 {
                    let _ = led.toggle();
                    delay.delay_ms(100);
                }
            }
        }
    }
}

/// A pin whose load is on while the pin is low.
struct Inverted<P>(P);

impl<P: OutputPin> ErrorType for Inverted<P> {
    type Error = P::Error;
}

impl<P: OutputPin> OutputPin for Inverted<P> {
    fn set_low(&mut self) -> Result<(), P::Error> {
        self.0.set_high()
    }

    fn set_high(&mut self) -> Result<(), P::Error> {
        self.0.set_low()
    }
}

impl<P: StatefulOutputPin> StatefulOutputPin for Inverted<P> {
    fn is_set_high(&mut self) -> Result<bool, P::Error> {
        self.0.is_set_low()
    }

    fn is_set_low(&mut self) -> Result<bool, P::Error> {
        self.0.is_set_high()
    }
}
