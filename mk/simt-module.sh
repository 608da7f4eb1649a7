#!/bin/sh
# Builds a CUDA source file as a module of the CPU backend.
#
#   mk/simt-module.sh [--trace] [--asan] [--fuzz] [--coverage] [--arch N] [--quiet] SRC.cu OUT.so
#
#   --trace   every load and store calls the runtime, which checks it
#   --asan    AddressSanitizer and UndefinedBehaviorSanitizer, for hosts built with them
#   --fuzz    coverage for fuzzing, for hosts with fuzz/coverage.c
#   --coverage  clang's line coverage; keeps the source that it speaks of as OUT.so.cc
#   --arch    __CUDA_ARCH__ is N (900); without it, undefined
#   --quiet   errors only, no warnings
#
# Works from any directory. Compiler messages go to stderr as they are. Writes OUT.d for make.
# Inline PTX becomes C++ by build/simt-ptx (make build), or by the program SIMT_PTX names.
# CXX names the compiler (clang++ 14 or newer), ARCH the instruction set (x86-64-v3).
set -eu

usage() {
    echo "usage: simt-module.sh [--trace] [--asan] [--fuzz] [--coverage] [--arch N] [--quiet]" \
        "SRC.cu OUT.so" >&2
    exit 2
}

trace=0 asan=0 fuzz=0 coverage=0 arch='' quiet=0
while [ $# -gt 0 ]; do
    case $1 in
    --trace) trace=1 ;;
    --asan) asan=1 ;;
    --fuzz) fuzz=1 ;;
    --coverage) coverage=1 ;;
    --quiet) quiet=1 ;;
    --arch)
        case ${2-} in '' | *[!0-9]*) usage ;; esac
        arch=$2
        shift
        ;;
    --) shift; break ;;
    -*) usage ;;
    *) break ;;
    esac
    shift
done
[ $# -eq 2 ] || usage
src=$1 out=$2
[ -r "$src" ] || { echo "simt-module.sh: cannot read $src" >&2; exit 2; }

root=$(cd "$(dirname "$0")/.." && pwd)
simt=$root/gpu/simt
src_dir=$(dirname "$src")
cxx=${CXX:-clang++}
rewritten=$out.cc

# Shared static variables and their red zones keep their order in one section; no contraction and no
# fast-math, as everywhere.
flags="-std=c++17 -O2 -march=${ARCH:-x86-64-v3} -ffp-contract=off -fno-fast-math -fPIC -g"
flags="$flags -fvisibility=hidden -fno-exceptions -fno-plt -ffile-prefix-map=$PWD/="
# Without tail calls a call into the runtime returns to the line that made it.
flags="$flags -fno-optimize-sibling-calls"
flags="$flags -Wno-unknown-attributes -Wno-pass-failed -DATTEST_SIMT=1"
# Code for nvcc looks at values through pointers of other types.
[ -z "$arch" ] || flags="$flags -D__CUDA_ARCH__=$arch -fno-strict-aliasing"
[ $quiet = 0 ] || flags="$flags -w"
link="-shared -Wl,-Bsymbolic"
if [ $trace = 1 ]; then
    # AddressSanitizer's kernel flavour is only a source of callbacks here: it covers every access of
    # every width, memcpy included, and keeps the optimiser from inventing loads.
    flags="$flags -DSIMT_TRACE=1 -fsanitize=kernel-address"
    for option in instrumentation-with-call-threshold=0 memory-access-callback-prefix=simt_ \
        stack=0 globals=0 opt=0; do
        flags="$flags -mllvm -asan-$option"
    done
    link="$link -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset"
elif [ $asan = 1 ]; then
    # Undefined behaviour traps, and the trap becomes a finding like any other fault.
    flags="$flags -O1 -fsanitize=address,undefined -fsanitize-trap=undefined"
    # The fences see a pointer that went wrong; asking about each addition takes three times as long to
    # compile as everything else.
    flags="$flags -fno-sanitize=pointer-overflow -fno-omit-frame-pointer"
fi
# Flags, not counters: a counter of 8 bits that each of 256 threads counts up says 0. fuzz/coverage.c
# hands them to the engine. Comparisons and stack depth are not watched: they say little here.
[ $fuzz = 0 ] || flags="$flags -fsanitize-coverage=edge,inline-bool-flag,pc-table"

# Counters in a mapped file: worker processes end without running what waits for their end.
[ $coverage = 0 ] ||
    flags="$flags -fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation"

# What coverage speaks of stays, once the module is there.
scratch=$rewritten
trap 'rm -f ${scratch:+"$scratch"} "$out.ii" "$out.cxx.ii" "$out.log" "$out.tmp"' EXIT
mkdir -p "$(dirname "$out")"

# shellcheck disable=SC2086  # the flags are words
preprocess() { # options
    $cxx -E -x c++ $flags -isystem "$simt/include" -I "$src_dir" -I "$root/kernels" \
        -include cuda_runtime.h "$@" -MD -MP -MT "$out" -MF "${out%.so}.d" "$src" -o "$out.ii"
}

# Whether asm occurs outside system headers.
has_asm() {
    awk '/^# [0-9]+ "/ { system_header = $0 ~ /" .*3/; next }
         !system_header && /(^|[^A-Za-z0-9_])(asm|__asm|__asm__)([^A-Za-z0-9_]|$)/ {
             found = 1
             exit
         }
         END { exit !found }' "$out.ii"
}

preprocess
if has_asm; then
    ptx=${SIMT_PTX:-$root/build/simt-ptx}
    [ -x "$ptx" ] || {
        echo "simt-module.sh: $src has inline PTX, and $ptx is not there" >&2
        exit 2
    }
    preprocess -include simt_ptx.h
    "$ptx" "$out.ii" >"$out.cxx.ii"
    mv "$out.cxx.ii" "$out.ii"
fi
awk -v source="$src" -f "$simt/rewrite.awk" "$out.ii" >"$rewritten"
# shellcheck disable=SC2086
compile() { $cxx -x c++ $flags $link "$rewritten" -o "$out.tmp" -lm; }
if [ -z "${ptx-}" ]; then
    compile
else # an instruction that is not modelled is a call that must not be: only what it means is said
    status=0
    compile 2>"$out.log" || status=$?
    awk '/: error: call to .*simt_not_modelled_/ {
             sub(/call to .*simt_not_modelled_.* declared with .error. attribute: /, "")
             if (!said[$0]++) print # once, however often it is inlined
             skip = 2; next
         }
         skip > 0 && !/: (error|warning): / { skip--; next }
         { skip = 0; print }' "$out.log" >&2
    [ $status = 0 ] || exit $status
fi
mv "$out.tmp" "$out"
[ $coverage = 0 ] || scratch=
