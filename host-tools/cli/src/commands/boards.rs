//! `kiln boards`.

use kiln_boards::{Board, MemoryKind, Run};

use crate::console::{self, Style};
use crate::report::table::{self, Align, Table};
use crate::{CliError, Outcome};

/// The table's width with every name in full: cutting them would not make it fit 80 columns either.
const WIDTH: usize = 110;

/// Prints every board that is built in.
pub fn run() -> Result<Outcome, CliError> {
    console::out(&list(&Board::all()?, Style::of_stdout()))?;
    Ok(Outcome::Fine)
}

fn list(boards: &[Board], style: Style) -> String {
    let columns = [
        ("board", Align::Left),
        ("chip", Align::Left),
        ("CPU", Align::Left),
        ("CPU family", Align::Left),
        ("flash", Align::Right),
        ("RAM", Align::Right),
        ("MHz", Align::Right),
        ("runs", Align::Left),
    ];
    let mut table = Table::new(&columns, 1);
    for board in boards {
        table.row([
            board.name.clone(),
            board.chip.clone(),
            board.cpu.clone(),
            kiln_codegen::target_of(board).name().unwrap_or("?").to_owned(),
            memory(board, MemoryKind::Flash),
            memory(board, MemoryKind::Ram),
            board.clock_hz.map_or(String::new(), megahertz),
            match &board.run {
                Run::Host {} => "here",
                Run::Qemu { .. } | Run::QemuUser { .. } => "QEMU",
                Run::ProbeRs { .. } => "probe-rs",
                Run::Uf2 { .. } => "UF2 file",
                Run::Espflash { .. } => "espflash",
                Run::Bossac {} => "bossac",
                Run::Linux {} => "Linux",
            }
            .to_owned(),
        ]);
    }
    table.render(style.width.max(WIDTH))
}

/// Bytes of the board's main region of a kind, which is the one that plans use.
fn memory(board: &Board, kind: MemoryKind) -> String {
    board.regions(kind).next().map_or(String::new(), |region| table::memory(region.bytes))
}

/// Clocks are whole megahertz or a few decimals of one.
fn megahertz(hertz: u64) -> String {
    let text = format!("{}.{:06}", hertz / 1_000_000, hertz % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn clocks_in_megahertz() {
        assert_eq!(super::megahertz(25_000_000), "25");
        assert_eq!(super::megahertz(16_384_000), "16.384");
        assert_eq!(super::megahertz(100_000_000), "100");
    }
}
