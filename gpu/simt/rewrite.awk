# Turns preprocessed CUDA C++ into C++ for the CPU backend and lists the kernels in it.
#
# Input: the output of `clang++ -E` with the shim headers, in which __global__ and __shared__ have
# become the words __simt_global__ and __simt_shared__. Output: the same text, in which
#   - `__shared__ T x[n];`        is a static variable in the section simt_shared, with a red zone
#                                 of its own behind it;
#   - `extern __shared__ T x[];`  is a reference to the block's dynamic shared memory;
#   - a table of thunks of the extern "C" kernels ends the file.
# Line markers are kept, so that messages and debug information name the user's lines.

BEGIN {
    depth = 0; inner = 0; paren = 0; count = 0; system_header = 0; c_scopes = 0; zones = 0
    n_entries = 0; file = ""; number = 0
    attribute = "__attribute__((section(\"simt_shared\"),used"
}

function put(token) { tokens[count++] = token }

function flush(    i) {
    for (i = 0; i < count; i++) printf "%s", tokens[i]
    count = 0
}

# The first word of the statement that equals `word`, or -1.
function find(word,    i) {
    for (i = 0; i < count; i++) if (tokens[i] == word) return i
    return -1
}

# The index behind an attribute's closing parenthesis.
function past_parens(i,    level) {
    level = 0
    for (; i < count; i++) {
        if (tokens[i] == "(") level++
        if (tokens[i] == ")" && --level == 0) return i + 1
    }
    return count
}

function is_word(token) { return token ~ /^[A-Za-z_]/ }

# The name of the function declared in the statement: the word before its parameter list.
function function_name(start,    i, last) {
    last = ""
    for (i = start; i < count; i++) {
        if (tokens[i] ~ /^__attribute/ || tokens[i] == "alignas" || tokens[i] == "noexcept") {
            i = past_parens(i) - 1
            last = ""
        } else if (tokens[i] == "(") {
            return last
        } else if (is_word(tokens[i])) {
            last = tokens[i]
        }
    }
    return ""
}

function has_c_linkage(    i, j) {
    if (c_scopes > 0) return 1
    i = find("extern")
    if (i < 0) return 0
    for (j = i + 1; j < count && tokens[j] ~ /^[ \t\n]*$/; j++) continue
    return tokens[j] == "\"C\""
}

function note_kernel(defined,    start, name) {
    start = find("__simt_global__")
    if (start < 0) return
    tokens[start] = "__attribute__((noinline))"
    if (find("template") >= 0) return
    name = function_name(start + 1)
    if (name == "") return
    if (has_c_linkage()) c_name[name] = 1
    if (defined && !(name in is_defined)) {
        is_defined[name] = 1
        entry[n_entries] = name
        qualified[n_entries++] = enclosing() name
    }
}

# The named namespaces around the statement, as "a::b::".
function enclosing(    i, text) {
    text = ""
    for (i = 0; i < depth; i++) text = text scope_name[i]
    return text
}

# The words behind `namespace`, as "a::b::"; nothing for an unnamed one.
function namespace_name(    i, text) {
    text = ""
    for (i = find("namespace") + 1; i < count; i++)
        if (is_word(tokens[i]) || tokens[i] == ":") text = text tokens[i]
    return text == "" ? "" : text "::"
}

# extern __shared__ T x[];  ->  a type of that declaration and a reference to the dynamic memory.
function rewrite_dynamic(shared,    i, name, at, type) {
    tokens[shared] = ""
    tokens[find("extern")] = "typedef"
    at = -1
    for (i = shared; i < count; i++) {
        if (tokens[i] ~ /^__attribute/ || tokens[i] == "alignas") i = past_parens(i) - 1
        else if (tokens[i] == "[") break
        else if (is_word(tokens[i])) at = i
    }
    if (at < 0) return
    name = tokens[at]
    type = "simt_dynamic_type_" name
    tokens[at] = type
    if (inner > 0) {
        tokens[count - 1] = "; " type " &" name " = *(" type " *)simt_dynamic_shared;"
        return
    }
    tokens[count - 1] = ";\n#define " name " (*(" type " *)simt_dynamic_shared)\n# " number \
        " \"" file "\"\n"
}

function rewrite_shared(    shared, i) {
    shared = find("__simt_shared__")
    if (shared < 0) return
    if (find("extern") >= 0) {
        rewrite_dynamic(shared)
        return
    }
    i = find("static")
    if (i >= 0) tokens[i] = ""
    tokens[shared] = "static " attribute "))"
    zone_at = depth + 1
}

function end_statement() {
    note_kernel(0)
    rewrite_shared()
    if (zone_at == depth + 1) {
        put(" static " attribute ",aligned(16))) unsigned char simt_red_zone_" zones++ "[64];")
        zone_at = 0
    }
    flush()
}

function open_brace(    kind) {
    kind = "block"
    scope_name[depth] = ""
    if (find("__simt_global__") < 0 && find("extern") >= 0 && has_c_linkage() && find("(") < 0 && \
        find("=") < 0) kind = "c"
    else if (find("namespace") >= 0) {
        kind = "namespace"
        scope_name[depth] = namespace_name()
    }
    note_kernel(1)
    rewrite_shared()
    flush()
    scope[depth] = kind
    saved_paren[depth] = paren
    depth++
    paren = 0
    if (kind == "c") c_scopes++
    if (kind == "block") inner++
}

function close_brace() {
    flush()
    if (depth == 0) return
    depth--
    paren = saved_paren[depth]
    if (scope[depth] == "c") c_scopes--
    if (scope[depth] == "block") inner--
}

function scan(line,    token) {
    while (line != "") {
        if (match(line, /^[A-Za-z_][A-Za-z0-9_]*/) || match(line, /^"([^"\\]|\\.)*"/) || \
            match(line, /^'([^'\\]|\\.)*'/) || match(line, /^[0-9][0-9A-Za-z_.']*/) || \
            match(line, /^[ \t]+/))
            token = substr(line, 1, RLENGTH)
        else
            token = substr(line, 1, 1)
        line = substr(line, length(token) + 1)
        put(token)
        if (token == "(") paren++
        else if (token == ")") paren--
        else if (token == "{") open_brace()
        else if (token == "}") close_brace()
        else if (token == ";" && paren == 0) end_statement()
    }
}

/^# [0-9]+ "/ {
    number = $2
    match($0, /"([^"\\]|\\.)*"/)
    file = substr($0, RSTART + 1, RLENGTH - 2)
    system_header = substr($0, RSTART + RLENGTH) ~ / 3/
    put($0 "\n")
    if (count == 1) flush()
    next
}

system_header || /^#/ {
    put($0 "\n")
    if (count == 1) flush()
    number++
    next
}

{
    scan($0)
    put("\n")
    if (count == 1) flush()
    number++
}

END {
    flush()
    printf "\n# 1 \"simt-module-table\"\n"
    printf "static const struct simt_entry simt_entries[] = {\n"
    listed = 0
    for (i = 0; i < n_entries; i++) {
        if (!(entry[i] in c_name)) continue
        printf "    simt_thunk<&%s>::entry(\"%s\"),\n", qualified[i], entry[i]
        listed++
    }
    printf "    {nullptr, nullptr, 0, nullptr}};\n"
    printf "extern \"C\" __attribute__((visibility(\"default\"),used)) "
    printf "const simt_module_table simt_module_table_v1 = {simt_abi_version, %d, ", listed
    printf "simt_entries, __start_simt_shared, __stop_simt_shared, simt_traced, \"%s\"};\n", source
}
