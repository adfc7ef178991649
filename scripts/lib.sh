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
    # Where root has a password, Debian installs no sudo.
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || {
        echo "no sudo here: as root run apt-get install --no-install-recommends ${missing[*]}, then this again" >&2
        exit 1
    }
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
    local wanted
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    has_rust "$wanted" || PATH="$HOME/.cargo/bin:$PATH"
    if ! has_rust "$wanted"; then
        if command -v rustup >/dev/null; then
            # Whatever else it uses by default.
            export RUSTUP_TOOLCHAIN=stable
            rustup update stable || true
        else
            need_packages curl ca-certificates
            curl -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal || true
        fi
        hash -r
        has_rust "$wanted" ||
            { echo "install Rust $wanted or newer (https://rustup.rs) and run this again" >&2; exit 1; }
    fi
    echo "$(cargo --version)"
}

# Whether cargo is of that version or newer.
has_rust() {
    local found
    found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2)
    [ -n "$found" ] && [ "$(printf '%s\n' "$1" "$found" | sort -V | head -n 1)" = "$1" ]
}

# Builds target/release/loligo with cargo's own progress bar.
build_release() {
    cargo build --release --locked -p loligo
}
