# Mechanical mutants of a kernel file, one change each, in the format of kernels/broken:
#   awk -v out=DIR -f mk/mutants.awk kernels/FILE
# writes DIR/FILE_LINE_N.edit for: comparison operators, + and -, && and ||, integer constants (+1),
# removed barriers. Comments, preprocessor lines and declarations of constants are left alone. A
# mutant belongs to the entry point that follows or holds the line.
FNR == 1 { name = FILENAME; sub(/.*\//, "", name); stem = name; gsub(/[^a-z0-9]/, "_", stem) }
{ text[FNR] = $0; lines = FNR }

function entry_of(n,    i) {
    for (i = n; i <= lines; i++)
        if (text[i] ~ /^extern "C" __global__/) return name_after(i)
    for (i = n; i > 0; i--)
        if (text[i] ~ /^extern "C" __global__/) return name_after(i)
    return ""
}
# Inside a kernel the line belongs to it, not to the next one.
function holder_of(n,    i) {
    for (i = n; i > 0; i--) {
        if (text[i] ~ /^}/ && i < n) return entry_of(n)
        if (text[i] ~ /^extern "C" __global__/) return name_after(i)
    }
    return entry_of(n)
}
function name_after(i,    all) {
    all = text[i] " " text[i + 1] " " text[i + 2]
    gsub(/__launch_bounds__\([^)]*\)/, "", all)
    sub(/^extern "C" __global__ void */, "", all)
    sub(/^ */, "", all)
    sub(/\(.*/, "", all)
    return all
}
function emit(n, at, length_, replacement, what,    file, line, op) {
    op = shared_op != "" ? shared_op : holder_of(n)
    if (op == "") return
    line = substr(text[n], 1, at - 1) replacement substr(text[n], at + length_)
    file = sprintf("%s/%s_%d_%d.edit", out, stem, n, ++count[n])
    printf "op: %s\nkind: MUTANT\nbug: %s:%d: %s\n", op, name, n, what >file
    if (only != "") printf "only: %s\n", only >file
    printf "file: %s\n<<<<\n%s\n%s\n%s\n====\n%s\n%s\n%s\n>>>>\n", name, text[n - 1], text[n],
        text[n + 1], text[n - 1], line, text[n + 1] >file
    close(file)
}
function each(n, code, pattern, replacement, what,    from, at, wide) {
    from = 1
    while (match(substr(code, from), pattern)) {
        at = from + RSTART - 1
        wide = RLENGTH
        emit(n, at, wide, replacement, what)
        from = at + wide - 1
    }
}
function constants(n, code,    from, at, word, value, before, wide) {
    from = 1
    while (match(substr(code, from), /[A-Za-z0-9_.]+/)) {
        at = from + RSTART - 1
        wide = RLENGTH
        word = substr(code, at, wide)
        before = substr(code, at - 1, 1)
        if (word ~ /^[0-9]+u?$/ && before != ".") {
            value = word
            sub(/u$/, "", value)
            emit(n, at, wide, (value + 1) (word ~ /u$/ ? "u" : ""), word " becomes " value + 1)
        }
        from = at + wide
    }
}
END {
    only = name ~ /\.cuh$/ ? name : ""
    # Headers without an entry point, by an operation that uses them; decode is a module of its own.
    if (name == "det_math.cuh" || name == "formats.cuh") { shared_op = "glm5next_dsa_mla_decode_fp8"; only = "" }
    if (name == "mma.cuh") { shared_op = "qsa_score_rows_tc"; only = "qsa_score_tc.cuh" }
    if (name == "rotation.cuh") { shared_op = "qsa_qprep_rows"; only = "qsa_prep.cuh" }
    for (n = 1; n < lines; n++) {
        code = text[n]
        if (comment) { if (code ~ /\*\//) comment = 0; continue }
        if (code ~ /^[ ]*\/\*/) { if (code !~ /\*\//) comment = 1; continue }
        if (code ~ /^[ ]*["#:]/ || code ~ /asm|__launch_bounds__|extern "C"|static_assert|pragma/) continue
        sub(/\/\*.*/, "", code)
        each(n, code, " < ", " <= ", "< becomes <=")
        each(n, code, " <= ", " < ", "<= becomes <")
        each(n, code, " > ", " >= ", "> becomes >=")
        each(n, code, " >= ", " > ", ">= becomes >")
        each(n, code, " == ", " != ", "== becomes !=")
        each(n, code, " != ", " == ", "!= becomes ==")
        each(n, code, " [+] ", " - ", "+ becomes -")
        each(n, code, " - ", " + ", "- becomes +")
        each(n, code, " [+]= ", " -= ", "+= becomes -=")
        each(n, code, " && ", " || ", "&& becomes ||")
        each(n, code, " \\|\\| ", " && ", "|| becomes &&")
        each(n, code, "__sync(threads|warp)\\(\\);", ";", "barrier removed")
        constants(n, code)
    }
}
