#!/usr/bin/env bash
# Installs what Kiln's builds and tests need beyond a Rust toolchain, where it is missing.
#
#   ci/setup.sh [embedded] [emulators] [linux] [c] [gpu]      all when none is named
#
#   embedded    Rust's `core` for the targets of all boards, and a linker for bare metal
#   emulators   QEMU for the emulated boards
#   linux       a C compiler for 64-bit Arm Linux, and QEMU for its processes; on Linux only
#   c           C compilers for this computer and, with a C library, for Cortex-M: what `kiln compile --c` is tested with
#   gpu         Vulkan on the CPU (Mesa's lavapipe), which the GPU back end is tested with; on Linux only
#
# With everything present it only looks and is done in a second. System packages are installed as
# root or through a sudo that asks nothing, and by Homebrew; otherwise the command to run is
# printed. What is installed already is never removed. Exit status: 0 when everything is there, 1
# when something is missing, 2 for a wrong argument.
set -u

targets=(
    thumbv6m-none-eabi
    thumbv7m-none-eabi
    thumbv7em-none-eabihf
    thumbv8m.main-none-eabihf
    riscv32imc-unknown-none-elf
    aarch64-unknown-linux-gnu
)
oldest_minor=95 # of Rust 1.x, as in Cargo.toml
missing=0

say() { printf '%s\n' "setup: $*"; }

# What is missing, and what to do about it.
lacks() {
    printf '%s\n' "setup: MISSING: $1" "       $2" >&2
    missing=1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root, or fails when that cannot be had without a question.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# --- Rust ----------------------------------------------------------------------------------------

# Sysroots of the active toolchain and of those rustup knows.
sysroots() {
    rustc --print sysroot 2>/dev/null
    ls -d "${RUSTUP_HOME:-$HOME/.rustup}"/toolchains/* 2>/dev/null
}

# Whether the compiler of a sysroot is new enough.
new_enough() {
    local version
    version=$("$1/bin/rustc" --version 2>/dev/null) || return 1
    [[ $version =~ ^rustc\ 1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge "$oldest_minor" ]
}

# Whether some toolchain has library source, from which cargo builds `core` for every target.
source_found() {
    local root
    while read -r root; do
        [ -f "$root/lib/rustlib/src/rust/library/core/Cargo.toml" ] && new_enough "$root" && return 0
    done < <(sysroots)
    return 1
}

target_found() {
    local root
    while read -r root; do
        compgen -G "$root/lib/rustlib/$1/lib/libcore-*" >/dev/null && new_enough "$root" && return 0
    done < <(sysroots)
    return 1
}

missing_targets() {
    local target
    for target in "${targets[@]}"; do
        target_found "$target" || printf '%s\n' "$target"
    done
}

linker_found() {
    local root version
    while read -r root; do
        compgen -G "$root/lib/rustlib/*/bin/rust-lld" >/dev/null && return 0
    done < <(sysroots)
    have rust-lld || have ld.lld && return 0
    for version in {30..14}; do
        have "ld.lld-$version" && return 0
    done
    return 1
}

# Debian's newest Rust with its library source, for machines that reach Debian but not rustup's
# server.
install_debian_rust() {
    have apt-get || return 1
    apt_get update >/dev/null || return 1
    apt_get install --no-remove rustc-web cargo-web rust-web-src lld-22 >/dev/null || return 1
    if have rustup && ! [ -e "${RUSTUP_HOME:-$HOME/.rustup}/toolchains/debian" ]; then
        rustup toolchain link debian /usr
    fi
}

embedded() {
    local wanted
    if ! have cargo; then
        lacks "Rust" "install it from https://rustup.rs or your system's packages"
        return
    fi
    wanted=$(missing_targets)
    if [ -n "$wanted" ] && ! source_found; then
        # shellcheck disable=SC2086  # one argument a target
        if have rustup && timeout 300 rustup target add $wanted; then
            say "installed Rust targets:" $wanted
        elif install_debian_rust; then
            say "installed Debian's Rust with library source"
        fi
        wanted=$(missing_targets)
    fi
    if [ -z "$wanted" ]; then
        say "targets: installed"
    elif source_found; then
        say "targets: \`core\` is built from library source where not installed"
    else
        lacks "Rust targets" $'run `rustup target add '"${wanted//$'\n'/ }"$'`, or on Debian, as root:
       `apt-get install rustc-web cargo-web rust-web-src lld-22` and `rustup toolchain link debian /usr`'
    fi
    if ! linker_found; then
        install_package lld lld lld
        hash -r
    fi
    if linker_found; then
        say "bare-metal linker: installed"
    else
        lacks "LLD" "$(package_command lld lld lld)"
    fi
}

# --- System packages -----------------------------------------------------------------------------

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends "$@"
}

# The command that installs a package: its names on Debian, Fedora and Homebrew.
package_command() {
    if have apt-get; then
        echo "as root, run \`apt-get install $1\`"
    elif have dnf; then
        echo "as root, run \`dnf install $2\`"
    elif have brew; then
        echo "run \`brew install $3\`"
    else
        echo "install the package called $1 on Debian, $2 on Fedora, $3 on Homebrew"
    fi
}

install_package() {
    if have apt-get; then
        apt_get update >/dev/null && { apt_get install --no-remove "$1" || from_backports "$1"; }
    elif have dnf; then
        as_root dnf install -y "$2"
    elif have brew; then
        brew install "$3"
    else
        return 1
    fi
}

# On a Debian stable that has parts of QEMU from backports, the plain package conflicts with them.
# The package lists for this go to a directory of their own, so that the system's sources stay as
# they are.
from_backports() {
    local codename mirror sources status
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ -n "$codename" ] && [ -f /usr/share/keyrings/debian-archive-keyring.gpg ] || return 1
    # The mirror that the system itself uses.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" 2>/dev/null | head -n 1)
    [ -n "$mirror" ] || return 1
    sources=$(mktemp -d)
    mkdir -p "$sources/parts" "$sources/lists/partial"
    # apt reads the lists as a user of its own.
    chmod -R a+rx "$sources"
    cp /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list "$sources/parts/" 2>/dev/null
    printf 'deb [signed-by=%s] %s %s-backports main\n' \
        /usr/share/keyrings/debian-archive-keyring.gpg "$mirror" "$codename" >"$sources/parts/backports.list"
    local options=(-o "Dir::Etc::SourceParts=$sources/parts" -o "Dir::State::Lists=$sources/lists")
    apt_get "${options[@]}" update >/dev/null &&
        apt_get "${options[@]}" install --no-remove -t "$codename-backports" "$1"
    status=$?
    as_root rm -rf "$sources"
    return "$status"
}

# --- Emulators -----------------------------------------------------------------------------------

# A program, its packages on Debian, Fedora and Homebrew, and what to do where it can't be installed.
program() {
    local name=$1 hint=${5:-}
    if ! have "$name"; then
        install_package "$2" "$3" "$4"
        hash -r
    fi
    if have "$name" && "$name" --version >/dev/null 2>&1; then
        say "$name: $("$name" --version | head -n 1)"
    else
        lacks "$name" "$(package_command "$2" "$3" "$4")$hint"
    fi
}

emulators() {
    local hint='; if that wants to remove
       other packages of QEMU, take it from the same place as those (on Debian: -t CODENAME-backports)'
    program qemu-system-arm qemu-system-arm qemu-system-arm qemu "$hint"
    program qemu-system-riscv32 qemu-system-misc qemu-system-riscv qemu "$hint"
}

linux() {
    if [ "$(uname -s)" != Linux ]; then
        say "processes of 64-bit Arm Linux are emulated on Linux only"
        return
    fi
    program qemu-aarch64 qemu-user qemu-user qemu
    if [ "$(uname -m)" != aarch64 ]; then
        program aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu gcc-aarch64-linux-gnu aarch64-unknown-linux-gnu
        if have aarch64-linux-gnu-gcc && ! [ -e /usr/aarch64-linux-gnu/lib/libc.so ]; then
            have apt-get && install_package libc6-dev-arm64-cross
            [ -e /usr/aarch64-linux-gnu/lib/libc.so ] ||
                lacks "the C library of 64-bit Arm Linux in /usr/aarch64-linux-gnu" \
                    "on Debian and Ubuntu, as root, run \`apt-get install libc6-dev-arm64-cross\`"
        fi
    fi
}

# Whether the Arm compiler finds newlib and its semihosting.
newlib_found() {
    local file
    for file in libc.a rdimon.specs; do
        # A name without a path is what the compiler gives back for a file it does not find.
        [ "$(arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -print-file-name=$file)" != "$file" ] || return 1
    done
}

c() {
    local newlib=(libnewlib-arm-none-eabi arm-none-eabi-newlib gcc-arm-embedded)
    # A system's own compiler is called `cc`.
    have cc || install_package gcc gcc gcc
    have c++ || install_package g++ gcc-c++ gcc
    hash -r
    if have cc && have c++; then
        say "cc: $(cc --version | head -n 1)"
    else
        lacks "a C and a C++ compiler" "$(package_command "gcc g++" "gcc gcc-c++" gcc)"
    fi
    program arm-none-eabi-gcc gcc-arm-none-eabi arm-none-eabi-gcc-cs gcc-arm-embedded
    if have arm-none-eabi-gcc; then
        newlib_found || install_package "${newlib[@]}"
        if newlib_found; then
            say "newlib for Cortex-M: installed"
        else
            lacks "newlib for Cortex-M" "$(package_command "${newlib[@]}")"
        fi
    fi
}

# Vulkan's loader, and Mesa's driver that computes on the CPU.
loader_found() { PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1'; }
lavapipe_found() { compgen -G "/usr/share/vulkan/icd.d/lvp_icd*.json" >/dev/null; }

gpu() {
    if [ "$(uname -s)" != Linux ]; then
        say "Vulkan on the CPU is set up on Linux only"
        return
    fi
    local loader=(libvulkan1 vulkan-loader vulkan-loader)
    local driver=(mesa-vulkan-drivers mesa-vulkan-drivers mesa)
    loader_found || install_package "${loader[@]}"
    lavapipe_found || install_package "${driver[@]}"
    if loader_found && lavapipe_found; then
        say "Vulkan on the CPU: installed"
    else
        loader_found || lacks "Vulkan's loader" "$(package_command "${loader[@]}")"
        lavapipe_found || lacks "a Vulkan driver for the CPU" "$(package_command "${driver[@]}")"
    fi
}

[ $# -gt 0 ] || set -- embedded emulators linux c gpu
for group; do
    case $group in
        embedded | emulators | linux | c | gpu) ;;
        *)
            echo "setup: no group is called \`$group\`; the groups are embedded, emulators, linux, c and gpu" >&2
            exit 2
            ;;
    esac
done
for group; do
    $group
done
exit $missing
