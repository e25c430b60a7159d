#!/usr/bin/env bash
# second_sync.sh - a sync that finds nothing to copy, beside rsync over ssh on the same links: seconds of whole commands.
#
#   benches/second_sync.sh [ROUNDS]     prints one JSON object a line, and a table at the end
#
# Trees of 100 × 100 and 1 × 10,000 files of 37 bytes, in memory, on loopback and behind links of 100 Mbit/s with round trips of 50 and
# 600 ms. nfsw talks to `nfsw serve`, rsync to an sshd of its own with a key of its own. The commands alternate; medians. Needs root, jq,
# rsync and openssh-server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${1:-3}
for program in jq rsync ssh ssh-keygen /usr/sbin/sshd; do
  command -v "$program" >/dev/null || { echo "second_sync.sh: $program is missing (packages jq rsync openssh-server)" >&2; exit 1; }
done
[ -n "${NFSW:-}" ] || cargo build --quiet --release -p nfsw
nfsw=${NFSW:-$PWD/target/release/nfsw} nfs_port=20497 ssh_port=20498
work=$(mktemp -d /dev/shm/nfsw-sync.XXXXXX)
cleanup() { kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT
for tree in '100 100' '1 10000'; do
  read -r directories files <<<"$tree"
  for directory in $(seq "$directories"); do
    mkdir -p "$work/here/$directories/$directory"
    (cd "$work/here/$directories/$directory" && seq "$files" | xargs -n 500 sh -c 'for name; do printf %37s "$name" > "$name"; done' sh)
  done
done
cp -a "$work/here" "$work/served"
cp -a "$work/here" "$work/there"
"$nfsw" serve "$work/served" --listen 0.0.0.0:$nfs_port >/dev/null 2>&1 &
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
printf '%s\n' "HostKey $work/key" "AuthorizedKeysFile $work/key.pub" 'PermitRootLogin yes' 'StrictModes no' 'UsePAM no' 'PidFile none' >"$work/sshd"
mkdir -p /run/sshd
/usr/sbin/sshd -D -q -p $ssh_port -f "$work/sshd" &
sleep 1
printf '#!/bin/sh\nexec ssh -q -p %s -i %s -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "$@"\n' $ssh_port "$work/key" >"$work/ssh"
chmod +x "$work/ssh"

# Runs behind a link; `$1` names it.
rounds_here() {
  local host=${NFSW_HOST:-127.0.0.1} round tree program begun
  export XDG_CACHE_HOME=$work/cache XDG_STATE_HOME=$work/state
  for round in $(seq "$rounds"); do
    for tree in 100 1; do
      for program in nfsw rsync; do
        begun=$EPOCHREALTIME
        case $program in
          nfsw) "$nfsw" sync -q "$work/here/$tree" "nfs://$host:$nfs_port/$tree?mountport=$nfs_port" ;;
          rsync) rsync -a -e "$work/ssh" "$work/here/$tree/" "root@$host:$work/there/$tree/" ;;
        esac
        jq -nc --arg link "$1" --arg tree "$tree" --arg program "$program" --argjson begun "$begun" --argjson ended "$EPOCHREALTIME" \
          '{link: $link, directories: ($tree | tonumber), program: $program, seconds: (($ended - $begun) * 1000 | round / 1000)}'
      done
    done
  done
}
export -f rounds_here
export work nfsw rounds nfs_port
about=$(jq -nc --arg commit "$(git rev-parse --short HEAD)" --arg date "$(date -u +%FT%TZ)" --arg version "$("$nfsw" --version)" \
  --arg processors "$(nproc)" --arg load "$(cut -d' ' -f1 /proc/loadavg)" --arg rsync "$(rsync --version | sed -n '1s/^rsync *version \([^ ]*\).*/\1/p')" \
  '{commit: $commit, date: $date, nfsw: $version, rsync: $rsync, processors: ($processors | tonumber), load: ($load | tonumber)}')
{
  rounds_here loopback
  "$nfsw" link exec -q --rate 100M --delay 25ms --duplex full -- bash -c 'rounds_here "50 ms"'
  "$nfsw" link exec -q --rate 100M --delay 300ms --duplex full -- bash -c 'rounds_here "600 ms"'
} | jq -c --argjson about "$about" '. + $about' | tee "$work/results"
jq -rs 'def median: sort | .[length / 2 | floor];
  group_by([.directories, .link]) | .[] | . as $all
  | [.[] | select(.program == "nfsw").seconds] as $ours | [.[] | select(.program == "rsync").seconds] as $theirs
  | "| \($all[0].directories) | \($all[0].link) | \($ours | median) s | \($theirs | median) s | \(($ours | median) / ($theirs | median) * 100 | round / 100) |"' \
  "$work/results" | { echo '| directories | link | nfsw | rsync | ratio |'; echo '|---|---|---|---|---|'; cat; }
