//! Runs a Kiln model on the Raspberry Pi Pico once a second, and says over a serial line whether it computes what it
//! should and how long it takes.
//!
//! | pin | what |
//! | --- | --- |
//! | GPIO25, the LED | on: right; blinking: not |
//! | GPIO0 (pin 1) | UART, 115200 baud, 8 data bits, no parity, 1 stop bit |
//! | GPIO2 (pin 4) | high while the model runs: for a logic analyser or a power meter |
//!
//! A watchdog starts the chip again if a step of the model takes longer than [`WATCHDOG`].
#![no_std]
#![no_main]

mod clock;
mod trial;

use core::fmt::Write as _;

use cortex_m::peripheral::NVIC;
use embedded_hal::digital::{OutputPin, StatefulOutputPin};
use embedded_io::Write;
use heapless::String;
use model::Arena;
use model::kiln_core::Done;
use panic_halt as _;
use portable_atomic::{AtomicBool, Ordering};
use rp2040_hal::Clock;
use rp2040_hal::fugit::{MicrosDurationU32, RateExtU32};
use rp2040_hal::gpio::Pins;
use rp2040_hal::pac::{self, interrupt};
use rp2040_hal::timer::{Alarm, Alarm0, Timer};
use rp2040_hal::uart::{DataBits, StopBits, UartConfig, UartPeripheral};
use rp2040_hal::watchdog::Watchdog;
use static_cell::ConstStaticCell;
use trial::CLOCK_HZ;

const _: () = assert!(clock::HZ == CLOCK_HZ, "clock.rs sets another clock than the board's file says");

/// How long a step may take, and how long the firmware may wait elsewhere.
const WATCHDOG: MicrosDurationU32 = MicrosDurationU32::millis(8_000);

/// How often the alarm goes off.
const TICK: MicrosDurationU32 = MicrosDurationU32::millis(100);

/// Ticks between two runs.
const TICKS: usize = 10;

#[unsafe(link_section = ".boot2")]
#[used]
static BOOT2: [u8; 256] = rp2040_boot2::BOOT_LOADER_W25Q080;

static ARENA: ConstStaticCell<Arena> = ConstStaticCell::new(Arena::new());

/// The alarm went off; the interrupt says so, and `wait` takes it back.
static TICKED: AtomicBool = AtomicBool::new(false);

#[rp2040_hal::entry]
fn main() -> ! {
    let mut chip = pac::Peripherals::take().expect("nothing took them before");
    let mut watchdog = Watchdog::new(chip.WATCHDOG);
    let clocks = clock::start(chip.XOSC, chip.CLOCKS, chip.PLL_SYS, chip.PLL_USB, &mut chip.RESETS, &mut watchdog)
        .unwrap_or_else(|_| panic!("the clock does not start"));
    let sio = rp2040_hal::Sio::new(chip.SIO);
    let pins = Pins::new(chip.IO_BANK0, chip.PADS_BANK0, sio.gpio_bank0, &mut chip.RESETS);
    let uart =
        UartPeripheral::new(chip.UART0, (pins.gpio0.into_function(), pins.gpio1.into_function()), &mut chip.RESETS)
            .enable(UartConfig::new(115_200.Hz(), DataBits::Eight, None, StopBits::One), clocks.peripheral_clock.freq())
            .unwrap_or_else(|_| panic!("the UART does not take its configuration"));

    let mut timer = Timer::new(chip.TIMER, &mut chip.RESETS, &clocks);
    let mut alarm = timer.alarm_0().expect("nothing took it before");
    alarm.enable_interrupt();
    watchdog.pause_on_debug(true);
    watchdog.start(WATCHDOG);
    run(
        pins.gpio25.into_push_pull_output(),
        pins.gpio2.into_push_pull_output(),
        uart,
        Clockwork { timer, alarm, watchdog },
    )
}

/// What is left once the board is set up: any HAL's pins and serial line will do.
fn run(mut led: impl StatefulOutputPin, mut mark: impl OutputPin, mut serial: impl Write, mut clock: Clockwork) -> ! {
    let mut text: String<96> = String::new();
    let mut model = match trial::model(ARENA.take()) {
        Ok(model) => model,
        Err(refused) => loop {
            text.clear();
            let _ = write!(text, "the plan was refused: {refused:?}\r\n");
            let _ = serial.write_all(text.as_bytes());
            let _ = led.toggle();
            clock.wait();
        },
    };
    loop {
        trial::fill(&mut model);
        let start = clock.timer.get_counter();
        let _ = mark.set_high();
        trial::run(&mut model, &mut |_: &Done<'_>| clock.watchdog.feed());
        let _ = mark.set_low();
        let micros = (clock.timer.get_counter() - start).to_micros();
        text.clear();
        let difference = trial::difference(&model);
        // A line longer than the buffer is cut short, which none of these is.
        let _ = match difference {
            None => write!(text, "ok, {micros} us at {CLOCK_HZ} Hz\r\n"),
            Some(byte) => {
                write!(text, "output byte {} is {}, expected {}; {micros} us\r\n", byte.at, byte.found, byte.expected)
            }
        };
        let _ = serial.write_all(text.as_bytes());
        for _ in 0..TICKS {
            let _ = if difference.is_none() { led.set_high() } else { led.toggle() };
            clock.wait();
        }
    }
}

/// What tells the time.
struct Clockwork {
    timer: Timer,
    alarm: Alarm0,
    watchdog: Watchdog,
}

impl Clockwork {
    /// Sleeps for a [`TICK`].
    fn wait(&mut self) {
        self.watchdog.feed();
        if self.alarm.schedule(TICK).is_err() {
            return;
        }
        // SAFETY: no critical section is open that the interrupt would break into.
        unsafe { NVIC::unmask(interrupt::TIMER_IRQ_0) };
        while !TICKED.swap(false, Ordering::AcqRel) {
            // Not `wfi`: an interrupt just before it would be slept through, while `wfe` remembers that one came.
            cortex_m::asm::wfe();
        }
        self.alarm.clear_interrupt();
    }
}

#[interrupt]
fn TIMER_IRQ_0() {
    TICKED.store(true, Ordering::Release);
    // The alarm belongs to `wait`, which clears it; until then it would interrupt without end.
    NVIC::mask(interrupt::TIMER_IRQ_0);
}
