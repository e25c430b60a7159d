#!/usr/bin/env bash
# packaging/try.sh - installs the packages of target/packages and uses what is in them as a user would.
#
# The .deb is installed by dpkg into an empty root of its own, the .rpm by rpm into another, and must have the same files. As root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scratch=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$scratch"' EXIT
fail() { echo "packaging/try.sh: $*" >&2; exit 1; }

root=$scratch/root
mkdir -p "$root/var/lib/dpkg/"{info,updates}
: > "$root/var/lib/dpkg/status"
# The root has no libc of its own: what the package depends on is looked at, not installed.
dpkg --root="$root" --log=/dev/null --force-depends --force-not-root --install target/packages/*.deb > "$scratch/dpkg" 2>&1 || { cat "$scratch/dpkg"; fail "dpkg --install"; }
dpkg-deb --field target/packages/*.deb Depends | grep -q libc6 || fail "the .deb does not depend on libc6"
nfsw=$root/usr/bin/nfsw
[ "$(stat -c %s "$nfsw")" -le 20000000 ] || fail "the binary is not stripped: $(stat -c %s "$nfsw") bytes"

for page in nfsw nfsw-cp nfsw-sync nfsw-link-exec; do
  zcat "$root/usr/share/man/man1/$page.1.gz" > "$scratch/page" || fail "no manual page $page(1)"
  warnings=$(man --warnings -l "$scratch/page" 2>&1 > "$scratch/text")
  [ -z "$warnings" ] || fail "$page(1): $warnings"
  grep -q '^NAME' "$scratch/text" || fail "$page(1) has no NAME"
done
bash -c 'source "$1" && complete -p nfsw' bash "$root/usr/share/bash-completion/completions/nfsw" > /dev/null || fail "bash completions"
for unit in "$root"/usr/lib/systemd/user/*.service; do
  command=$(sed -n 's|^ExecStart=/usr/bin/nfsw \([a-z]*\).*|\1|p' "$unit")
  "$nfsw" "$command" --help > /dev/null || fail "$unit runs a command that is not there"
done

# A copy out and back through the installed binary.
mkdir "$scratch/served"
head -c 3000000 /dev/urandom > "$scratch/file"
"$nfsw" serve "$scratch/served" --listen 127.0.0.1:0 > "$scratch/log" 2>&1 &
server=$!
port=
for _ in $(seq 100); do
  port=$(grep -ao '127\.0\.0\.1:[0-9]*' "$scratch/log" | head -1 | cut -d: -f2) && [ -n "$port" ] && break
  sleep 0.1
done
[ -n "$port" ] || fail "nfsw serve does not say where it listens: $(cat "$scratch/log")"
export HOME=$scratch XDG_STATE_HOME=$scratch/state XDG_CACHE_HOME=$scratch/cache
"$nfsw" cp "$scratch/file" "nfs://127.0.0.1:$port/file"
"$nfsw" cp "nfs://127.0.0.1:$port/file" "$scratch/back"
cmp "$scratch/file" "$scratch/back" || fail "the copy differs"

if command -v rpm > /dev/null; then
  rpm --root "$scratch/rpm" --install --nodeps --noscripts --dbpath /db target/packages/*.rpm
  cmp "$nfsw" "$scratch/rpm/usr/bin/nfsw" || fail "the .rpm has another binary"
  pages() { find "$1/usr/share/man" -type f -printf '%f\n' | sed 's/\.gz$//' | sort; }
  [ "$(pages "$root")" = "$(pages "$scratch/rpm")" ] || fail "the .rpm has other manual pages"
else
  fail "rpm is missing, so that the .rpm cannot be installed (Debian's package rpm)"
fi
echo "installed, run and compared: $(cd target/packages && echo *.deb *.rpm)"
