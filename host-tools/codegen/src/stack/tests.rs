//! Decoders against encodings that an assembler made, and stacks of programs assembled here.

use super::deepest::Search;
use super::frame::Frames;
use super::image::{Image, ListedRow};
use super::instruction::{Flow, Instruction, Stack, Value};
use super::{StackError, aarch64, riscv, thumb};

/// What matters of an instruction: length, stack, flow, result.
type Expected = (u64, Stack, Flow, Option<(u8, Value)>);

const SAME: Stack = Stack::Same;
const NEXT: Flow = Flow::Next;

fn decodes(decode: fn(&[u8], u64) -> Option<Instruction>, address: u64, code: &[u8], text: &str, expected: Expected) {
    let (bytes, stack, flow, result) = expected;
    let (conditional, is_nop) = (if text.starts_with("itt") { 2 } else { 0 }, text.starts_with("nop"));
    let expected = Instruction { bytes, stack, flow, result, conditional, is_nop };
    assert_eq!(decode(code, address), Some(expected), "{text}");
    assert_eq!(decode(&code[..code.len() - 1], address), None, "{text}, cut short");
}

#[test]
fn thumb_instructions_that_move_the_stack_pointer() {
    let moved = |bytes: u64, by: i64| (bytes, Stack::Move(by), NEXT, None);
    let cases: &[(&[u8], &str, Expected)] = &[
        (&[0x90, 0xb5], "push {r4, r7, lr}", moved(2, -12)),
        (&[0x90, 0xbd], "pop {r4, r7, pc}", (2, Stack::Move(12), Flow::Return, None)),
        (&[0xff, 0xb0], "sub sp, #508", moved(2, -508)),
        (&[0x7f, 0xb0], "add sp, #508", moved(2, 508)),
        (&[0xa5, 0x44], "add sp, r4", (2, Stack::Add(4), NEXT, None)),
        (&[0xb5, 0x46], "mov sp, r6", (2, Stack::Set(6, 0), NEXT, None)),
        (&[0x2d, 0xe9, 0x10, 0x41], "push.w {r4, r8, lr}", moved(4, -12)),
        (&[0xbd, 0xe8, 0x10, 0x81], "pop.w {r4, r8, pc}", (4, Stack::Move(12), Flow::Return, None)),
        (&[0x4d, 0xf8, 0x04, 0x4d], "str r4, [sp, #-4]!", moved(4, -4)),
        (&[0x5d, 0xf8, 0x04, 0x4b], "ldr r4, [sp], #4", moved(4, 4)),
        (&[0x5d, 0xf8, 0x04, 0xfb], "ldr pc, [sp], #4", (4, Stack::Move(4), Flow::Return, None)),
        (&[0xad, 0xf5, 0x4b, 0x7d], "sub.w sp, sp, #812", moved(4, -812)),
        (&[0x0d, 0xf5, 0x80, 0x5d], "add.w sp, sp, #4096", moved(4, 4096)),
        (&[0xad, 0xf6, 0xff, 0x7d], "subw sp, sp, #4095", moved(4, -4095)),
        (&[0xad, 0xeb, 0x04, 0x0d], "sub.w sp, sp, r4", (4, Stack::Sub(4), NEXT, None)),
        (&[0x2d, 0xed, 0x04, 0x8b], "vpush {d8, d9}", moved(4, -16)),
        (&[0xbd, 0xec, 0x01, 0x8a], "vpop {s16}", moved(4, 4)),
        (&[0x6d, 0xe9, 0x02, 0x45], "strd r4, r5, [sp, #-8]!", moved(4, -8)),
        (&[0xfd, 0xe8, 0x02, 0x45], "ldrd r4, r5, [sp], #8", moved(4, 8)),
        (&[0x80, 0xf3, 0x08, 0x88], "msr msp, r0", (4, Stack::Other, NEXT, None)),
        (&[0x9d, 0xe8, 0x03, 0x00], "ldm.w sp, {r0, r1}", (4, SAME, NEXT, None)),
        (&[0x8d, 0xe8, 0x0b, 0x00], "stm.w sp, {r0, r1, r3}", (4, SAME, NEXT, None)),
        (&[0xb1, 0xec, 0x04, 0x1f], "vldrw.u32 q0, [r1], #16", (4, SAME, NEXT, None)),
        (&[0xbd, 0xec, 0x04, 0x1f], "the same from sp, which has no such form", (4, Stack::Other, NEXT, None)),
    ];
    for (code, text, expected) in cases {
        decodes(thumb::decode, 0x100, code, text, *expected);
    }
}

#[test]
fn thumb_instructions_that_leave_the_line_or_make_constants() {
    let flows = |bytes: u64, flow: Flow| (bytes, SAME, flow, None);
    let makes = |bytes: u64, register: u8, value: Value| (bytes, SAME, NEXT, Some((register, value)));
    let cases: &[(u64, &[u8], &str, Expected)] = &[
        (0x10, &[0x70, 0x47], "bx lr", flows(2, Flow::Return)),
        (0x12, &[0x18, 0x47], "bx r3", flows(2, Flow::TailRegister(3))),
        (0x14, &[0x98, 0x47], "blx r3", flows(2, Flow::CallRegister(3))),
        (0x18, &[0xfe, 0xd0], "beq 0x18", flows(2, Flow::Branch(0x18))),
        (0x1a, &[0xfd, 0xe7], "b 0x18", flows(2, Flow::Jump(0x18))),
        (0x1c, &[0x1c, 0xbf], "itt ne", flows(2, NEXT)),
        (0x20, &[0x08, 0xb1], "cbz r0, 0x26", flows(2, Flow::Branch(0x26))),
        (0x62, &[0xdf, 0xe8, 0x00, 0xf0], "tbb [pc, r0]", flows(4, Flow::Table)),
        (0x66, &[0xdf, 0xe8, 0x10, 0xf0], "tbh [pc, r0, lsl #1]", flows(4, Flow::Table)),
        (0x6a, &[0xff, 0xf7, 0xd5, 0xff], "bl 0x18", flows(4, Flow::Call(0x18))),
        (0x6e, &[0xff, 0xf7, 0xd3, 0xbf], "b.w 0x18", flows(4, Flow::Jump(0x18))),
        (0x72, &[0x3f, 0xf4, 0xd1, 0xaf], "beq.w 0x18", flows(4, Flow::Branch(0x18))),
        (0x7a, &[0x8f, 0x44], "add pc, r1", flows(2, Flow::Table)),
        (0x7a, &[0x8f, 0x46], "mov pc, r1", flows(2, Flow::JumpRegister(1))),
        (0x7c, &[0xc0, 0x46], "nop, as Armv6-M has it: mov r8, r8", flows(2, NEXT)),
        (0x7e, &[0xc8, 0x46], "mov r8, r9", flows(2, NEXT)),
        (0x80, &[0x00, 0xbf], "nop", flows(2, NEXT)),
        (0x82, &[0x10, 0xbf], "yield", flows(2, NEXT)),
        (0x80, &[0xaf, 0xf3, 0x00, 0x80], "nop.w", flows(4, NEXT)),
        (0x84, &[0x00, 0xde], "udf #0", flows(2, Flow::Trap)),
        (0x86, &[0xf0, 0xf7, 0x00, 0xa0], "udf.w #0", flows(4, Flow::Trap)),
        (0x8e, &[0x0f, 0xf0, 0x3d, 0xc8], "le lr, 0x18", flows(4, Flow::Branch(0x18))),
        (0x92, &[0x40, 0xf0, 0x01, 0xc0], "wls lr, r0, 0x96", flows(4, Flow::Branch(0x96))),
        (0x96, &[0x41, 0xf0, 0x01, 0xe0], "dls lr, r1", flows(4, NEXT)),
        (0xa2, &[0xb0, 0xe8, 0x02, 0x80], "ldm.w r0!, {r1, pc}", flows(4, Flow::JumpRegister(15))),
        (0x0c, &[0x6f, 0x46], "mov r7, sp", makes(2, 7, Value::Stack(0))),
        (0x0e, &[0x03, 0xaf], "add r7, sp, #12", makes(2, 7, Value::Stack(12))),
        (0x22, &[0xfe, 0x1f], "subs r6, r7, #7", makes(2, 6, Value::Plus(7, -7))),
        (0x24, &[0x05, 0x3e], "subs r6, #5", makes(2, 6, Value::Plus(6, -5))),
        (0x46, &[0xa7, 0xf1, 0x18, 0x04], "sub.w r4, r7, #24", makes(4, 4, Value::Plus(7, -24))),
        (0x4a, &[0x0d, 0xf1, 0x78, 0x0b], "add.w r11, sp, #120", makes(4, 11, Value::Stack(120))),
        (0x76, &[0x41, 0xf2, 0x34, 0x24], "movw r4, #0x1234", makes(4, 4, Value::Number(0x1234))),
        (0x7a, &[0xc5, 0xf2, 0x78, 0x64], "movt r4, #0x5678", makes(4, 4, Value::Upper(0x5678))),
        (0x7e, &[0x02, 0x4b], "ldr r3, [pc, #8]", makes(2, 3, Value::Word(0x88))),
        (0x80, &[0x5f, 0xf8, 0x08, 0x30], "ldr.w r3, [pc, #-8]", makes(4, 3, Value::Word(0x7c))),
    ];
    for (address, code, text, expected) in cases {
        decodes(thumb::decode, *address, code, text, *expected);
    }
}

#[test]
fn risc_v_instructions() {
    let moved = |bytes: u64, by: i64| (bytes, Stack::Move(by), NEXT, None);
    let flows = |bytes: u64, flow: Flow| (bytes, SAME, flow, None);
    let makes = |bytes: u64, register: u8, value: Value| (bytes, SAME, NEXT, Some((register, value)));
    let other = |bytes: u64| (bytes, Stack::Other, NEXT, None);
    let cases: &[(u64, &[u8], &str, Expected)] = &[
        (0x00, &[0x01, 0x11], "c.addi sp, -32", moved(2, -32)),
        (0x02, &[0x01, 0x71], "c.addi16sp sp, -512", moved(2, -512)),
        (0x04, &[0x13, 0x01, 0x01, 0x80], "addi sp, sp, -2048", moved(4, -2048)),
        (0x08, &[0x80, 0x00], "c.addi4spn s0, sp, 64", makes(2, 8, Value::Stack(64))),
        (0x0c, &[0x13, 0x01, 0x04, 0xfc], "addi sp, s0, -64", (4, Stack::Set(8, -64), NEXT, None)),
        (0x10, &[0x2a, 0x81], "c.mv sp, a0", (2, Stack::Set(10, 0), NEXT, None)),
        (0x12, &[0x33, 0x01, 0x51, 0x40], "sub sp, sp, t0", (4, Stack::Sub(5), NEXT, None)),
        (0x16, &[0x16, 0x91], "c.add sp, t0", (2, Stack::Add(5), NEXT, None)),
        (0x18, &[0x85, 0x62], "c.lui t0, 1", makes(2, 5, Value::Number(0x1000))),
        (0x1a, &[0xc1, 0x12], "c.addi t0, -16", makes(2, 5, Value::Plus(5, -16))),
        (0x1c, &[0x95, 0x42], "c.li t0, 5", makes(2, 5, Value::Number(5))),
        (0x20, &[0x21, 0x20], "c.jal 0x28", flows(2, Flow::Call(0x28))),
        (0x26, &[0xe5, 0xbf], "c.j 0x1e", flows(2, Flow::Jump(0x1e))),
        (0x28, &[0x97, 0x00, 0x00, 0x00], "auipc ra, 0", makes(4, 1, Value::Number(0x28))),
        (
            0x2c,
            &[0xe7, 0x80, 0x40, 0x01],
            "jalr ra, 20(ra)",
            (4, SAME, Flow::CallRegister(1), Some((1, Value::Plus(1, 20)))),
        ),
        (0x30, &[0x82, 0x80], "ret", flows(2, Flow::Return)),
        (0x32, &[0x02, 0x85], "c.jr a0", flows(2, Flow::JumpRegister(10))),
        (0x34, &[0x82, 0x97], "c.jalr a5", flows(2, Flow::CallRegister(15))),
        (0x36, &[0x01, 0xc5], "c.beqz a0, 0x3e", flows(2, Flow::Branch(0x3e))),
        (0x38, &[0xe3, 0x1c, 0xb5, 0xfe], "bne a0, a1, 0x30", flows(4, Flow::Branch(0x30))),
        (0x3c, &[0x03, 0x21, 0x05, 0x00], "lw sp, 0(a0)", other(4)),
        (0x40, &[0x02, 0x41], "c.lwsp sp, 0(sp)", other(2)),
        (0x42, &[0x06, 0xc0], "c.swsp ra, 0(sp)", flows(2, NEXT)),
        (0x44, &[0x02, 0x90], "c.ebreak", flows(2, NEXT)),
        (0x48, &[0x00, 0x00], "c.unimp", flows(2, Flow::Trap)),
        (0x48, &[0x01, 0x00], "nop, compressed", flows(2, NEXT)),
        (0x48, &[0x13, 0x00, 0x00, 0x00], "nop", flows(4, NEXT)),
        (0x4a, &[0x73, 0x00, 0x20, 0x30], "mret", flows(4, Flow::Return)),
        (0x4e, &[0x73, 0x11, 0x01, 0x34], "csrrw sp, mscratch, sp", other(4)),
    ];
    for (address, code, text, expected) in cases {
        decodes(riscv::decode, *address, code, text, *expected);
    }
}

#[test]
fn a64_instructions() {
    let moved = |by: i64| (4, Stack::Move(by), NEXT, None);
    let flows = |flow: Flow| (4, SAME, flow, None);
    let cases: &[(u32, &str, Expected)] = &[
        (0xd10303ff, "sub sp, sp, #192", moved(-192)),
        (0xd14007ff, "sub sp, sp, #1, lsl #12", moved(-4096)),
        (0x910043ff, "add sp, sp, #16", moved(16)),
        (0x910183fd, "add x29, sp, #96", (4, SAME, NEXT, Some((29, Value::Stack(96))))),
        (0x910003bf, "mov sp, x29", (4, Stack::Set(29, 0), NEXT, None)),
        (0xd10043bf, "sub sp, x29, #16", (4, Stack::Set(29, -16), NEXT, None)),
        (0xa9be7bfd, "stp x29, x30, [sp, #-32]!", moved(-32)),
        (0xa8c27bfd, "ldp x29, x30, [sp], #32", moved(32)),
        (0x6dbf23e9, "stp d9, d8, [sp, #-16]!", moved(-16)),
        (0xadbf07e0, "stp q0, q1, [sp, #-32]!", moved(-32)),
        (0xa9067bfd, "stp x29, x30, [sp, #96]", flows(NEXT)),
        (0xf81f0ff3, "str x19, [sp, #-16]!", moved(-16)),
        (0xf84107f3, "ldr x19, [sp], #16", moved(16)),
        (0x94000002, "bl 0x108", flows(Flow::Call(0x108))),
        (0x14000002, "b 0x108", flows(Flow::Jump(0x108))),
        (0x54000041, "b.ne 0x108", flows(Flow::Branch(0x108))),
        (0xb4000040, "cbz x0, 0x108", flows(Flow::Branch(0x108))),
        (0x37180040, "tbnz w0, #3, 0x108", flows(Flow::Branch(0x108))),
        (0xd61f0020, "br x1", flows(Flow::JumpRegister(1))),
        (0xd63f0020, "blr x1", flows(Flow::CallRegister(1))),
        (0xd65f03c0, "ret", flows(Flow::Return)),
        (0xd503201f, "nop", flows(NEXT)),
        (0xd503203f, "yield", flows(NEXT)),
        (0xd4200020, "brk #1", flows(Flow::Trap)),
        (0x927be93f, "and sp, x9, #-32", (4, Stack::Other, NEXT, None)),
        (0xcb2863ff, "sub sp, sp, x8", (4, Stack::Other, NEXT, None)),
        (0xf100041f, "cmp x0, #1", flows(NEXT)),
    ];
    for (word, text, expected) in cases {
        decodes(aarch64::decode, 0x100, &word.to_le_bytes(), text, *expected);
    }
}

/// An image of Thumb functions, one every 32 bytes from 0 on.
fn image(functions: &[(&str, &[u16])]) -> Image {
    let code = functions.iter().flat_map(|(_, code)| {
        let nops = std::iter::repeat_n(&0xbf00, 16 - code.len());
        code.iter().chain(nops).flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>()
    });
    let named = functions.iter().zip(0..).map(|((name, code), index)| (*name, index * 32, code.len() as u64 * 2));
    Image::of(thumb::decode, 7, code.collect(), named)
}

fn deepest(image: &Image) -> Result<(u64, String), StackError> {
    Search::new(&mut Frames::new(image), true).deepest(0).map(|deepest| (deepest.bytes, deepest.to_string()))
}

/// `bl` from an address to another.
fn bl(from: u32, to: u32) -> [u16; 2] {
    let offset = to.wrapping_sub(from + 4);
    [0xf000 | (offset >> 12 & 0x3ff) as u16 | (offset >> 14 & 0x400) as u16, 0xf800 | (offset >> 1 & 0x7ff) as u16]
}

const PUSH: u16 = 0xb500; // push {lr}
const POP: u16 = 0xbd00; // pop {pc}
const RETURN: u16 = 0x4770; // bx lr

#[test]
fn the_deeper_of_two_paths_counts_and_a_tail_call_has_given_its_frame_back() {
    let ([a, b], [c, d]) = (bl(2, 32), bl(6, 64));
    let image = image(&[
        // Pops before it goes on to `tail`.
        ("x::root", &[PUSH, a, b, c, d, 0xf85d, 0xeb04, 0xf000, 0xb827]),
        ("x::small", &[PUSH, POP]),
        ("x::large", &[PUSH, 0xb084, 0xb004, POP]),
        ("x::tail", &[PUSH, 0xb085, 0xb005, POP]),
    ]);
    let (bytes, path) = deepest(&image).unwrap();
    assert_eq!((bytes, path.as_str()), (24, "x::root 4 → x::large 20"));
}

#[test]
fn calls_before_the_frame_and_paths_that_never_return_count_as_they_are() {
    // cbz r0 leads around the frame and a call that ends the program.
    let [a, b] = bl(4, 32);
    let image = image(&[("x::root", &[0xb110, PUSH, a, b, RETURN]), ("x::exit", &[0xb083, 0xe7fe])]);
    assert_eq!(deepest(&image).unwrap(), (16, "x::root 4 → x::exit 12".to_owned()));
}

#[test]
fn recursion_names_the_circle() {
    let ([a, b], [c, d]) = (bl(2, 32), bl(34, 0));
    let image = image(&[("x::even", &[PUSH, a, b, POP]), ("x::odd", &[PUSH, c, d, POP])]);
    let message = deepest(&image).unwrap_err().to_string();
    assert!(message.ends_with("x::even → x::odd → x::even"), "{message}");
}

#[test]
fn pointers_lead_to_listed_kernels_and_only_from_the_executor() {
    let call: &[u16] = &[PUSH, 0x4798, POP];
    let kernel: &[u16] = &[PUSH, 0xb08f, 0xb00f, POP];
    let mut image = image(&[("kiln_core::session::run", call), ("k::check", &[RETURN]), ("k::run", kernel)]);
    // Nothing is listed: it can lead anywhere.
    assert!(matches!(deepest(&image), Err(StackError::Unknown { .. })));
    image.rows = vec![ListedRow { check: 32, run: 64 }];
    assert_eq!(deepest(&image).unwrap().0, 4 + 64);
    let only_checks = Search::new(&mut Frames::new(&image), false).deepest(0).unwrap();
    assert_eq!(only_checks.bytes, 4);
    let mut image = self::image(&[("k::run", call), ("k::check", &[RETURN])]);
    image.rows = vec![ListedRow { check: 32, run: 0 }];
    let message = deepest(&image).unwrap_err().to_string();
    assert!(message.starts_with("k::run calls through a pointer at 0x2"), "{message}");
}

#[test]
fn a_frame_pointer_restores_and_a_computed_amount_is_refused() {
    // push {r7, lr}; mov r7, sp; sub sp, #400; mov sp, r7; pop {r7, pc}
    let restored: &[u16] = &[0xb580, 0x466f, 0xb0e4, 0x46bd, 0xbd80];
    assert_eq!(deepest(&image(&[("x::root", restored)])).unwrap().0, 408);
    // mov sp, r4, of which nothing is known; and a loop that pushes.
    for code in [&[PUSH, 0x46a5, POP][..], &[PUSH, 0xe7fd]] {
        assert!(matches!(deepest(&image(&[("x::root", code)])), Err(StackError::Dynamic { .. })));
    }
}

#[test]
fn an_epilogue_on_a_condition_gives_nothing_back_to_what_follows() {
    let [a, b] = bl(10, 32);
    // push {lr}; sub sp, #16; itt ne; addne sp, #16; popne {pc}; bl large; add sp, #16; pop {pc}
    let root = [PUSH, 0xb084, 0xbf1c, 0xb004, POP, a, b, 0xb004, POP];
    let image = image(&[("x::root", &root), ("x::large", &[PUSH, 0xb084, 0xb004, POP])]);
    let (bytes, path) = deepest(&image).unwrap();
    assert_eq!((bytes, path.as_str()), (40, "x::root 20 → x::large 20"));
    // A push on a condition is still refused: pushne {lr} under IT.
    let pushed = [PUSH, 0xbf18, PUSH, POP];
    assert!(matches!(deepest(&self::image(&[("x::root", &pushed)])), Err(StackError::Dynamic { .. })));
}

#[test]
fn large_frames_come_from_constants() {
    // ldr r4, [pc, #4]; add sp, r4; b .+4 over the word; -1024; then mov sp, r7 is not needed: the function traps.
    let code: &[u16] = &[0x4c01, 0x44a5, 0xde00, 0xbf00, 0xfc00, 0xffff];
    assert_eq!(deepest(&image(&[("x::root", code)])).unwrap().0, 1024);
}

#[test]
fn the_targets_of_a_jump_table_are_walked() {
    let [a, b] = bl(12, 32);
    // push {lr}; tbb [pc, r0]; two bytes of table; udf; then two cases, one of which calls.
    let code: &[u16] = &[PUSH, 0xe8df, 0xf000, 0x0301, 0xde00, POP, a, b, POP];
    let mut image = image(&[("x::root", code), ("x::case", &[0xb090, 0xde00])]);
    image.mark(6, false);
    image.mark(8, true);
    assert_eq!(deepest(&image).unwrap(), (4 + 64, "x::root 4 → x::case 64".to_owned()));
}

#[test]
fn a_table_of_armv6_m_does_not_lead_to_what_aligns_constants() {
    let [a, b] = bl(12, 32);
    let before_constant = |gap: u16| {
        // push {lr}; add pc, r1; a table of two halfwords; then two cases, one of which calls; the gap; a constant.
        let code: &[u16] = &[PUSH, 0x448f, 0x0001, 0x0002, 0x46c0, POP, a, b, POP, gap, 0xffff, 0x4eff];
        let mut image = image(&[("x::root", code), ("x::case", &[0xb090, 0xde00])]);
        for (address, is_code) in [(4, false), (8, true), (20, false), (24, true)] {
            image.mark(address, is_code);
        }
        deepest(&image)
    };
    assert_eq!(before_constant(0x46c0).unwrap(), (4 + 64, "x::root 4 → x::case 64".to_owned()));
    // movs r0, #0 may be a case, and runs on into the constant.
    assert!(matches!(before_constant(0x2000), Err(StackError::NoCode { address: 20, .. })));
}

#[test]
fn a_table_whose_targets_are_all_reached_otherwise_does_not_leave_the_function() {
    // cbz r0 over a table jump with two bytes of table, to its only target; then the same by a register's value.
    let mut image = image(&[("x::root", &[PUSH, 0xb110, 0xe8df, 0xf000, 0x0101, POP])]);
    image.mark(8, false);
    image.mark(10, true);
    assert_eq!(deepest(&image).unwrap().0, 4);
    let anywhere = self::image(&[("x::root", &[PUSH, 0xb100, 0x4687, POP])]);
    assert!(matches!(deepest(&anywhere), Err(StackError::Unknown { address: 4, .. })));
}

#[test]
fn a_call_into_the_middle_of_the_function_itself_is_a_far_jump() {
    let ([a, b], [c, d]) = (bl(2, 10), bl(10, 32));
    // push {lr}; bl over a constant to a call and the end.
    let code: &[u16] = &[PUSH, a, b, 0xffff, 0x4eff, c, d, POP];
    let mut image = image(&[("x::root", code), ("x::case", &[0xb090, 0xb010, RETURN])]);
    image.mark(6, false);
    image.mark(10, true);
    assert_eq!(deepest(&image).unwrap(), (4 + 64, "x::root 4 → x::case 64".to_owned()));
    // To its start it is recursion.
    let [a, b] = bl(2, 0);
    let recursive = self::image(&[("x::root", &[PUSH, a, b, POP])]);
    assert!(matches!(deepest(&recursive), Err(StackError::Recursion { .. })));
}

#[test]
fn damage_is_told() {
    let [a, b] = bl(2, 0x400);
    let outside = image(&[("x::root", &[PUSH, a, b, POP])]);
    assert!(matches!(deepest(&outside), Err(StackError::NoFunction { address: 0x400 })));
    let unfinished = image(&[("x::root", &[PUSH, 0xbf00])]);
    assert!(matches!(deepest(&unfinished), Err(StackError::NoCode { address: 4, .. })));
    assert!(matches!(super::stack("no/such.elf".as_ref()), Err(StackError::Elf(_))));
}
