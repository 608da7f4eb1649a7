#!/bin/sh
# Everything worth doing on a machine with a GPU, in one go and in minutes. Takes what is built
# (BUILD_DIR/attest, cuda/, simt/); GPU modules that are missing are compiled where nvcc is. What
# cannot be done here is "left out" and named. Run from the project's folder.
#   mk/device-check.sh BUILD_DIR OUT_DIR
# Writes OUT_DIR/table.txt, bench.jsonl and logs.tar.gz (details of every step).
# Environment: DEVICE_CHECK_S, seconds for everything (default 470); a step that finds fewer than 15
# of them left fails.
# Exit: 0 nothing failed, 1 something failed, 2 usage, 77 no device.
set -u
if [ $# -ne 2 ] || [ ! -x "$1/attest" ]; then
    echo "usage: $0 BUILD_DIR OUT_DIR (with BUILD_DIR/attest)" >&2
    exit 2
fi
build=$1 out=$2 attest=$1/attest
mkdir -p "$out/logs"
logs=$out/logs table=$out/table.txt failed=0 passed=0
jobs=$(nproc)
end=$(($(date +%s) + ${DEVICE_CHECK_S:-470}))

say() { # verdict name seconds note
    printf '%-8s %-34s %4s s  %s\n' "$1" "$2" "$3" "$4" | tee -a "$table"
}
left_out() { # name why
    say "left out" "$1" 0 "$2"
}
# One step with its time limit; its output goes to a log, its last line to the table.
step() { # name log limit_s command...
    name=$1 log=$logs/$2 limit=$3
    shift 3
    start=$(date +%s)
    left=$((end - start))
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -lt 15 ]; then
        failed=$((failed + 1))
        say FAIL "$name" 0 "not started: the time is used up"
        return
    fi
    timeout -k 5 "$limit" "$@" >"$log" 2>&1
    code=$?
    took=$(($(date +%s) - start))
    note=$(tail -n 1 "$log" | cut -c 1-100)
    verdict "$code"
}
verdict() { # code; uses name, took, note, limit
    case $1 in
    0) passed=$((passed + 1)); say ok "$name" "$took" "$note" ;;
    77) left_out "$name" "$note" ;;
    124 | 137) failed=$((failed + 1)); say FAIL "$name" "$took" "not finished in $limit s" ;;
    *) failed=$((failed + 1)); say FAIL "$name" "$took" "exit $1: $note" ;;
    esac
}

# GPU modules: those of the kernels and those of the broken kernels.
missing_modules() { # prints "SOURCE TARGET FLAG" lines
    for source in kernels/*.cu; do
        target=$build/cuda/$(basename "$source" .cu).fatbin
        [ -e "$target" ] || echo "$source $target"
    done
    for edit in kernels/broken/*.edit; do
        name=$(basename "$edit" .edit)
        target=$build/broken-cuda/$name.fatbin
        [ -e "$target" ] && continue
        folder=$build/device-check/$name
        rm -rf "$folder"
        mkdir -p "$build/device-check"
        "$attest" broken --write "$edit" kernels "$folder" >/dev/null || continue
        echo "$(echo "$folder"/*.cu) $target --one-arch"
    done
}
find_nvcc() { # sets nvcc
    nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
    [ -x "$nvcc" ]
}
build_modules() {
    missing_modules >"$logs/missing.txt"
    count=$(wc -l <"$logs/missing.txt")
    if [ "$count" = 0 ]; then
        echo "all GPU modules are there"
        return 0
    fi
    find_nvcc || { echo "$count GPU modules are missing and there is no nvcc"; return 77; }
    xargs -P "$jobs" -n 1 -d '\n' sh -c \
        'set -- $1; CUDA_ARCHS="${CUDA_ARCHS:-90}" mk/cuda-module.sh $3 "$1" "$2"' sh \
        <"$logs/missing.txt" || return 1
    echo "$count GPU modules compiled"
}

# A sanitizer's run counts only if every process it watched says that it found nothing.
sanitize() { # tool
    timeout -k 5 90 compute-sanitizer --tool "$1" --target-processes all --error-exitcode 9 \
        "$attest" verify --backend cuda --jobs 1 --cases 3 --geometries 0 --no-relations --quiet \
        --watchdog 60000 --timeout 80 >"$logs/sanitizer-$1.log" 2>&1
    echo $? >"$logs/sanitizer-$1.code"
}
sanitizer_verdict() { # tool
    name="compute-sanitizer $1" log=$logs/sanitizer-$1.log limit=90
    code=$(cat "$logs/sanitizer-$1.code")
    note=$(grep -E '^=+ (ERROR|RACECHECK) SUMMARY' "$log" | sort | uniq -c | tail -n 1 |
        sed 's/^ *//' | cut -c 1-100)
    if [ "$code" = 0 ] && [ -z "$note" ]; then
        code=1 note="no summary: nothing was watched"
    elif [ "$code" = 0 ] && grep -E '^=+ (ERROR|RACECHECK) SUMMARY' "$log" |
        grep -qvE 'SUMMARY: 0 (errors|hazards)'; then
        code=1
    fi
    verdict "$code"
}
sanitizers() {
    if ! command -v compute-sanitizer >/dev/null; then
        left_out compute-sanitizer "not installed"
        return
    fi
    start=$(date +%s)
    pids=
    for tool in memcheck racecheck initcheck synccheck; do
        sanitize $tool &
        pids="$pids $!"
    done
    # shellcheck disable=SC2086 # a list
    wait $pids
    took=$(($(date +%s) - start))
    for tool in memcheck racecheck initcheck synccheck; do sanitizer_verdict $tool; done
}

verify_cuda() {
    "$attest" verify --backend cuda --jobs "$jobs" --json >"$logs/cuda.jsonl"
}
verify_simt() {
    "$attest" verify --jobs "$jobs" --no-trace --no-relations --geometries 0 --json \
        >"$logs/simt.jsonl"
}
golden() {
    set -- corpora/golden/*.safetensors
    [ -e "$1" ] || return 77
    "$attest" run "$@" --backend cuda --jobs "$jobs" --quiet
}
corpus() {
    set -- corpora/*.txt corpora/regressions/*.txt
    files=
    for f; do [ -e "$f" ] && files="$files $f"; done
    # shellcheck disable=SC2086 # a list
    [ -n "$files" ] && "$attest" run $files --backend cuda --jobs "$jobs" --quiet
}
bench() {
    "$attest" bench --json >"$out/bench.jsonl"
}
broken_modules() {
    ls "$build"/broken-cuda/*.fatbin >/dev/null 2>&1 || { echo "none is built"; return 77; }
    "$attest" broken --backend cuda --jobs "$jobs"
}
# The seconds a run reports: contexts and modules included.
rate_of() { # file
    sed -n 's/^\([0-9]*\) cases: .*; \([0-9.]*\) s.*/\1 \2/p' "$1" | tail -n 1 |
        awk '{ printf "%d", $1 / $2 }'
}
# With relations every case drawn brings changed ones, which are launched and compared as well.
throughput() {
    decode=glm5next_dsa_mla_decode_fp8
    set -- verify $decode --backend cuda --jobs "$jobs" --geometries 0
    "$attest" "$@" --no-relations --cases 40000 --quiet >"$logs/rate.txt" || return 1
    "$attest" "$@" --cases 5000 --json >"$logs/rate.jsonl" 2>"$logs/rate-related.txt" || return 1
    changed=$(sed 's/.*"relation":\([0-9]*\).*/\1/' "$logs/rate.jsonl" |
        awk '{ n += $1 } END { printf "%.1f", n / NR }')
    rm "$logs/rate.jsonl"
    echo "decode cases a second: $(rate_of "$logs/rate.txt");" \
        "with relations $(rate_of "$logs/rate-related.txt") and $changed changed ones with each"
}
# Kernels in another style than the project's, compiled as their owners would; and one that is wrong.
elsewhere() {
    find_nvcc || { echo "there is no nvcc"; return 77; }
    folder=$build/device-check/elsewhere
    mkdir -p "$folder"
    sed 's/scale \* k_scale, v_scale/scale, v_scale/' examples/two_pass_decode.cu \
        >"$folder/wrong_decode.cu"
    "$nvcc" -cubin -arch=native -o "$folder/two_pass_decode.cubin" examples/two_pass_decode.cu &
    "$nvcc" -ptx -arch=native -o "$folder/bisect_topk.ptx" examples/bisect_topk.cu &
    "$nvcc" -fatbin -arch=native -o "$folder/wrong_decode.fatbin" "$folder/wrong_decode.cu" &
    wait
    set -- --backend cuda --jobs "$jobs" --cases 200 --geometries 0 --quiet
    "$attest" verify glm5next_dsa_mla_decode_fp8 "$@" --module "$folder/two_pass_decode.cubin" &&
        "$attest" verify qsa_topk_rows "$@" --module "$folder/bisect_topk.ptx" || return 1
    "$attest" verify glm5next_dsa_mla_decode_fp8 "$@" --cases 20 \
        --module "$folder/wrong_decode.fatbin"
    [ $? = 1 ] || { echo "the wrong kernel was not caught"; return 1; }
    echo "two kernels in another style (cubin, PTX) are right, one without the K scale is caught"
}
# A kernel that hangs, or faults, for some sequence lengths: the cases concerned fail and the others
# pass, whether the workers are threads of one process or processes.
verdicts() { # module processes
    "$attest" verify glm5next_dsa_mla_decode_fp8 --backend cuda --module "$1" --jobs "$jobs" \
        --processes "$2" --cases 60 --geometries 0 --no-relations --watchdog 1000 --json |
        sed -n 's/.*"case":"\([^"]*\)".*"verdict":"\([a-z]*\)","check":"\([^"]*\)".*/\2 \3 \1/p' |
        sort
}
survives() {
    found=
    find_nvcc || { echo "there is no nvcc"; return 77; }
    folder=$build/device-check/survives
    mkdir -p "$folder"
    sed 's/^    size_t seq = blockIdx.y, row/    while (*(volatile const int *)seq_lens % 31 == 12) {}\n&/' \
        examples/two_pass_decode.cu >"$folder/hang.cu"
    sed 's/^    size_t seq = blockIdx.y, row/    if (*seq_lens % 31 == 12) out[1ull << 40] = out[0];\n&/' \
        examples/two_pass_decode.cu >"$folder/fault.cu"
    for kind in hang fault; do
        "$nvcc" -fatbin -arch=native -o "$folder/$kind.fatbin" "$folder/$kind.cu" || return 1
        verdicts "$folder/$kind.fatbin" 1 >"$folder/$kind.threads"
        verdicts "$folder/$kind.fatbin" "$jobs" >"$folder/$kind.processes"
        cmp "$folder/$kind.threads" "$folder/$kind.processes" || return 1
        failed=$(grep -c "^fail $kind " "$folder/$kind.threads")
        others=$(grep -vc "^fail $kind \|^pass " "$folder/$kind.threads")
        passed=$(grep -c '^pass ' "$folder/$kind.threads")
        found="$found$kind: $failed cases fail, $passed pass; "
        [ "$failed" -gt 0 ] && [ "$passed" -gt 100 ] && [ "$others" = 0 ] || { echo "$found"; return 1; }
    done
    echo "${found}the same by threads and by processes"
}
fences() {
    "$attest" fences --backend cuda --jobs "$jobs"
}

# `timeout` runs programs, not shell functions: a step of this file is this file run for it.
if [ "${DEVICE_CHECK_STEP:-}" ]; then
    "$DEVICE_CHECK_STEP"
    exit $?
fi
own() { # name log limit_s function
    step "$1" "$2" "$3" env DEVICE_CHECK_STEP="$4" sh "$0" "$build" "$out"
}

: >"$table"
"$attest" bench qsa_qprep --json >"$logs/probe.log" 2>&1
if [ $? = 77 ]; then
    tail -n 1 "$logs/probe.log"
    exit 77
fi
own "GPU modules" modules.log 150 build_modules
step "GPU backend, self-test" selftest.log 100 "$attest" selftest-cuda
step "replay at other lengths" replay.log 30 "$attest" replay --backend cuda
own "bench" bench.log 90 bench
own "throughput" throughput.log 90 throughput
own "verify on the GPU" verify-cuda.log 120 verify_cuda
own "verify on the CPU, same cases" verify-simt.log 120 verify_simt
step "same bits on both" agree.log 30 "$attest" report agree "$logs/cuda.jsonl" "$logs/simt.jsonl"
own "golden vectors" golden.log 60 golden
own "corpora" corpus.log 60 corpus
own "reads past each input, caught" fences.log 60 fences
own "kernels from elsewhere" elsewhere.log 90 elsewhere
own "hangs and faults cost one case" survives.log 60 survives
own "broken kernels, each caught" broken.log 90 broken_modules
sanitizers
if [ $failed = 0 ]; then verdict=passed; else verdict=FAILED; fi
printf '%s: %s passed, %s failed\n' "$verdict" "$passed" "$failed" | tee -a "$table"
tar -C "$out" -czf "$out/logs.tar.gz" logs && rm -rf "$logs"
[ $failed = 0 ]
