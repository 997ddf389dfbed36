//! What QEMU calls, and what of QEMU is called: its plugin interface as `qemu-plugin.h` describes it, of which only
//! functions are used that have been the same since QEMU 7.1.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use crate::counter::{Begins, Block, Counter};
use crate::options::Options;

/// `QEMU_PLUGIN_CB_NO_REGS`.
const NO_REGISTERS: c_uint = 0;
/// `QEMU_PLUGIN_MEM_RW`. A filter for reads or writes alone does not work in every version.
const READS_AND_WRITES: c_uint = 3;

/// `struct qemu_plugin_tb`: a block being translated.
#[repr(C)]
struct TranslatedBlock {
    opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`: one of its instructions.
#[repr(C)]
struct Instruction {
    opaque: [u8; 0],
}

type OnTranslation = extern "C" fn(u64, *mut TranslatedBlock);
type OnBlock = extern "C" fn(c_uint, *mut c_void);
type OnAccess = extern "C" fn(c_uint, u32, u64, *mut c_void);

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: OnTranslation);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut TranslatedBlock,
        callback: OnBlock,
        registers: c_uint,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: OnAccess,
        registers: c_uint,
        which: c_uint,
        data: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(block: *const TranslatedBlock) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const TranslatedBlock, index: usize) -> *mut Instruction;
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    fn qemu_plugin_mem_is_store(info: u32) -> bool;
    fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    fn qemu_plugin_start_code() -> u64;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The version of the interface that the plugin says it was made for. QEMU up to 8 accepts 1, later ones ask for
/// 2 or more; what is used here is the same in both.
#[unsafe(export_name = "qemu_plugin_version")]
static VERSION: AtomicI32 = AtomicI32::new(1);

/// Runs when QEMU loads the plugin, before it looks at [`VERSION`].
// SAFETY: the section holds addresses of functions of this type, which the loader calls once.
#[used]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static ON_LOAD: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    /// `RTLD_DEFAULT`: among everything that is loaded.
    const EVERYWHERE: isize = if cfg!(target_vendor = "apple") { -2 } else { 0 };
    // SAFETY: the name ends in NUL; a symbol's address is looked up and not used.
    let since_2 = unsafe { dlsym(EVERYWHERE as *mut c_void, c"qemu_plugin_scoreboard_new".as_ptr()) };
    if !since_2.is_null() {
        VERSION.store(2, Relaxed);
    }
}

/// Set once, before anything is translated.
static PLUGIN: OnceLock<(Options, Counter<File>)> = OnceLock::new();

/// Called by QEMU once, with the arguments; anything but 0 makes it end with an error.
///
/// # Safety
///
/// `arguments` are `count` addresses of strings that end in NUL, as QEMU gives them.
#[unsafe(export_name = "qemu_plugin_install")]
unsafe extern "C" fn install(id: u64, _info: *const c_void, count: c_int, arguments: *const *const c_char) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: there are so many, and their strings live while this function runs.
    let texts = (0..count).map(|index| unsafe { CStr::from_ptr(*arguments.add(index)) }.to_string_lossy());
    let texts: Vec<_> = texts.collect();
    let prepared = Options::parse(texts.iter().map(|text| text.as_ref())).and_then(|options| {
        let file = File::create(&options.out).map_err(|e| format!("cannot make {}: {e}", options.out.display()))?;
        Ok((options, Counter::new(file)))
    });
    let plugin = match prepared {
        Ok(plugin) => plugin,
        Err(message) => {
            eprintln!("kiln-qemu-plugin: {message}");
            return 1;
        }
    };
    if PLUGIN.set(plugin).is_err() {
        eprintln!("kiln-qemu-plugin: loaded twice");
        return 1;
    }
    // SAFETY: the id is this plugin's, and the callback is as the interface wants it.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation) };
    0
}

extern "C" fn on_translation(_id: u64, translated: *mut TranslatedBlock) {
    let Some((options, _)) = PLUGIN.get() else { return };
    // SAFETY: QEMU lends the block for this call; what is asked and registered belongs to it, and the
    // callbacks' data, which is leaked, lives as long as the translation might.
    unsafe {
        let count = qemu_plugin_tb_n_insns(translated);
        let instruction = |index| qemu_plugin_tb_get_insn(translated, index);
        let Some(last) = count.checked_sub(1).map(instruction) else { return };
        let start = qemu_plugin_insn_vaddr(instruction(0));
        let end = qemu_plugin_insn_vaddr(last).wrapping_add(qemu_plugin_insn_size(last) as u64);
        let moved = options.code.map_or(0, |code| qemu_plugin_start_code().wrapping_sub(code));
        let address = start.wrapping_sub(moved);
        let begins = match address {
            address if address == options.run => Begins::Run,
            address if options.rows.contains(&address) => Begins::Row,
            _ => Begins::Nothing,
        };
        let end = end.wrapping_sub(moved);
        let block = Box::new(Block { start: address, end, instructions: count as u64, begins });
        qemu_plugin_register_vcpu_tb_exec_cb(translated, on_block, NO_REGISTERS, Box::into_raw(block).cast());
        for index in 0..count {
            let instruction = instruction(index);
            qemu_plugin_register_vcpu_mem_cb(
                instruction,
                on_access,
                NO_REGISTERS,
                READS_AND_WRITES,
                std::ptr::null_mut(),
            );
        }
    }
}

extern "C" fn on_block(_cpu: c_uint, data: *mut c_void) {
    let Some((_, counter)) = PLUGIN.get() else { return };
    // SAFETY: the data of this callback is a `Block` that `on_translation` leaked, and nobody writes it.
    counter.block(unsafe { &*data.cast::<Block>() });
}

extern "C" fn on_access(_cpu: c_uint, info: u32, _address: u64, _data: *mut c_void) {
    let Some((options, counter)) = PLUGIN.get() else { return };
    // SAFETY: `info` is QEMU's own description of this access.
    let (store, shift) = unsafe { (qemu_plugin_mem_is_store(info), qemu_plugin_mem_size_shift(info)) };
    counter.access(store, ((1u64 << shift) / options.word).max(1));
}
