//! What a CPU can execute, as far as kernels and compilers care.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An instruction set: a family and the optional parts a CPU has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isa {
    /// The architecture every binary for this board is built for.
    pub family: IsaFamily,
    /// Optional parts the CPU has; no order, no repetition.
    #[serde(default)]
    pub features: Vec<IsaFeature>,
}

impl Isa {
    /// Whether the CPU has an optional part.
    pub fn has(&self, feature: IsaFeature) -> bool {
        self.features.contains(&feature)
    }
}

/// An instruction set architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IsaFamily {
    /// Cortex-M0, M0+, M1.
    #[serde(rename = "armv6-m")]
    Armv6M,
    /// Cortex-M3.
    #[serde(rename = "armv7-m")]
    Armv7M,
    /// Cortex-M4, M7.
    #[serde(rename = "armv7e-m")]
    Armv7eM,
    /// Cortex-M33, M35P.
    #[serde(rename = "armv8-m.main")]
    Armv8MMain,
    /// Cortex-M52, M55, M85.
    #[serde(rename = "armv8.1-m.main")]
    Armv81MMain,
    /// 32-bit RISC-V.
    #[serde(rename = "rv32")]
    Rv32,
    /// 64-bit Arm.
    #[serde(rename = "aarch64")]
    Aarch64,
    /// 64-bit x86.
    #[serde(rename = "x86-64")]
    X86_64,
    /// Another CPU, which portable kernels serve; for the host board only.
    #[serde(rename = "portable")]
    Portable,
}

/// The word that board files use.
impl fmt::Display for IsaFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl IsaFamily {
    /// What the rustc target triples of this family begin with; empty where any triple will do.
    pub(crate) fn triple_prefix(self) -> &'static str {
        match self {
            Self::Armv6M => "thumbv6m-",
            Self::Armv7M => "thumbv7m-",
            Self::Armv7eM => "thumbv7em-",
            // rustc has no separate triple for Armv8.1-M.
            Self::Armv8MMain | Self::Armv81MMain => "thumbv8m.main-",
            Self::Rv32 => "riscv32",
            Self::Aarch64 => "aarch64-",
            Self::X86_64 => "x86_64-",
            Self::Portable => "",
        }
    }

    /// Whether it is of Arm's M profile.
    pub(crate) fn is_cortex_m(self) -> bool {
        matches!(self, Self::Armv6M | Self::Armv7M | Self::Armv7eM | Self::Armv8MMain | Self::Armv81MMain)
    }

    /// The optional parts CPUs of this family may have.
    pub(crate) fn possible_features(self) -> &'static [IsaFeature] {
        use IsaFeature::*;
        match self {
            Self::Armv6M | Self::Armv7M | Self::Portable => &[],
            Self::Armv7eM | Self::Armv8MMain => &[Dsp, Fpu],
            Self::Armv81MMain => &[Dsp, Fpu, Mve],
            Self::Rv32 => &[Fpu],
            Self::Aarch64 => &[Fpu, Neon, Dotprod, I8mm],
            Self::X86_64 => &[Fpu, Avx2, Avx512, Avx512Vnni],
        }
    }
}

/// An optional part of an instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsaFeature {
    /// The DSP extension of M-profile CPUs (SMLAD and its kind).
    Dsp,
    /// Hardware floating point, at least single precision.
    Fpu,
    /// Helium, integer and floating point.
    Mve,
    /// 128-bit vectors of AArch64.
    Neon,
    /// 8-bit dot products of AArch64.
    Dotprod,
    /// 8-bit matrix products of AArch64.
    I8mm,
    /// 256-bit integer vectors and fused multiply-add of x86.
    Avx2,
    /// 512-bit vectors of x86: F, BW, DQ and VL together.
    Avx512,
    /// 8-bit dot products of x86 on 512-bit vectors.
    Avx512Vnni,
}

/// The word that board files use.
impl fmt::Display for IsaFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
