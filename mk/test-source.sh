#!/bin/bash
# Kernels from elsewhere given as source: the examples are right, each changed in one place they are
# wrong, and what the CPU backend does not model is said.
#   mk/test-source.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/.."
attest=$1/attest
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
decode='glm5next_dsa_mla_decode_fp8:seqs=2,heads=2,len=[9,70],kscale=0.37,seed=0x1f'
topk='qsa_topk_rows:rows=3,pos=40,ratio=4,topk=8,regime=equal,seed=0x2'
model=tensor_core=1,p_bf16=1

expect() { # exit code, text that must be said, command...
    code=$1 text=$2
    shift 2
    got=0
    "$@" >"$stage/out" 2>"$stage/err" || got=$?
    [ "$got" = "$code" ] && grep -qF -- "$text" "$stage/out" "$stage/err" && return
    echo "exit $got, not $code, or without '$text':" "$@"
    cat "$stage/out" "$stage/err"
    exit 1
}
changed() { # sed program, example: the changed copy, which must differ
    sed "$1" "examples/$2" >"$stage/$2"
    ! cmp -s "$stage/$2" "examples/$2" || { echo "no such place in $2: $1"; exit 1; }
}
run() { "$attest" run "$@"; }

expect 0 ' 1 passed' run "$topk" --source examples/bisect_topk.cu
expect 0 ' 1 passed' run "$decode" --source examples/two_pass_decode.cu
expect 0 ' 1 passed' run "$decode" --source examples/ptx_decode.cu --model $model

# Values read as if they were transposed; a copy used before it has arrived; a missing barrier.
changed 's/x4.trans.shared/x4.shared/' ptx_decode.cu
expect 1 'elements of out are wrong' run "$decode" --source "$stage/ptx_decode.cu" --model $model
changed 's/wait_copies<1>/wait_copies<2>/' ptx_decode.cu
expect 1 'nan' run "$decode" --source "$stage/ptx_decode.cu" --model $model
changed '/st.shared.v4.b32/,/^    __syncthreads();/{/^    __syncthreads();/d}' ptx_decode.cu
expect 1 'FAIL' run "$decode" --source "$stage/ptx_decode.cu" --model $model
changed 's/&& j < i/\&\& j > i/' bisect_topk.cu
expect 1 'FAIL' run "$topk" --source "$stage/bisect_topk.cu"

# Not modelled: the instruction and its line; nothing runs.
changed 's/ex2.approx.f32/ex2.unknown.f32/' ptx_decode.cu
line=$(grep -n 'ex2.unknown' "$stage/ptx_decode.cu" | cut -d: -f1)
expect 2 "ptx_decode.cu:$line:" run "$decode" --source "$stage/ptx_decode.cu" --model $model
expect 2 "error: PTX instruction 'ex2.unknown.f32' is not modelled on the CPU backend" \
    run "$decode" --source "$stage/ptx_decode.cu" --model $model

# What a kernel prints goes to standard error; a warning is said once though two modules are built.
changed '1i #warning seen\n#include <stdio.h>' bisect_topk.cu
sed -i 's/    using namespace bisect_topk;/&\n    if (threadIdx.x == 7) printf("here\\n");/' \
    "$stage/bisect_topk.cu"
expect 0 '[block 0,0,0 thread 7,0,0] here' run "$topk" --source "$stage/bisect_topk.cu" --json
[ "$(grep -c 'warning: seen' "$stage/err")" = 1 ] || {
    echo "one warning expected"
    cat "$stage/err"
    exit 1
}
! grep -q here "$stage/out" || { echo "the kernel printed into the JSON lines"; exit 1; }
echo "kernels given as source: ok"
