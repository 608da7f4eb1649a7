#!/bin/bash -eu
# Builds the fuzz targets for ClusterFuzzLite and OSS-Fuzz: into $OUT, with $CC, $CXX, $CFLAGS,
# $CXXFLAGS and $LIB_FUZZING_ENGINE. Each target gets its seeds, dictionary and options; the kernels
# lie beside them in simt/, libcjson in lib/.
cd "$SRC/attest"

checks=
simt_flags=
if [ "${SANITIZER:-address}" = address ]; then
    # Undefined behaviour too. A kernel is entered through a pointer to a thunk of another language,
    # which newer compilers count as a call of another type.
    checks="-fsanitize=undefined -fno-sanitize-recover=undefined -fno-sanitize=function,vptr"
    simt_flags="--asan --fuzz"
fi
build=build/fuzz
make -j"$(nproc)" CONFIG=fuzz CC="$CC" CXX="$CXX" OPT_fuzz="$CFLAGS $checks" \
    LDFLAGS="$CXXFLAGS $checks -rdynamic -Wl,-rpath,'\$\$ORIGIN/lib'" SIMT_FLAGS="$simt_flags" \
    LIB_FUZZING_ENGINE="$LIB_FUZZING_ENGINE" fuzz-targets
mk/fuzz-seeds.sh $build

mkdir -p "$OUT/simt" "$OUT/lib"
cp $build/simt/*.so "$OUT/simt/"
cp -L "$(ldd $build/fuzz_case | awk '/libcjson/ { print $3 }')" "$OUT/lib/"
for source in fuzz/fuzz_*.c; do
    target=$(basename "$source" .c)
    cp $build/"$target" "$OUT/"
    [ ! -e $build/"$target".dict ] || cp $build/"$target".dict "$OUT/"
    cp .clusterfuzzlite/options "$OUT/$target.options"
    seeds=$build/seeds/${target#fuzz_}
    [ ! -d "$seeds" ] || (cd "$seeds" && find . -type f | zip -q -@ "$OUT/${target}_seed_corpus.zip")
done
