#!/bin/sh
# Fuzzes broken kernels, each from an empty corpus on one core, until it is found:
#   mk/fuzz-planted.sh BUILD_DIR SECONDS [NAME…]      default: all of kernels/broken
# A line for each: kernel, operation, executions, seconds, the check that found it.
# Exit code 1 if one was not found. BUILD_DIR is one made with CONFIG=fuzz. JOBS: kernels at a time.
set -u
cd "$(dirname "$0")/.."
build=$1 seconds=$2
shift 2
if [ $# = 0 ]; then
    for f in kernels/broken/*.edit; do set -- "$@" "$(basename "$f" .edit)"; done
fi

row() { printf '%-36s %-30s %10s %8s  %s\n' "$@"; }
elapsed() { awk -v from="$1" -v to="$(date +%s.%N)" 'BEGIN { printf "%.1f", to - from }'; }

with_coverage() { # name op family: 0 if found
    folder=$build/planted/$1
    start=$(date +%s.%N)
    ATTEST_FUZZ_OP=$2 ATTEST_FUZZ_MODULES=$folder "$build/fuzz_$3" -seed=1 \
        -max_total_time="$seconds" -max_len=6144 -timeout=60 -rss_limit_mb=4096 \
        -print_final_stats=1 -dict="$build/fuzz_$3.dict" -artifact_prefix="$folder/" \
        "$folder/corpus" >"$folder/log" 2>&1
    took=$(elapsed "$start")
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/log")
    grep -aq '^FAIL' "$folder/log" || return 1
    row "$1" "$2" "${runs:-?}" "$took" \
        "$(grep -a -A1 '^FAIL' "$folder/log" | sed -n 's/^  check //p' | head -n 1)"
}

one() { # name
    edit=kernels/broken/$1.edit
    folder=$build/planted/$1
    rm -rf "$folder"
    mkdir -p "$folder/corpus"
    words=$("$build/fuzz_tool" plant "$edit" kernels "$folder/src") || return 3
    op=${words% *} module=${words#* }
    case $op in qsa_* | paged_*) family=qsa ;; *) family=dsa ;; esac
    mk/simt-module.sh --asan --fuzz "$folder"/src/*.cu "$folder/$module.so" || return 3
    with_coverage "$1" "$op" $family && return
    row "$1" "$op" "${runs:-?}" "$took" "NOT found"
    return 1
}

mkdir -p "$build/planted"
failed=0
if [ "${JOBS:-1}" -gt 1 ]; then
    printf '%s\n' "$@" | JOBS=1 xargs -P "$JOBS" -n 1 "$0" "$build" "$seconds" || failed=1
else
    for name; do one "$name" || failed=1; done
fi
exit $failed
