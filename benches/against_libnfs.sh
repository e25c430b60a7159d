#!/usr/bin/env bash
# against_libnfs.sh - nfsw beside libnfs' nfs-cp, against one private nfs-ganesha on loopback TCP, in one run.
#
# 256 MiB from and to the server, and 2,000 files of 4 KiB put and got (beside nfsw with one call at a time).
# Rounds are interleaved; medians and their ratios are printed. Wall and CPU seconds of whole processes, start
# included; peak RSS in MiB. Needs root, nfs-ganesha, nfs-ganesha-vfs, libnfs-utils and GNU time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${1:-7}
for program in ganesha.nfsd nfs-cp /usr/bin/time; do
  command -v "$program" >/dev/null || { echo "against_libnfs.sh: $program is missing (packages nfs-ganesha nfs-ganesha-vfs libnfs-utils time)" >&2; exit 1; }
done
cargo build --quiet --release -p nfsw
nfsw=$PWD/target/release/nfsw
cargo test --quiet --release --test ganesha --no-run
# The private server is the tests' own: it prints its ports and export, and ends when its input ends.
server=$(find target/release/deps -maxdepth 1 -name 'ganesha-*' -type f -executable -printf '%T@ %p\n' | sort -rn | sed -n '1s/^[^ ]* //p')
# Export and targets lie in memory: a disk that journals every file hides what is measured.
coproc SERVER { TMPDIR=/dev/shm "$server" --ignored --exact library::serve_until_input_ends --nocapture 2>&1; }
while read -r line <&"${SERVER[0]}"; do case $line in *"ready "*) set -- ${line#*ready }; break;; esac; done
[ $# -eq 3 ] || { echo "against_libnfs.sh: the server did not start" >&2; exit 1; }
nfs=$1 mount=$2 export=$3
url() { echo "nfs://127.0.0.1$export/$1?nfsport=$nfs&mountport=$mount"; }
work=$(mktemp -d /dev/shm/nfsw-bench.XXXXXX)
trap 'exec {SERVER[1]}>&-; rm -rf "$work"' EXIT
head -c 256M /dev/urandom > "$work/large"
mkdir "$work/small"
for i in $(seq 2000); do head -c 4096 /dev/urandom > "$work/small/$i"; done
cp "$work/large" "$export/large"; cp -r "$work/small" "$export/small"

measure() { # name command...: one line "name wall cpu rss" into the results
  local name=$1; shift
  /usr/bin/time -o "$work/time" -f '%e %U %S %M' "$@" >/dev/null
  awk -v name="$name" '{ printf "%s %.3f %.3f %.1f\n", name, $1, $2 + $3, $4 / 1024 }' "$work/time" >> "$work/results"
}
for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  jobs=(get-nfsw get-libnfs put-nfsw put-libnfs small-put small-put-1 small-get small-get-1)
  for job in $(shuf -e "${jobs[@]}"); do
    case $job in
      get-nfsw) measure "$job" "$nfsw" cp -q --transport tcp "$(url large)" "$work/got"; rm "$work/got";;
      get-libnfs) measure "$job" nfs-cp "nfs://127.0.0.1$export/large?version=3&nfsport=$nfs&mountport=$mount" "$work/got"; rm "$work/got";;
      put-nfsw) measure "$job" "$nfsw" cp -q --transport tcp "$work/large" "$(url "put-a-$round")"; "$nfsw" rm "$(url "put-a-$round")";;
      put-libnfs) measure "$job" nfs-cp "$work/large" "nfs://127.0.0.1$export/put-b-$round?version=3&nfsport=$nfs&mountport=$mount"; "$nfsw" rm "$(url "put-b-$round")";;
      small-put) measure "$job" "$nfsw" cp -q -r --transport tcp "$work/small" "$(url "small-a-$round")"; "$nfsw" rm -r "$(url "small-a-$round")";;
      small-put-1) measure "$job" "$nfsw" cp -q -r -j 1 --transport tcp "$work/small" "$(url "small-b-$round")"; "$nfsw" rm -r "$(url "small-b-$round")";;
      small-get) measure "$job" "$nfsw" cp -q -r --transport tcp "$(url small)" "$work/out-a-$round"; rm -r "$work/out-a-$round";;
      small-get-1) measure "$job" "$nfsw" cp -q -r -j 1 --transport tcp "$(url small)" "$work/out-b-$round"; rm -r "$work/out-b-$round";;
    esac
  done
done
median() { awk -v name="$1" -v column="$2" '$1 == name { print $column }' "$work/results" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
row() { # title ours theirs
  awk -v title="$1" -v w="$(median "$2" 2)" -v c="$(median "$2" 3)" -v r="$(median "$2" 4)" \
    -v w2="$(median "$3" 2)" -v c2="$(median "$3" 3)" 'BEGIN {
    printf "| %s | %.2f s | %.2f s | %.2f | %.2f s | %.2f s | %.2f | %.1f MiB |\n", title, w, w2, w / w2, c, c2, (c2 > 0 ? c / c2 : 0), r }'
}
echo "| job | nfsw wall | other wall | ratio | nfsw CPU | other CPU | ratio | nfsw RSS |"
echo "|---|---|---|---|---|---|---|---|"
row "256 MiB from the server, nfs-cp" get-nfsw get-libnfs
row "256 MiB to stable storage, nfs-cp" put-nfsw put-libnfs
row '2,000 × 4 KiB put, `nfsw cp -j 1`' small-put small-put-1
row '2,000 × 4 KiB get, `nfsw cp -j 1`' small-get small-get-1
