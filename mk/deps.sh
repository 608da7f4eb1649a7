#!/bin/sh
# Installs what the build needs and this machine lacks, with apt, as root or through sudo. Says what
# it does; does nothing when everything is there.
set -eu

packages="clang libclang-rt-14-dev llvm libcriterion-dev librandom123-dev \
libcjson-dev libmpfr-dev gnuplot-nox"

have() {
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'
}

command -v dpkg-query >/dev/null 2>&1 || {
    echo "deps: no dpkg here; install by hand the like of: $packages" >&2
    exit 0
}
missing=
for p in $packages; do
    have "$p" || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        echo "deps: missing:$missing" >&2
        echo "deps: neither root nor sudo; install them and run make again" >&2
        exit 3
    }
    sudo=sudo
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# The package list first as it is: on a machine that has one this saves half the time.
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 || {
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
