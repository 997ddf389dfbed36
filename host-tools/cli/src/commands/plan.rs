//! `kiln plan`.

use kiln_boards::Board;
use kiln_codegen::fit::{is_spread, options_for};
use kiln_codegen::whole_file;
use kiln_passes::Cleaned;
use kiln_planner::{Options, Planned};

use crate::args::PlanArgs;
use crate::console::{self, Style};
use crate::model::{ModelFile, Wanted, made_to_fit, place};
use crate::report::json::{AllBoards, FORMAT, Patches, PlanReport, to_text};
use crate::report::svg::svg;
use crate::report::{report, text};
use crate::{CliError, Outcome};

/// Plans a model for a board, or for all of them, and prints what it needs.
pub fn run(args: &PlanArgs) -> Result<Outcome, CliError> {
    let all = args.board == "all";
    if all && args.svg.is_some() {
        return Err(CliError::BadInput(
            "--svg draws the plan for one board: name the board instead of --board all".to_owned(),
        ));
    }
    let boards = if all { Board::all()? } else { vec![Board::load(&args.board)?] };
    let file = ModelFile::read(&args.model)?;
    let reports = reports(&file, &file.cleaned()?, &boards, args)?;
    let fits = if all { fits_any(&reports) } else { reports.iter().all(|r| r.fits) };
    match &reports[..] {
        [one] if !all => {
            if let Some(path) = &args.svg {
                whole_file::write(path, svg(one).as_bytes())?;
            }
            console::out(&if args.json { to_text(one)? } else { text::plan(one, Style::of_stdout()) })?;
            if !fits {
                return Err(CliError::Failed(format!("{}: {}", file.path.display(), text::shortage(one))));
            }
        }
        _ if args.json => {
            console::out(&to_text(&AllBoards { format: FORMAT, model: file.name.clone(), boards: reports })?)?;
        }
        _ => console::out(&text::boards(&file.name, &reports, Style::of_stdout()))?,
    }
    if fits {
        return Ok(Outcome::Fine);
    }
    Err(CliError::Failed(format!("{}: the model fits none of the boards", file.path.display())))
}

/// A report for each board.
fn reports(
    file: &ModelFile,
    cleaned: &Cleaned,
    boards: &[Board],
    args: &PlanArgs,
) -> Result<Vec<PlanReport>, CliError> {
    let Wanted { ram, feed } = Wanted { ram: args.ram, feed: args.feed };
    let mut plans: Vec<(Options, Planned)> = Vec::new();
    let mut reports = Vec::with_capacity(boards.len());
    for board in boards {
        let options = Options { shared_arena: args.shared_arena, ..options_for(board) };
        // Within `--ram` one region counts.
        let rooms = if ram.is_some() { Options::for_target(options.target).rooms } else { options.rooms };
        let options = Options { rooms, ..options };
        // A plan is the same for boards of one CPU family, unless it must be spread over their regions.
        let whole =
            |planned: &Planned| !is_spread(planned) && (rooms[0].bytes == 0 || planned.ram_bytes <= rooms[0].bytes);
        let same =
            |(of, planned): &&(Options, Planned)| of.target == options.target && (of.rooms == rooms || whole(planned));
        if !plans.iter().any(|plan| same(&plan)) {
            plans.push((options, file.plan(&cleaned.graph, &options)?));
        }
        if let Some((_, planned)) = plans.iter().find(same) {
            let plain = report(&file.name, planned, cleaned.removed, board, ram)?;
            let short = |&limit: &u64| feed || plain.ram.total > limit && !is_spread(planned);
            reports.push(match plain.ram.limit.filter(short) {
                Some(_) => {
                    let wanted = Wanted { ram: Some(made_to_fit(board, ram)), feed };
                    let placed = place(file, cleaned.graph.clone(), &options, wanted, board)?;
                    let mut report = report(&file.name, &placed.planned, cleaned.removed, board, ram)?;
                    report.ram.least = placed.least;
                    report.patches = placed.patches.map(Patches::from);
                    report
                }
                None => plain,
            });
        }
    }
    Ok(reports)
}

/// Whether some board fits whose memory is known: without `--ram`, everything fits the host.
fn fits_any(reports: &[PlanReport]) -> bool {
    reports.iter().any(|r| r.fits && r.ram.limit.is_some())
}
