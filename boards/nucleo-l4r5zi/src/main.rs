//! Runs a Kiln model on ST's Nucleo-L4R5ZI once a second, and says over the debug probe whether it computes what it
//! should and how many cycles it takes.
//!
//! | pin | what |
//! | --- | --- |
//! | PB7, the blue LED | on: right; blinking: not |
//! | PF12 | high while the model runs, low for a moment after each step: for a logic analyser or a power meter |
#![no_std]
#![no_main]

mod clock;
mod trial;

use cortex_m::delay::Delay;
use cortex_m::peripheral::DWT;
use defmt::{error, info};
use embassy_stm32::gpio::{Level, Output, Speed};
use embedded_hal::digital::{OutputPin, StatefulOutputPin};
use model::Arena;
use model::kiln_core::Done;
use static_cell::ConstStaticCell;
use trial::CLOCK_HZ;
use {defmt_rtt as _, panic_probe as _};

const _: () = assert!(clock::HZ == CLOCK_HZ, "clock.rs sets another clock than the board's file says");

static ARENA: ConstStaticCell<Arena> = ConstStaticCell::new(Arena::new());

#[cortex_m_rt::entry]
fn main() -> ! {
    let chip = clock::start();
    let led = Output::new(chip.PB7, Level::Low, Speed::Low);
    let mark = Output::new(chip.PF12, Level::Low, Speed::VeryHigh);
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
