//! How firmware under emulation ends.

/// The exit status of an emulated run. The numbers keep clear of 1 and 2, which emulators use for
/// errors of their own, and of 124 to 255, which shells use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every case was run.
    Done = 0,
    /// The input file could not be opened.
    OpenInput = 40,
    /// Reading the input file failed.
    ReadInput = 41,
    /// The input file ends within a case.
    PartialCase = 42,
    /// The output file could not be made.
    OpenOutput = 43,
    /// Writing the output file failed.
    WriteOutput = 44,
    /// The dump file could not be made.
    OpenDump = 45,
    /// Writing the dump file failed.
    WriteDump = 46,
    /// The model could not be set up, such as a plan that is not for this device.
    Model = 50,
    /// A panic: none may be linked, so the build was not checked.
    Panic = 60,
    /// A hard fault, such as an access outside memory or a stack overflow.
    HardFault = 61,
    /// An exception or interrupt nothing handles.
    Exception = 62,
}

impl Exit {
    /// Every code there is.
    pub const ALL: [Self; 12] = [
        Self::Done,
        Self::OpenInput,
        Self::ReadInput,
        Self::PartialCase,
        Self::OpenOutput,
        Self::WriteOutput,
        Self::OpenDump,
        Self::WriteDump,
        Self::Model,
        Self::Panic,
        Self::HardFault,
        Self::Exception,
    ];

    /// The code with this number, if there is one.
    pub fn from_status(status: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|exit| *exit as i32 == status)
    }

    /// What the code means, for a person; linked only where it is used.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "every case was run",
            Self::OpenInput => "the firmware could not open its input file",
            Self::ReadInput => "the firmware could not read its input file",
            Self::PartialCase => {
                "the input file ends within a case: its size must be a multiple of the model's input bytes"
            }
            Self::OpenOutput => "the firmware could not make its output file",
            Self::WriteOutput => "the firmware could not write its output file",
            Self::OpenDump => "the firmware could not make its dump file",
            Self::WriteDump => "the firmware could not write its dump file",
            Self::Model => "the model refused to be set up on this device",
            Self::Panic => "the firmware panicked",
            Self::HardFault => "the CPU took a hard fault: an access outside memory, or the stack overflowed",
            Self::Exception => "an exception occurred that nothing handles",
        }
    }
}
