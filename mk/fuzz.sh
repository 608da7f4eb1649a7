#!/bin/sh
# Fuzzes with coverage until something is found or the time is up:
#   mk/fuzz.sh BUILD_DIR TARGET SECONDS [OPERATION]
# The corpus grows in BUILD_DIR/corpus/TARGET, findings go to findings/. FUZZ_FLAGS are passed on.
set -eu
cd "$(dirname "$0")/.."
build=$1 target=$2 seconds=$3 op=${4:-}
if [ ! -x "$build/fuzz_$target" ]; then
    echo "fuzz: name a target: make fuzz TARGET=NAME TIME=SECONDS; NAME is one of" >&2
    for f in fuzz/fuzz_*.c; do echo "  $(basename "$f" .c | sed 's/^fuzz_//')" >&2; done
    exit 2
fi
mk/fuzz-seeds.sh "$build"
mkdir -p "$build/corpus/$target" "$build/seeds/$target" findings
[ -z "$op" ] || export ATTEST_FUZZ_OP="$op"
dictionary=
[ ! -e "$build/fuzz_$target.dict" ] || dictionary=-dict=$build/fuzz_$target.dict
code=0
# shellcheck disable=SC2086 # the flags are words
"$build/fuzz_$target" -max_total_time="$seconds" -max_len=6144 -timeout=60 -rss_limit_mb=4096 \
    -print_final_stats=1 -entropic_scale_per_exec_time=1 \
    -artifact_prefix="findings/$target-" $dictionary ${FUZZ_FLAGS:-} \
    "$build/corpus/$target" "$build/seeds/$target" || code=$?
[ $code = 0 ] || {
    echo "fuzz: replay with  $build/fuzz_$target findings/$target-…"
    echo "fuzz: a case (dsa, qsa) also with  build/attest run findings/$target-…"
}
exit $code
