#!/usr/bin/env bash
# packaging/try-out/run.sh [COMMAND...] - builds a container with nfs-ganesha and nfsw, and runs COMMAND in it: a shell, if none is given.
#
# Its files are Debian's packages and the .deb of target/packages (./ci.sh package makes that): no image is fetched. Needs root, mmdebstrap,
# and podman or docker. The container is privileged: `nfsw mount` and `nfsw link exec` use FUSE, network namespaces and TUN.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
fail() { echo "packaging/try-out/run.sh: $*" >&2; exit 1; }
command -v mmdebstrap > /dev/null || fail "mmdebstrap is missing"
engine=$(command -v podman || command -v docker) || fail "podman or docker is missing"
package=$(echo ../../target/packages/*.deb)
[ -f "$package" ] || fail "no package in target/packages: packaging/build.sh makes it"

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mmdebstrap --quiet --variant=minbase --include=nfs-ganesha,nfs-ganesha-vfs,rpcbind,netbase,fuse3,iproute2 \
  --customize-hook="upload $package /nfsw.deb" --customize-hook='chroot "$1" dpkg --install /nfsw.deb' --customize-hook='rm "$1/nfsw.deb"' \
  bookworm "$context/root.tar" > /dev/null
cp Containerfile ganesha.conf start "$context"
"$engine" build --quiet --tag nfsw-try-out "$context"
terminal=--interactive
[ ! -t 0 ] || terminal=--interactive\ --tty
# shellcheck disable=SC2086 # Two words on a terminal.
"$engine" run --rm $terminal --privileged --network none nfsw-try-out "$@"
