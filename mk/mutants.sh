#!/bin/sh
# Mechanical mutants of the kernels: each must be caught.
#   mk/mutants.sh OUT SHARE [FILE…]
# Builds one of SHARE mutants (1: all of them) of the FILEs (default: all kernels) into OUT, runs
# `attest broken` on each, and prints those that survived. Needs build/attest. JOBS: processes; CASES:
# random cases for each (default 500; of decode twice that).
set -u
cd "$(dirname "$0")/.."
out=$1 share=$2
shift 2
[ $# -gt 0 ] || set -- kernels/dsa_indexer.cu kernels/glm5next_dsa_mla_decode.cu kernels/*.cuh
rm -rf "$out"
mkdir -p "$out/all" "$out/edits"
for file; do awk -v out="$out/all" -f mk/mutants.awk "$file"; done
# Every SHARE-th by name, so that every file has its part.
find "$out/all" -name '*.edit' | LC_ALL=C sort | awk -v share="$share" 'NR % share == 0' |
    xargs cp -t "$out/edits"
echo "mutants: $(ls "$out/all" | wc -l), of which $(ls "$out/edits" | wc -l) are run"
rm -rf "$out/all"

# A text that stands twice, or a mutant that does not compile, is no mutant.
# shellcheck disable=SC2016 # expanded by the inner shell
find "$out/edits" -name '*.edit' | xargs -P "${JOBS:-$(nproc)}" -I{} sh -c '
    name=$(basename {} .edit)
    folder=$(dirname {})
    build/attest broken --write {} kernels "$folder/$name.src" >/dev/null 2>&1 &&
        mk/simt-module.sh "$folder/$name.src"/*.cu "$folder/$name.so" >/dev/null 2>&1 &&
        if grep -q "barrier removed" {}; then
            mk/simt-module.sh --trace "$folder/$name.src"/*.cu "$folder/$name.trace.so" >/dev/null 2>&1
        fi ||
        mv {} {}.unbuilt
    rm -rf "$folder/$name.src"'
echo "not compiled, or not to be told apart in the text: $(find "$out/edits" -name '*.unbuilt' | wc -l)"
build/attest broken --edits "$out/edits" --jobs "${JOBS:-$(nproc)}" --cases "${CASES:-500}"
