#!/bin/sh
# Shows that a regression is found: in a scratch clone of HEAD with 30 more commits, a kernel is broken
# five commits back and a commit close to it does not build. Needs build/attest.
#   mk/bisect-drill.sh [NAME]      a kernel of kernels/broken (default topk_ties_by_last_index)
set -eu
cd "$(dirname "$0")/.."
name=${1:-topk_ties_by_last_index}
attest=$PWD/build/attest
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
case_text=$(sed -n 's/^case: //p' "kernels/broken/$name.edit")
git clone -q . "$scratch/clone"
cd "$scratch/clone"
commit() { git -c user.name=drill -c user.email=drill@localhost commit -qam "$1"; }
for n in $(seq 1 30); do
    case $n in
    23) # does not build, and is where bisection looks
        echo "this is not C;" >>harness/base/text.c
        commit "Change $n, which does not build" ;;
    24)
        sed -i '$d' harness/base/text.c
        commit "Change $n, which builds again" ;;
    26) # five commits back from the last
        "$attest" broken --write "kernels/broken/$name.edit" kernels "$scratch/src" >/dev/null
        cp "$scratch"/src/*.cu* kernels/
        commit "Change $n: the kernel, a little faster" ;;
    *)
        echo "/* Change $n. */" >>kernels/det_math.cuh
        commit "Change $n" ;;
    esac
done
echo "looking for: $(git log -1 --format='%h %s' HEAD~4)"
start=$(date +%s)
"$attest" bisect --good HEAD~30 --bad HEAD "$case_text"
echo "took $(($(date +%s) - start)) s"
