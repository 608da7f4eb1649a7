#!/bin/bash
# Installs into a scratch folder and uses what is there, from another folder: the program with its
# modules, a kernel given as source, the manual page, the completion. Removes all of it again.
#   mk/test-install.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/.."
config=$(basename "$1")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
source=$PWD/examples/bisect_topk.cu
make install CONFIG="$config" DESTDIR="$stage" PREFIX=/usr >/dev/null
attest=$stage/usr/bin/attest
man=$stage/usr/share/man/man1/attest.1
(
    cd /
    "$attest" verify qsa_score --cases 2 --geometries 10 --quiet
    "$attest" verify qsa_topk_rows --source "$source" --cases 2 --geometries 0 --no-trace --quiet
)
for command in verify bisect list; do
    grep -q "^.SH \"ATTEST ${command^^}\"" "$man" || { echo "the manual page lacks $command"; exit 1; }
done
complete_words() { # the words typed so far, the last one incomplete
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _attest
    echo " ${COMPREPLY[*]} "
}
# shellcheck source=/dev/null
. "$stage/usr/share/bash-completion/completions/attest"
cd "$stage"
expect() { # what must be among the completions of the words behind it
    word=$1
    shift
    complete_words "$@" | grep -q -- " $word " || { echo "'$*' is not completed to $word"; exit 1; }
}
expect verify "$attest" ver
expect --no-trace "$attest" run --no
expect qsa_gather "$attest" verify qsa_g
expect cuda "$attest" verify --backend c
cd - >/dev/null
make uninstall CONFIG="$config" DESTDIR="$stage" PREFIX=/usr >/dev/null
left=$(find "$stage" -not -type d)
[ -z "$left" ] || { echo "uninstall left: $left"; exit 1; }
echo "installed, used and removed"
