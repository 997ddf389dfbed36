//! Which CPU family a plan was made for.

/// The CPU family of a plan: a number in the plan's header. Numbers are never reused, and numbers
/// unknown to a build are simply not its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(transparent)]
pub struct TargetId(pub u32);

impl TargetId {
    /// Portable bodies only: runs anywhere.
    pub const PORTABLE: TargetId = TargetId(1);
    /// Armv6-M: Cortex-M0, M0+.
    pub const ARMV6M: TargetId = TargetId(16);
    /// Armv7-M: Cortex-M3.
    pub const ARMV7M: TargetId = TargetId(17);
    /// Armv7E-M with the DSP extension: Cortex-M4, M7.
    pub const ARMV7EM: TargetId = TargetId(18);
    /// Armv8-M mainline with the DSP extension: Cortex-M33.
    pub const ARMV8M: TargetId = TargetId(19);
    /// Armv8.1-M with MVE: Cortex-M55, M85.
    pub const ARMV81M: TargetId = TargetId(20);
    /// RISC-V RV32IMC.
    pub const RV32IMC: TargetId = TargetId(32);
    /// AArch64 with Advanced SIMD.
    pub const AARCH64: TargetId = TargetId(48);
    /// x86-64.
    pub const X86_64: TargetId = TargetId(64);
    /// x86-64 with AVX2 and FMA (level x86-64-v3); AVX-512 is used where it is found.
    pub const X86_64_V3: TargetId = TargetId(65);
    /// WebAssembly, 32-bit.
    pub const WASM32: TargetId = TargetId(80);

    /// Name and number of every family known here.
    pub const ALL: [(&'static str, TargetId); 11] = [
        ("portable", Self::PORTABLE),
        ("armv6-m", Self::ARMV6M),
        ("armv7-m", Self::ARMV7M),
        ("armv7e-m", Self::ARMV7EM),
        ("armv8-m.main", Self::ARMV8M),
        ("armv8.1-m.main", Self::ARMV81M),
        ("rv32imc", Self::RV32IMC),
        ("aarch64", Self::AARCH64),
        ("x86-64", Self::X86_64),
        ("x86-64-v3", Self::X86_64_V3),
        ("wasm32", Self::WASM32),
    ];

    /// The name, or `None` for a number this build does not know.
    pub fn name(self) -> Option<&'static str> {
        Self::ALL.iter().find(|(_, id)| *id == self).map(|(name, _)| *name)
    }

    /// The family called `name`.
    pub fn from_name(name: &str) -> Option<TargetId> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, id)| *id)
    }
}
