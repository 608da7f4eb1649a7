#!/bin/sh
# Who may include whom: ref knows nothing else; kernels know nothing else; gpu knows gpu; harness
# knows gpu and ref; fuzz knows all three. Prints every include that goes against it.
set -eu
cd "$(dirname "$0")/.."
bad=0
forbid() { # folder, pattern of what its files may not include
    found=$(grep -rnE "#[[:space:]]*include[[:space:]]*[<\"](\.\./)*($2)/" "$1" \
        --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' || true)
    [ -z "$found" ] && return
    echo "$found"
    bad=1
}
forbid ref 'gpu|kernels|harness|fuzz'
forbid kernels 'ref|gpu|harness|fuzz'
forbid gpu 'ref|harness|fuzz|kernels'
forbid harness 'fuzz|kernels'
[ $bad = 0 ] || { echo "arrows: the includes above go against docs/design.md"; exit 1; }
