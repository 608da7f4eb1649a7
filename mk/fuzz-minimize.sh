#!/bin/sh
# Rewrites the seeds in corpora/seeds from what `make fuzz` has grown in BUILD_DIR/corpus and from the
# seeds themselves: a small set that reaches the same code (a greedy set cover).
#   mk/fuzz-minimize.sh BUILD_DIR [OPERATION|TARGET]…      default: all of them
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
work=$build/minimize
export ATTEST_FUZZ_CLASSES=0
mkdir -p corpora/seeds

cover() { # target in out
    mkdir -p "$3"
    "$build/fuzz_$1" -set_cover_merge=1 -use_counters=0 -max_len=6144 -timeout=60 \
        -rss_limit_mb=4096 "$3" "$2" >"$work/log" 2>&1 || { tail -n 5 "$work/log"; exit 3; }
}
operation() { # family operation
    rm -rf "$work"
    mkdir -p "$work/in" "$build/corpus/$1"
    seeds=corpora/seeds/$2.txt
    {
        [ ! -e "$seeds" ] || cat "$seeds"
        find "$build/corpus/$1" -type f -exec awk 1 {} +
    } | "$build/fuzz_tool" cases "$2" | sort -u |
        awk -v folder="$work/in" '{ f = folder "/" NR; print > f; close(f) }'
    ATTEST_FUZZ_OP=$2 cover "$1" "$work/in" "$work/out"
    {
        echo "# Cases of $2 that reach what longer fuzzing reached (mk/fuzz-minimize.sh)."
        find "$work/out" -type f -exec cat {} + | sort
    } >"$seeds.part"
    mv "$seeds.part" "$seeds"
    echo "$seeds: $(find "$work/in" -type f | wc -l) cases, $(($(wc -l <"$seeds") - 1)) kept"
}
files() { # target
    seeds=corpora/seeds/$1
    rm -rf "$work"
    mkdir -p "$work/in" "$seeds"
    for folder in "$seeds" "$build/corpus/$1"; do
        [ ! -d "$folder" ] || find "$folder" -type f -size -9 -exec cp {} "$work/in/" \;
    done
    # Bare cases, and those that are refused before their inputs are looked at, are in the
    # operations' own seeds.
    if [ "$1" = refusal ]; then
        mkdir -p "$work/edited"
        grep -rla ']=' "$work/in" | xargs -r "$build/fuzz_tool" accepted |
            xargs -r cp -t "$work/edited"
        rm -rf "$work/in"
        mv "$work/edited" "$work/in"
    fi
    [ -n "$(ls "$work/in")" ] || return 0
    cover "$1" "$work/in" "$work/out"
    rm -f "$seeds"/*
    find "$work/out" -type f -exec mv {} "$seeds/" \;
    rmdir --ignore-fail-on-non-empty "$seeds"
    echo "$seeds: $(find "$work/in" -type f | wc -l) files, $(find "$seeds" -type f | wc -l) kept"
}
wanted() { # name; the rest of the command line chooses
    name=$1
    shift
    [ $# = 0 ] && return 0
    for word; do [ "$word" != "$name" ] || return 0; done
    return 1
}

for family in dsa qsa; do
    for op in $("$build/fuzz_tool" ops $family); do
        ! wanted "$op" "$@" || operation $family "$op"
    done
done
for f in fuzz/fuzz_*.c; do
    target=$(basename "$f" .c)
    target=${target#fuzz_}
    case $target in dsa | qsa) continue ;; esac
    ! wanted "$target" "$@" || files "$target"
done
