#!/bin/sh
# What the nightly run does, here or in CI.
#
#   mk/nightly.sh [OUT [STEP…]]
#
# OUT (default build/nightly) gets a NAME.log and a NAME.status (the exit code) for each step, the
# JSON lines, the report and, if anything failed, issue.md: a text to open an issue with. Steps, all
# by default, in this order:
#   verify      quick tier with many cases, full tier with 20 launches of every case
#   broken      the wrong kernels, each to be caught
#   corpora     every case of corpora/, with their line coverage of kernels/
#   sanitizers  a small verify of the build with AddressSanitizer and UndefinedBehaviorSanitizer
#   fuzz        every fuzz target
#   report      the tolerance report, against the baseline if there is one
# Environment: SEED (1), QUICK_CASES (4800) and CASES (200, random cases an operation in the full
# tier), SHARD (0/1: which part of verify), FUZZ_TIME (600 s a target), BASELINE
# (reports/baseline.json), DATE (of the last commit), JOBS.
# Exit: 0 all fine, 1 something is wrong, 3 only infrastructure failed.
# shellcheck disable=SC2317  # the steps are called by name
set -u
cd "$(dirname "$0")/.." || exit 3
out=${1:-build/nightly}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- verify broken corpora sanitizers fuzz report
seed=${SEED:-1} quick_cases=${QUICK_CASES:-4800} cases=${CASES:-200}
shard=${SHARD:-0/1} fuzz_time=${FUZZ_TIME:-600}
baseline=${BASELINE:-reports/baseline.json} jobs=${JOBS:-$(nproc)}
date=${DATE:-$(git log -1 --format=%cs)}
attest=build/release/attest
mkdir -p "$out"

do_build() {
    make JOBS="$jobs" build
}
do_verify() {
    do_build || return
    code=0
    "$attest" verify --cases "$quick_cases" --seed "$seed" --shard "$shard" --jobs "$jobs" --json \
        >"$out/quick-${shard%/*}.jsonl" || code=$?
    "$attest" verify --tier full --cases "$cases" --seed "$seed" --shard "$shard" --repeats 18 \
        --jobs "$jobs" --json >"$out/verify-${shard%/*}.jsonl" || code=$?
    return $code
}
do_broken() {
    do_build && make -j"$jobs" broken &&
        "$attest" broken --jobs "$jobs" --json >"$out/broken.jsonl"
}
do_corpora() {
    do_build || return
    set --
    for file in corpora/*.txt corpora/regressions/*.txt corpora/golden/*.safetensors; do
        case $file in *_long.txt) continue ;; esac
        [ -e "$file" ] && set -- "$@" "$file"
    done
    # A million tokens: launches of minutes. The longest with every access traced would take hours.
    "$attest" run "$@" --jobs "$jobs" --watchdog 600000 --timeout 3600 --json \
        >"$out/corpora.jsonl" &&
        "$attest" run corpora/*_long.txt --jobs 1 --no-trace --watchdog 600000 --timeout 3600 \
            --json >"$out/corpora-long.jsonl" &&
        make JOBS="$jobs" coverage && cp build/coverage/kernels.info "$out/"
}
do_sanitizers() {
    make JOBS="$jobs" CONFIG=asan build &&
        build/asan/attest verify --cases 10 --geometries 2000 --timeout 900 --jobs "$jobs" --quiet
}
do_fuzz() {
    code=0
    for file in fuzz/fuzz_*.c; do
        target=${file##*/fuzz_}
        make JOBS="$jobs" fuzz TARGET="${target%.c}" TIME="$fuzz_time" || code=$?
    done
    [ ! -d findings ] || cp -r findings "$out/"
    return $code
}
do_report() {
    do_build || return
    set --
    for file in "$out"/*.jsonl; do
        # The merged shards stand for themselves.
        case $file in */verify*.jsonl | */quick*.jsonl) ;; *) set -- "$@" "$file" ;; esac
    done
    for run in quick verify; do
        ls "$out/$run"-*.jsonl >/dev/null 2>&1 || continue
        "$attest" report merge -o "$out/$run.jsonl" "$out/$run"-*.jsonl || return
        set -- "$@" "$out/$run.jsonl"
    done
    [ -e "$out/kernels.info" ] && set -- --coverage "$out/kernels.info" "$@"
    [ -e "$baseline" ] && set -- --against "$baseline" "$@"
    "$attest" report --out "$out/report" --date "$date" "$@"
}

# A title and a body, from what every step has left in OUT.
issue_text() {
    failed=$(grep -Lx 0 "$out"/*.status | sed 's|.*/||; s|\.status$||' | tr '\n' ' ')
    echo "# Nightly run of $date: ${failed% } failed"
    echo
    echo "Commit $(git rev-parse --short HEAD), seed $seed."
    for name in $failed; do
        printf '\n## %s: exit %s\n\n```\n' "$name" "$(cat "$out/$name.status")"
        # The failures themselves, each with the line that replays it; else how it ended.
        grep -aE -A6 '^(FAIL|ERROR|MISSED|WORSE|attest:)' "$out/$name.log" | head -n 60 |
            grep . || tail -n 25 "$out/$name.log"
        echo '```'
    done
}

for step in "$@"; do
    case $step in
    verify) name=verify-${shard%/*} ;;
    broken | corpora | sanitizers | fuzz | report) name=$step ;;
    *)
        echo "nightly: there is no step $step" >&2
        exit 2
        ;;
    esac
    start=$(date +%s)
    "do_$step" >"$out/$name.log" 2>&1
    code=$?
    echo "$code" >"$out/$name.status"
    printf '%-12s %6s s  exit %s\n' "$name" "$(($(date +%s) - start))" "$code"
done

worst=0
for status in "$out"/*.status; do
    case $(cat "$status") in
    0) ;;
    3) [ $worst = 0 ] && worst=3 ;;
    *) worst=1 ;;
    esac
done
rm -f "$out/issue.md"
[ $worst = 0 ] || issue_text >"$out/issue.md"
[ -e "$out/report.log" ] && tail -n 30 "$out/report.log"
exit $worst
