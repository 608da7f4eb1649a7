#!/bin/sh
# Builds the operation of docs/adding-an-operation.md from that page and runs it: right, then broken.
#   mk/test-example-operation.sh BUILD_DIR
# Of the built program everything is used but the table of operations.
set -eu
cd "$(dirname "$0")/.."
build=$1 page=docs/adding-an-operation.md
out=$build/example-operation
rm -rf "$out"
mkdir -p "$out/simt" "$out/ref" "$out/kernels" "$out/gpu" "$out/harness/ops"

# A line that is a file name in backquotes, then a fenced block.
awk -v out="$out" '
    /^`[a-z_\/.]+`$/ { file = out "/" substr($0, 2, length($0) - 2) }
    /^```/ { inside = !inside; if (!inside) file = ""; next }
    inside && file { print > file; lines++ }
    END { print lines + 0 > (out "/lines") }' "$page"
lines=$(cat "$out/lines")
[ "$lines" -gt 60 ] && [ "$lines" -lt 120 ] || {
    echo "$page: the operation has $lines lines; it is to be complete in under 120"
    exit 1
}

sed -e 's/^const struct op \*const op_table\[\] = {/extern const struct op op_scale_rows;\n&\n    \&op_scale_rows,/' \
    harness/ops/op_table.c >"$out/harness/ops/op_table.c"
objects=
for source in ref/scale_rows gpu/launch_scale_rows harness/ops/scale_rows harness/ops/op_table; do
    ${CC:-clang} -std=c17 -D_GNU_SOURCE -O1 -ffp-contract=off -Wall -Wextra -Werror \
        -Wno-unused-parameter -Wno-missing-field-initializers -I"$out" -I"$out/gpu" -I"$out/ref" \
        -I. -Igpu -Iref -c "$out/$source.c" -o "$out/$source.o"
    objects="$objects $out/$source.o"
done
rest=
for source in ref/*.c gpu/*.c gpu/*/*.c harness/*/*.c; do
    case $source in */test_* | harness/ops/op_table.c) continue ;; esac
    rest="$rest $build/obj/${source%.c}.o"
done
# shellcheck disable=SC2086
${CC:-clang} $objects $rest -rdynamic -o "$out/attest" -lm -ldl -lpthread -lcjson

run() { # expected exit code
    mk/simt-module.sh "$out/kernels/scale_rows.cu" "$out/simt/scale_rows.so"
    mk/simt-module.sh --trace "$out/kernels/scale_rows.cu" "$out/simt/scale_rows.trace.so"
    code=0
    "$out/attest" verify scale_rows --cases 40 --geometries 200 --quiet || code=$?
    [ $code = "$1" ] || { echo "scale_rows: exit $code, not $1"; exit 1; }
}
"$out/attest" list scale_rows >/dev/null
run 0
sed -i 's/ \* w\[col\]/ + w[col]/' "$out/kernels/scale_rows.cu"
run 1
