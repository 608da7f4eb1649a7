#!/bin/sh
# Which source files need each other: a file needs those that define what it refers to. Prints every
# circle of such files and fails if there is one.
#   mk/circles.sh OBJECTS_DIR
#
# harness/ops/op_table.o is left out: it lists the descriptors for those who know only op_find.
set -eu
cd "$1"
find ref gpu harness -name '*.o' ! -name 'test_*' ! -path harness/ops/op_table.o |
while read -r object; do
    # An object of a source that is gone or was moved may still lie here.
    [ ! -e "$OLDPWD/${object%.o}.c" ] || nm -A "$object"
done | LC_ALL=C awk -F: '
{
    n = split($2, field, " ")
    name = field[n]; kind = field[n - 1]
    if (kind == "U") refers[$1, name]
    else if (kind ~ /^[A-TV-Z]$/) defined_in[name] = $1
}
END {
    for (pair in refers) {
        split(pair, half, SUBSEP)
        there = defined_in[half[2]]
        if (there != "" && there != half[1]) print half[1], there
    }
}' | sort -u >circles.pairs
[ -s circles.pairs ] || { echo "circles: no objects in $1"; exit 1; }
tsort circles.pairs >/dev/null 2>circles.found || true
if [ -s circles.found ]; then
    sed -e 's/^tsort: //; s/\.o$/.c/; s/^circles.pairs: input/a circle, there may be more: input/' circles.found
    echo "circles: the files above need each other"
    exit 1
fi
