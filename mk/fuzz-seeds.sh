#!/bin/sh
# Writes the seeds of every fuzz target as files, for a build folder made with CONFIG=fuzz:
#   mk/fuzz-seeds.sh BUILD_DIR
# BUILD_DIR/seeds/TARGET/ gets a file for each case line of corpora/, and the files of
# corpora/seeds/TARGET.
set -eu
cd "$(dirname "$0")/.."
build=$1
rm -rf "$build/seeds"
mkdir -p "$build/seeds"
for f in corpora/*.txt corpora/seeds/*.txt corpora/regressions/*.txt; do
    [ -e "$f" ] && sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$f"
done | sort -u >"$build/seeds/cases.txt"
for family in dsa qsa; do
    "$build/fuzz_tool" ops $family >"$build/seeds/$family.ops"
done
split() { # target; cases on standard input
    mkdir -p "$build/seeds/$1"
    awk -v folder="$build/seeds/$1" \
        '{ f = sprintf("%s/case-%05d", folder, NR); print > f; close(f) }'
}
of_family() {
    awk -F: 'NR == FNR { known[$0]; next } $1 in known' "$build/seeds/$1.ops" \
        "$build/seeds/cases.txt"
}
of_family dsa | split dsa
of_family qsa | split qsa
split case <"$build/seeds/cases.txt"
split refusal <"$build/seeds/cases.txt"
for folder in corpora/seeds/*/; do
    [ -d "$folder" ] || continue
    target=$(basename "$folder")
    mkdir -p "$build/seeds/$target"
    cp "$folder"* "$build/seeds/$target/"
done
