#!/bin/sh
# Line and branch coverage of kernels/ by the corpora.
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
[ $# -gt 0 ] || set -- corpora/*.txt corpora/seeds/*.txt corpora/regressions/*.txt corpora/golden/*.safetensors
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
# Seeds hold cases without rows, which reach code and prove nothing: errors for `run`, not here.
code=0
# shellcheck disable=SC2086  # names without spaces
LLVM_PROFILE_FILE="$PWD/$profiles/%m-%p%c.profraw" \
    "$build/attest" run $files --no-trace --no-relations --quiet --timeout 3600 \
    --watchdog 3600000 >"$build/coverage.log" || code=$?
tail -n 1 "$build/coverage.log"
[ $code = 0 ] || [ $code = 3 ] && tail -n 1 "$build/coverage.log" | grep -q ' 0 failed' || {
    echo "coverage: the corpora did not pass; see $build/coverage.log" >&2
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
            if (da[1] in from) print from[da[1]] ":L:" da[2]
        }
        # A condition of a line by its place there, and which way it went; "-" is neither.
        part == 2 && /^BRDA:/ {
            split(substr($0, 6), da, ",")
            if (da[1] in from) print from[da[1]] ":B" da[2] "," da[3] ":" (da[4] == "-" ? 0 : da[4])
        }' "$module.cc" "$profiles/lcov"
done >"$profiles/lines"

# One line or branch each, whatever the number of modules that have it.
sort -t: -k1,1 -k2,2n -k3,3 "$profiles/lines" | awk -F: '
    function flush_item() {
        if (kind == "L") printf "DA:%d,%d\n", line, count
        else if (kind) printf "BRDA:%d,%s,%d\n", line, substr(kind, 2), count
        kind = ""
    }
    $1 != file { flush_item(); if (file) print "end_of_record"; file = $1; print "SF:" file }
    $2 != line || $3 != kind { flush_item(); line = $2; kind = $3; count = 0 }
    { count += $4 }
    END { flush_item(); if (file) print "end_of_record" }' >"$build/kernels.info.new"
mv "$build/kernels.info.new" "$build/kernels.info"
awk -F'[:,]' '/^DA/ { lines++; covered += $3 > 0 }
    /^BRDA/ { branches++; taken += $5 > 0 }
    END {
        printf "coverage of kernels/: %d of %d lines, %d of %d branches\n", covered, lines, taken,
            branches
    }' "$build/kernels.info"
