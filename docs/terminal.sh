#!/usr/bin/env bash
# Records the terminal session of README.md: a real run over an emulated satellite link. As root, with nfsw in PATH:
#
#   docs/terminal.sh            writes docs/terminal.svg
#
# Needs Debian's termtosvg. The file is random bytes; "nas" is this host as seen from behind the link.
set -euo pipefail
if [ "${1:-}" != play ]; then
  script=$(realpath "$0")
  scratch=$(mktemp -d)
  trap 'kill "$server" 2>/dev/null || true; rm -rf "$scratch"' EXIT
  mkdir "$scratch/served" "$scratch/here"
  head -c 8M /dev/urandom > "$scratch/served/film.mp4"
  nfsw serve "$scratch/served" --listen 0.0.0.0:20490 >/dev/null 2>&1 &
  server=$!
  cd "$scratch/here"
  # termtosvg ends when its input does: this one stays open.
  mkfifo "$scratch/input"
  exec 3<>"$scratch/input"
  # A home of its own: no path cache and no journals of other runs.
  HOME=$scratch termtosvg "${script%.sh}.svg" -g 88x12 -m 100 -D 4000 -t window_frame \
    -c "nfsw link exec --quiet --preset satellite-600 --bad 20 --loss 3% --seed 7 -- unshare -m $script play" <&3
  exit
fi

# Behind the link, on the terminal that is recorded. The mounts are those of a namespace of its own.
{ cat /etc/hosts; echo "$NFSW_HOST nas"; } > ../hosts
mount --bind ../hosts /etc/hosts
mount --bind ../served /mnt
prompt() {
  printf '\e[32m$\e[0m '
  local i
  for ((i = 0; i < ${#1}; i++)); do printf '%s' "${1:i:1}"; sleep 0.04; done
  sleep 0.4
  echo
}
prompt '# behind a satellite link: 20 Mbit/s, 600 ms round trip, 3 % of the time in fades'
prompt 'nfsw cp nfs://nas:20490/film.mp4 .'
nfsw cp nfs://nas:20490/film.mp4 . &
sleep 6
kill -INT $!
wait $! || true
prompt 'nfsw cp nfs://nas:20490/film.mp4 .        # the same command again'
nfsw cp nfs://nas:20490/film.mp4 .
prompt 'cmp film.mp4 /mnt/film.mp4 && echo identical     # the original'
cmp film.mp4 /mnt/film.mp4 && echo identical
sleep 2
