#!/bin/sh
# Line coverage of kernels/ by the corpora.
#
#   mk/coverage.sh BUILD_DIR [FILE…]
#
# BUILD_DIR holds attest and modules built with mk/simt-module.sh --coverage. Replays the FILEs (cases
# or captured ones; all of corpora/ if none is named) and writes BUILD_DIR/kernels.info in lcov's
# format, for `attest report --coverage`. A line that several modules have counts once. Lines of the
# backend's own headers are left out.
set -eu
build=$1
shift
[ $# -gt 0 ] || set -- corpora/*.txt corpora/regressions/*.txt corpora/golden/*.safetensors
profdata=$(command -v llvm-profdata || command -v llvm-profdata-14) || {
    echo "coverage: llvm-profdata is not here (package llvm)" >&2
    exit 3
}
cov=$(command -v llvm-cov || command -v llvm-cov-14)

profiles=$build/profiles
rm -rf "$profiles"
mkdir -p "$profiles"
files=
for file in "$@"; do
    [ -e "$file" ] && files="$files $file"
done
# %c: the counters live in the file, so that a process that is ended loses nothing.
# shellcheck disable=SC2086  # names without spaces
LLVM_PROFILE_FILE="$PWD/$profiles/%m-%p%c.profraw" \
    "$build/attest" run $files --no-trace --no-relations --quiet --timeout 3600 \
    --watchdog 3600000 || {
    echo "coverage: the corpora did not pass" >&2
    exit 1
}
"$profdata" merge -sparse -o "$profiles/all.profdata" "$profiles"/*.profraw

# Coverage speaks of the rewritten source; its line markers say where each line came from.
for module in "$build"/simt/*.so; do
    case $module in *.trace.so | */selftest_*) continue ;; esac
    "$cov" export -format=lcov -instr-profile "$profiles/all.profdata" "$module" >"$profiles/lcov"
    awk 'FNR == 1 { part++ }
        part == 1 && /^# [0-9]+ "/ {
            split($0, quoted, "\"")
            file = quoted[2]
            sub(/^\.\//, "", file)
            next_line = $2
            next
        }
        part == 1 { if (file ~ /^kernels\//) from[FNR] = file ":" next_line; next_line++ }
        part == 2 && /^DA:/ {
            split(substr($0, 4), da, ",")
            if (da[1] in from) print from[da[1]] ":" da[2]
        }' "$module.cc" "$profiles/lcov"
done >"$profiles/lines"

sort -t: -k1,1 -k2,2n "$profiles/lines" | awk -F: '
    function flush_line() { if (line) printf "DA:%d,%d\n", line, count; line = 0 }
    $1 != file { flush_line(); if (file) print "end_of_record"; file = $1; print "SF:" file }
    $2 != line { flush_line(); line = $2; count = 0 }
    { count += $3 }
    END { flush_line(); if (file) print "end_of_record" }' >"$build/kernels.info.new"
mv "$build/kernels.info.new" "$build/kernels.info"
awk -F'[:,]' '/^DA/ { lines++; covered += $3 > 0 }
    END { printf "coverage of kernels/: %d of %d lines\n", covered, lines }' "$build/kernels.info"
