# What scripts/quickstart and scripts/test share: packages, toolchain, build. Sourced, not run.

step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '\033[2m$ %s\033[0m\n' "$*"; "$@"; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Installs the Debian packages that are missing; daemons that a package would start stay off.
need_packages() {
    local missing
    read -ra missing <<<"$(missing_packages "$@")"
    [ ${#missing[@]} = 0 ] && return
    command -v apt-get >/dev/null || { echo "missing: ${missing[*]}; no apt-get here, install them by hand" >&2; exit 1; }
    echo "installing ${missing[*]}"
    as_root apt-get -qq update
    install_packages "${missing[@]}"
    # One that was there, newer than Debian's own (from backports), may have had to go for them.
    read -ra missing <<<"$(missing_packages "$@")"
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

missing_packages() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
    done
}

install_packages() {
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

# Finds cargo, or installs Rust (Debian 12's own is too old) as rust-lang.org tells.
need_rust() {
    command -v cargo >/dev/null || { [ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"; }
    if ! command -v cargo >/dev/null; then
        need_packages curl ca-certificates
        curl -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal ||
            { echo "install Rust 1.95 or newer (https://rustup.rs) and run this again" >&2; exit 1; }
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    echo "$(cargo --version)"
}

# Builds target/release/loligo with cargo's own progress bar.
build_release() {
    cargo build --release --locked -p loligo
}
