//! Random graphs whose arena is spread over several banks: the same bits, in the room that each has.

use kiln_core::MAX_BANKS;
use kiln_planner::{Options, Planned, Room, plan};
use kiln_target_host::Runner;

use crate::check::no_overlap_unproven;
use crate::generate::any_graph;
use crate::support::{Random, options};

const GRAPHS: u64 = if cfg!(miri) { 2 } else { 150 };

/// Rooms of so many bytes, `fast` or not.
fn rooms(of: &[(u64, bool)]) -> [Room; MAX_BANKS] {
    let mut rooms = [Room::default(); MAX_BANKS];
    rooms.iter_mut().zip(of).for_each(|(to, &(bytes, fast))| *to = Room { bytes, free: bytes, fast });
    rooms
}

#[test]
fn plans_over_several_banks_compute_the_same_bits() {
    let (mut spread, mut banks) = (0, [0; MAX_BANKS]);
    for seed in 0..GRAPHS {
        let graph = any_graph(seed, 14);
        let options = options(seed % 3 > 0);
        let plain = plan(&graph, &options).unwrap();
        let (state, all) = (plain.state_bytes.next_multiple_of(16), plain.ram_bytes);
        let part = |parts: u64| state + (all - state.min(all)) / parts;
        let choices = [
            vec![(part(2), true), (4 * all, false)],
            vec![(part(2), false), (part(3), true), (4 * all, false)],
            vec![(part(4), true), (part(4), true), (part(4), true), (4 * all, true)],
            vec![(all, false), (4 * all, true)],
        ];
        for (number, choice) in choices.iter().enumerate() {
            let several = plan(&graph, &Options { rooms: rooms(choice), ..options }).unwrap();
            if number == 3 {
                assert!(several.bytes == plain.bytes, "seed {seed}: what fits the first bank stays there");
                continue;
            }
            if all > choice[0].0 {
                assert!(several.bytes != plain.bytes, "seed {seed}: it does not fit the first bank");
                spread += 1;
            }
            for (bank, (&bytes, room)) in several.banks.iter().zip(choice).enumerate() {
                assert!(bytes <= room.0, "seed {seed}: bank {bank} of {choice:?}");
                banks[bank] += usize::from(bytes > 0);
            }
            assert_eq!(several.ram_bytes, several.banks.iter().sum::<u64>(), "seed {seed}");
            no_overlap_unproven(&graph, &several);
            let mut runners = [&plain, &several].map(|planned: &Planned| Runner::new(&planned.bytes).unwrap());
            runners.iter_mut().for_each(Runner::reset);
            let mut random = Random::new(!seed);
            for _ in 0..2 {
                for entry in &graph.entries {
                    let inputs: Vec<Vec<u8>> =
                        entry.inputs.iter().map(|&id| random.elements(&graph.value(id).ty)).collect();
                    let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
                    let [a, b] = runners.each_mut().map(|runner| runner.run(&entry.name, &slices).unwrap());
                    assert!(a == b, "seed {seed}: other bits over {choice:?}\n{graph:#?}");
                }
            }
        }
    }
    println!("{spread} plans spread, over banks {banks:?}");
    assert!(cfg!(miri) || (spread > 100 && banks.iter().all(|&used| used > 50)));
}

#[test]
fn what_no_bank_has_room_for_is_planned_as_for_one() {
    for seed in 0..20 {
        let graph = any_graph(seed, 14);
        let options = options(true);
        let plain = plan(&graph, &options).unwrap();
        if plain.arena_bytes < 64 {
            continue;
        }
        for small in [rooms(&[(8, true), (8, true)]), rooms(&[(8, true)])] {
            assert!(plan(&graph, &Options { rooms: small, ..options }).unwrap().bytes == plain.bytes, "seed {seed}");
        }
    }
}
