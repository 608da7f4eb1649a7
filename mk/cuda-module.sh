#!/bin/sh
# Builds a device module: machine code for each architecture listed, and PTX for later ones.
#   mk/cuda-module.sh [--one-arch] SRC.cu OUT.fatbin
# --one-arch: machine code for the first architecture only, and its PTX, which takes a fraction of
# the time; the device that runs it compiles the rest.
# Writes OUT.fatbin and OUT.d (make rules for the headers read). Environment: NVCC (compiler),
# CUDA_ARCHS (default "90 100 120 121"; those the compiler does not know are left out).
# Exit status 77: there is no nvcc, nothing was built.
set -eu

one=
if [ "${1:-}" = --one-arch ]; then
    one=1
    shift
fi
if [ $# -ne 2 ]; then
    echo "usage: $0 [--one-arch] SRC.cu OUT.fatbin" >&2
    exit 2
fi
source=$1 out=$2

nvcc=${NVCC:-}
if [ -z "$nvcc" ]; then
    for candidate in nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
        if command -v "$candidate" >/dev/null 2>&1; then
            nvcc=$candidate
            break
        fi
    done
fi
if [ -z "$nvcc" ] || ! command -v "$nvcc" >/dev/null 2>&1; then
    echo "$0: no nvcc (looked for NVCC, nvcc on the PATH, CUDA_HOME): $out is not built" >&2
    exit 77
fi

# A compiler that does not list an architecture would stop at it.
known=$("$nvcc" --list-gpu-code)
code=
for arch in ${CUDA_ARCHS:-90 100 120 121}; do
    case "
$known
" in
    *"
sm_$arch
"*) code="$code -gencode arch=compute_$arch,code=sm_$arch" ;;
    esac
    [ -z "$one" ] || [ -z "$code" ] || break
done
if [ -z "$code" ]; then
    echo "$0: $nvcc knows none of the architectures ${CUDA_ARCHS:-90 100 120 121}" >&2
    exit 1
fi

# No contraction, no flush to zero, correctly rounded division and square root: a kernel's bits are
# those its source says. -lineinfo names the line in a sanitizer's report and changes no code.
flags="-std=c++17 -O3 -lineinfo -fmad=false -ftz=false -prec-div=true -prec-sqrt=true"
mkdir -p "$(dirname "$out")"
# shellcheck disable=SC2086 # both are lists of words
"$nvcc" $flags $code -gencode arch=compute_90,code=compute_90 \
    -fatbin -MD -MP -MT "$out" -MF "${out%.*}.d" -o "$out.part" "$source"
mv "$out.part" "$out"
