#!/usr/bin/env bash
# packaging/build.sh - builds the packages of nfsw into target/packages: a .deb, an .rpm, a static binary, and the debug symbols apart.
#
# Needs cargo-deb and cargo-generate-rpm (`cargo install cargo-deb cargo-generate-rpm`), and objcopy of binutils. Manual pages and completion
# scripts are printed by the binary itself, so that they describe what is packaged.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
# Where crates/cli/Cargo.toml looks for the files of packages.
stage=target/package-files
packages=target/packages

cargo build --locked --profile dist -p nfsw
rm -rf "$stage" "$packages"
mkdir -p "$stage"/{man,completions,systemd} "$packages"

built=$target/dist/nfsw
version=$("$built" --version | cut -d' ' -f2)
debug=nfsw-$version-$(uname -m).debug
objcopy --only-keep-debug --compress-debug-sections "$built" "$packages/$debug"
objcopy --strip-all --add-gnu-debuglink="$packages/$debug" "$built" "$stage/nfsw"
nfsw=$stage/nfsw

# Prints the names of all commands, each with its parents: "cp", "link", "link exec". Help lists them in a section of their own.
commands() {
  local name
  "$nfsw" "$@" --help | sed -n '/^Commands:/,/^[^ ]/s/^  \([a-z][a-z-]*\) .*/\1/p' | while read -r name; do
    [ "$name" != help ] || continue
    echo "$*${*:+ }$name"
    commands "$@" "$name"
  done
}
"$nfsw" man > "$stage/man/nfsw.1"
commands | while read -r command; do
  # shellcheck disable=SC2086 # Two words where a command has a parent.
  "$nfsw" man $command > "$stage/man/nfsw-${command// /-}.1"
done
"$nfsw" completions bash > "$stage/completions/nfsw"
"$nfsw" completions zsh > "$stage/completions/_nfsw"
"$nfsw" completions fish > "$stage/completions/nfsw.fish"
# Only units whose command this binary has.
for unit in packaging/systemd/*.service; do
  command=$(sed -n 's|^ExecStart=/usr/bin/nfsw \([a-z]*\).*|\1|p' "$unit")
  if "$nfsw" man "$command" > /dev/null 2>&1; then install -m 644 "$unit" "$stage/systemd"; fi
done

# A binary for any Linux of this processor, if rustup has the target.
static=$(uname -m)-unknown-linux-musl
if rustup target list --installed 2>/dev/null | grep -qx "$static"; then
  cargo build --locked --profile dist --target "$static" -p nfsw
  objcopy --strip-all "$target/$static/dist/nfsw" "$packages/nfsw-$version-$(uname -m)-static"
else
  echo "packaging/build.sh: no static binary: rustup target add $static" >&2
fi

cargo deb --quiet --no-build --no-strip -p nfsw --output "$packages/"
cargo generate-rpm -p crates/cli --output "$packages/"
ls -l "$packages"
