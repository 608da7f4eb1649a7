#!/bin/sh
# Who may include whom, as docs/design.md says: ref knows nothing else; kernels know nothing else;
# gpu knows gpu; harness knows gpu and ref; fuzz knows all three. In harness each folder knows those
# named here. Prints every include that goes against it. A unit test may include anything of harness.
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

known=
room() { # folder of harness, folders that it may know: some of those named before it
    room=$1
    shift
    for folder; do
        case " $known " in
        *" $folder "*) ;;
        *) echo "mk/arrows.sh: harness/$room knows harness/$folder, which does not come before it"; bad=1 ;;
        esac
    done
    known="$known $room"
    allowed=$(echo "$room $*" | tr ' ' '|')
    found=$(grep -nE '#[[:space:]]*include[[:space:]]*"' "harness/$room"/*.[ch] | grep -v '/test_' |
        grep -vE "\"(gpu|ref)/|\"harness/($allowed)/[^/]*\"" || true)
    [ -z "$found" ] && return
    echo "$found"
    bad=1
}
room base
room case
room ops case
room judge base case
room files base case
room run case judge
room verify base case judge run
room captured base case files judge run verify
room session base case files judge run verify captured
room search base case judge run verify session
room fuzz case judge run verify session search
room bench case judge run verify
room report base case files judge
room cli base case judge files run verify captured session search fuzz bench report
for folder in harness/*/; do
    folder=$(basename "$folder")
    case " $known " in
    *" $folder "*) ;;
    *) echo "mk/arrows.sh: harness/$folder is not in the table"; bad=1 ;;
    esac
done
[ $bad = 0 ] || { echo "arrows: the lines above go against docs/design.md"; exit 1; }
