#!/bin/sh
# Every fuzz target for a few seconds, after a replay of its seeds and of corpora/regressions; then
# a kernel with a planted bug, which must be found.
#   mk/fuzz-smoke.sh BUILD_DIR
# SMOKE_SECONDS: of fuzzing for a family of operations (default 18); other targets get a third.
set -u
cd "$(dirname "$0")/.."
build=$1
seconds=${SMOKE_SECONDS:-18}
logs=$build/smoke
jobs=$(nproc)
failed=0
rm -rf "$logs"
mkdir -p "$logs"
mk/fuzz-seeds.sh "$build" || exit 3

run() { # target seconds: exit code in TARGET.code
    dictionary=
    [ ! -e "$build/fuzz_$1.dict" ] || dictionary=-dict=$build/fuzz_$1.dict
    mkdir -p "$build/seeds/$1" "$logs/$1/corpus"
    # shellcheck disable=SC2086 # none or one word
    "$build/fuzz_$1" -seed=1 -max_total_time="$2" -max_len=6144 -timeout=60 -rss_limit_mb=4096 \
        -entropic_scale_per_exec_time=1 -artifact_prefix="$logs/$1/" $dictionary \
        "$logs/$1/corpus" "$build/seeds/$1" \
        >"$logs/$1.log" 2>&1
    echo $? >"$logs/$1.code"
}

report() { # target
    code=$(cat "$logs/$1.code" 2>/dev/null || echo none)
    line=$(grep -a '^#[0-9]' "$logs/$1.log" | tail -n 1 | sed 's/ lim:.*//;s/	/ /g')
    if [ "$code" = 0 ]; then
        echo "fuzz $1: $(ls "$build/seeds/$1" | wc -l) seeds, $line"
        return
    fi
    failed=1
    echo "fuzz $1: FAILED with exit code $code"
    grep -a -A12 -m1 -e '^FAIL' -e '^ERROR' -e '^==[0-9]*==' "$logs/$1.log"
    for f in "$logs/$1/"*-*; do [ ! -e "$f" ] || echo "replay: $build/fuzz_$1 $f"; done
}

running=0
targets="dsa qsa"
for f in fuzz/fuzz_*.c; do
    t=$(basename "$f" .c)
    t=${t#fuzz_}
    case " $targets " in *" $t "*) ;; *) targets="$targets $t" ;; esac
done
for t in $targets; do
    case $t in dsa | qsa) run "$t" "$seconds" & ;; *) run "$t" $((seconds / 3)) & ;; esac
    running=$((running + 1))
    if [ $running -ge "$jobs" ]; then
        wait
        running=0
    fi
done
wait
for t in $targets; do report "$t"; done
if ! planted=$(mk/fuzz-planted.sh "$build" 60 expand_tail_ignores_first_key 2>&1); then failed=1; fi
echo "fuzz planted bug: $planted" | tr -s ' '
[ $failed = 0 ]
