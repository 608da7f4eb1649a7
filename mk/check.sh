#!/bin/sh
# Runs every test and ends with one plain line: N passed, N failed (, N skipped).
#   mk/check.sh BUILD_DIR
set -u
build=$1
passed=0 failed=0 skipped=0
log=$build/check.log
: >"$log"

count() { # passed failed skipped
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}
step() { # name command...: one test that is its exit code; 77 is a skip
    name=$1
    shift
    start=$(date +%s)
    "$@" >"$build/step.log" 2>&1
    code=$?
    cat "$build/step.log" >>"$log"
    took=$(($(date +%s) - start))
    case $code in
    0) count 1 0 0; printf 'ok    %-44s %4s s\n' "$name" "$took" ;;
    77) count 0 0 1; printf 'skip  %-44s %4s s  %s\n' "$name" "$took" "$(tail -n 1 "$build/step.log")" ;;
    *) count 0 1 0; printf 'FAIL  %-44s %4s s  exit %s\n' "$name" "$took" "$code"; tail -n 40 "$build/step.log" ;;
    esac
}

unit_tests() {
    start=$(date +%s)
    "$build/test_runner" -j2 >"$build/step.log" 2>&1
    cat "$build/step.log" >>"$log"
    line=$(grep -a 'Synthesis:' "$build/step.log" | tail -n 1 | sed 's/\x1b\[[0-9;]*m//g')
    tested=$(echo "$line" | sed -n 's/.*Tested: *\([0-9]*\).*/\1/p')
    good=$(echo "$line" | sed -n 's/.*Passing: *\([0-9]*\).*/\1/p')
    left=$(grep -ac '\[SKIP\]' "$build/step.log")
    if [ -z "$tested" ] || [ "$tested" = 0 ]; then
        count 0 1 0
        echo "FAIL  unit tests: the runner gave no result"
        tail -n 20 "$build/step.log"
        return
    fi
    # A skipped test counts as passing for the runner; here it does not.
    count "$((good - left))" "$((tested - good))" "$left"
    printf '%s %-44s %4s s  %s\n' "$([ "$good" = "$tested" ] && echo 'ok   ' || echo 'FAIL ')" \
        "unit tests" "$(($(date +%s) - start))" "$good of $tested, $left skipped"
    grep -aE '\[(FAIL|----|SKIP)\]' "$build/step.log" | sed 's/\x1b\[[0-9;]*m//g' | head -n 60
}

broken_kernels() {
    start=$(date +%s)
    "$build/attest" broken >"$build/step.log" 2>&1
    cat "$build/step.log" >>"$log"
    line=$(grep -a '^broken kernels:' "$build/step.log")
    caught=$(echo "$line" | sed -n 's/.*: \([0-9]*\) caught.*/\1/p')
    missed=$(echo "$line" | sed -n 's/.*, \([0-9]*\) missed.*/\1/p')
    if [ -z "$caught" ]; then
        count 0 1 0
        echo "FAIL  broken kernels: no result"
        tail -n 20 "$build/step.log"
        return
    fi
    count "$caught" "$missed" 0
    printf '%s %-44s %4s s  %s\n' "$([ "$missed" = 0 ] && echo 'ok   ' || echo 'FAIL ')" \
        "broken kernels, each caught" "$(($(date +%s) - start))" "$caught caught, $missed missed"
    [ "$missed" = 0 ] || grep -a -A6 '^MISSED' "$build/step.log"
}

step "arrows between folders" mk/arrows.sh
step "no circles of files" mk/circles.sh "$build/obj"
unit_tests
step "verify, 40 cases an operation" "$build/attest" verify --cases 40 --geometries 10000 --quiet
broken_kernels
step "broken kernels, by random cases alone" "$build/attest" broken --random 3 --quiet
step "reads past each input, caught" "$build/attest" fences
refused() { # file: nothing but cases that are refused
    "$build/attest" run "$1" --quiet
    [ $? = 2 ] && tail -n 1 "$build/step.log" | grep -q '^[1-9].* 0 passed, 0 failed, .* 0 errors'
}
for f in corpora/*.txt corpora/regressions/*.txt; do
    case $f in
    *_long.txt | *_large.txt) continue ;; # minutes each: for the nightly run
    */refused.txt) step "replay $f" refused "$f"; continue ;;
    esac
    [ -e "$f" ] && step "replay $f" "$build/attest" run "$f" --quiet
done
step "the page on adding an operation, built and run" mk/test-example-operation.sh "$build"
step "install, manual page, completion" mk/test-install.sh "$build"
step "kernels given as source" mk/test-source.sh "$build"
step "golden vectors" "$build/attest" run corpora/golden/*.safetensors --quiet
step "attest fuzz, 10 s" "$build/attest" fuzz --budget 10 --quiet --findings "$build/findings"
step "fuzz smoke" make fuzz-smoke
step "GPU backend" "$build/attest" verify --backend cuda --cases 40 --quiet
if [ $skipped = 0 ]; then
    echo "$passed passed, $failed failed"
else
    echo "$passed passed, $failed failed, $skipped skipped"
fi
[ $failed = 0 ]
