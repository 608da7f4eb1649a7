/* The instructions that are modelled.
 *
 * A pattern is the name, its parts separated by spaces:
 *   add     this part           ?a|b    one of them or none; means nothing here (cache hints)
 *   !a|b    one of them, passed to the function as a template argument
 *   ~a|b    the same, `none` when absent
 *   :a|b    a type, passed as the C++ type it stands for
 *   #       .v2, .v4, .x1, .x2, .x4 or nothing: the length of vector operands
 * The operand list: "=" marks the result, "?" what may be left out; T and S are the first and the
 * second type of the name, u s h U f F p fixed ones (uint32_t, int32_t, uint16_t, uint64_t, float,
 * double, predicate); A an address, v a vector of whatever parts; behind the letter * is a vector
 * of the length that # gave, a digit behind # one of that length, ^ a register that may be wider
 * than the type, | an optional second result, a predicate.
 * The functions are in include/simt_ptx*.h. */
#include "ptx.h"

#include <stdlib.h>
#include <string.h>

#define INTS "u16|s16|u32|s32|u64|s64"
#define INT32S "u32|s32|u64|s64"
#define ANY_INTS "u8|s8|u16|s16|u32|s32|u64|s64"
#define BITS "b16|b32|b64"
#define SMALL "f16|f16x2|bf16|bf16x2"
#define MEMORY "b8|b16|b32|b64|u8|s8|u16|s16|u32|s32|u64|s64|f32|f64"
#define REGISTERS "b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64"
#define SPACE "~global|shared|shared::cta|shared::cluster"
#define SCOPE "?cta|cluster|gpu|sys"
#define LEVEL                                                                               \
    "?L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate " \
    "?L2::evict_normal|L2::evict_first|L2::evict_last "
#define HINT "?L2::cache_hint "
#define PREFETCH "?L2::64B|L2::128B|L2::256B "
#define COMPARE "!eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
#define COMPARED REGISTERS "|f16|bf16"
#define ROUND "~rn|rz|rm|rp"
#define SYNC_OPS "!add|min|max|and|or|xor"

static const struct ptx_rule moves[] = {
    {"mov :" REGISTERS, "=T T", "mov"},
    {"mov :pred", "=T T", "mov"},
    {"mov :" REGISTERS, "=T v", "pack"},
    {"mov :" REGISTERS, "=v T", "mov"},
    {"selp :" REGISTERS, "=T T T p", "selp"},
    {"prmt b32", "=u u u u", "prmt"},
    {"cvta to " SPACE " :u32|u64", "=T T", "to_space"},
    {"cvta " SPACE " :u32|u64", "=T T", "from_space"},
    {"isspacep !global|shared|shared::cta", "=p U", "is_space"},
    {"createpolicy fractional ?L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
     "?L2::evict_first|L2::evict_unchanged :b64",
     "=T ?f", "cache_policy"},
};

static const struct ptx_rule integers[] = {
    {"add ~sat :" INTS, "=T T T", "add"},
    {"sub ~sat :" INTS, "=T T T", "sub"},
    {"mul !lo|hi :" INTS, "=T T T", "mul"},
    {"mul wide :u16|s16|u32|s32", "=W T T", "mul_wide"},
    {"mad !lo|hi :" INTS, "=T T T T", "mad"},
    {"mad wide :u16|s16|u32|s32", "=W T T W", "mad_wide"},
    {"mul24 lo :u32|s32", "=T T T", "mul24"},
    {"div :" INTS, "=T T T", "div"},
    {"rem :" INTS, "=T T T", "rem"},
    {"sad :u32|s32", "=T T T T", "sad"},
    {"dp4a u32 u32", "=u u u u", "dp4a"},
    {"dp4a s32 s32", "=s s s s", "dp4a"},
    {"abs :s16|s32|s64", "=T T", "abs"},
    {"neg :s16|s32|s64", "=T T", "neg"},
    {"min :" INTS, "=T T T", "min_int"},
    {"max :" INTS, "=T T T", "max_int"},
    {"and :pred|" BITS, "=T T T", "bit_and"},
    {"or :pred|" BITS, "=T T T", "bit_or"},
    {"xor :pred|" BITS, "=T T T", "bit_xor"},
    {"not :pred|" BITS, "=T T", "bit_not"},
    {"cnot :" BITS, "=T T", "cnot"},
    {"shl :" BITS, "=T T u", "shl"},
    {"shr :" BITS "|" INTS, "=T T u", "shr"},
    {"shf !l|r !wrap|clamp b32", "=u u u u", "shf"},
    {"bfe :" INT32S, "=T T u u", "bfe"},
    {"bfi :b32|b64", "=T T T u u", "bfi"},
    {"lop3 b32", "=u u u u u", "lop3"},
    {"popc :b32|b64", "=u T", "popc"},
    {"clz :b32|b64", "=u T", "clz"},
    {"brev :b32|b64", "=T T", "brev"},
    {"bfind ~shiftamt :" INT32S, "=u T", "bfind"},
};

static const struct ptx_rule floats[] = {
    {"add " ROUND " ~ftz ~sat :f32", "=T T T", "add_float"},
    {"sub " ROUND " ~ftz ~sat :f32", "=T T T", "sub_float"},
    {"mul " ROUND " ~ftz ~sat :f32", "=T T T", "mul_float"},
    {"fma !rn|rz|rm|rp ~ftz ~sat :f32", "=T T T T", "fma_float"},
    {"mad !rn|rz|rm|rp ~ftz ~sat :f32", "=T T T T", "fma_float"},
    {"add " ROUND " :f64", "=T T T", "add_float"},
    {"sub " ROUND " :f64", "=T T T", "sub_float"},
    {"mul " ROUND " :f64", "=T T T", "mul_float"},
    {"fma !rn|rz|rm|rp :f64", "=T T T T", "fma_float"},
    {"div !rn|rz|rm|rp ~ftz :f32|f64", "=T T T", "div_float"},
    {"div approx|full ~ftz :f32", "=T T T", "div_approx"},
    {"rcp !rn|rz|rm|rp ~ftz :f32|f64", "=T T", "rcp_float"},
    {"sqrt !rn|rz|rm|rp ~ftz :f32|f64", "=T T", "sqrt_float"},
    {"rcp approx ~ftz :f32", "=T T", "rcp_approx"},
    {"sqrt approx ~ftz :f32", "=T T", "sqrt_approx"},
    {"rsqrt approx ~ftz :f32", "=T T", "rsqrt_approx"},
    {"ex2 approx ~ftz :f32", "=T T", "ex2_approx"},
    {"lg2 approx ~ftz :f32", "=T T", "lg2_approx"},
    {"sin approx ~ftz :f32", "=T T", "sin_approx"},
    {"cos approx ~ftz :f32", "=T T", "cos_approx"},
    {"tanh approx :f32", "=T T", "tanh_approx"},
    {"abs ~ftz :f32|f64", "=T T", "abs_float"},
    {"neg ~ftz :f32|f64", "=T T", "neg_float"},
    {"min ~ftz ~NaN :f32|f64", "=T T T", "min_float"},
    {"max ~ftz ~NaN :f32|f64", "=T T T", "max_float"},
    {"copysign :f32|f64", "=T T T", "copysign_float"},
    {"testp !finite|infinite|number|notanumber|normal|subnormal :f32|f64", "=p T", "testp"},
    {"add ?rn :" SMALL, "=T T T", "add_small"},
    {"sub ?rn :" SMALL, "=T T T", "sub_small"},
    {"mul ?rn :" SMALL, "=T T T", "mul_small"},
    {"fma rn :" SMALL, "=T T T T", "fma_small"},
    {"min :" SMALL, "=T T T", "min_small"},
    {"max :" SMALL, "=T T T", "max_small"},
    {"neg :" SMALL, "=T T", "neg_small"},
    {"abs :" SMALL, "=T T", "abs_small"},
    {"setp " COMPARE " ~ftz :" COMPARED, "=p|p T T", "setp"},
    {"setp " COMPARE " !and|or|xor ~ftz :" COMPARED, "=p|p T T p", "setp_with"},
};

static const struct ptx_rule conversions[] = {
    {"cvt ~sat :" ANY_INTS " :" ANY_INTS, "=T^ S^", "cvt_int"},
    {"cvt !rni|rzi|rmi|rpi ~ftz ~sat :" ANY_INTS " :f32|f64|f16|bf16", "=T^ S", "cvt_to_int"},
    {"cvt !rn ~ftz ~sat :f32|f64|f16|bf16 :" ANY_INTS, "=T S^", "cvt_from_int"},
    {"cvt !rni|rzi|rmi|rpi ~ftz ~sat :f32 f32", "=T T", "cvt_to_integral"},
    {"cvt !rni|rzi|rmi|rpi :f64 f64", "=T T", "cvt_to_integral"},
    {"cvt ~ftz ~sat :f32 f32", "=T T", "cvt_same"},
    {"cvt ~ftz ~sat :f32 :f16|bf16", "=T S", "cvt_widen"},
    {"cvt ~ftz :f64 :f32|f16|bf16", "=T S", "cvt_widen"},
    {"cvt rn ~ftz ~sat :f32 :f64", "=T S", "cvt_narrow"},
    {"cvt rn ~ftz ~sat :f16 :f32|f64", "=T S", "cvt_narrow"},
    {"cvt rn ~relu :bf16 :f32", "=T S", "cvt_narrow_relu"},
    {"cvt rn ~relu :f16 :f32", "=T S", "cvt_narrow_relu"},
    {"cvt rz ~relu :bf16 :f32", "=T S", "cvt_truncate"},
    {"cvt rn ~relu :f16x2|bf16x2 f32", "=T f f", "cvt_pair"},
    {"cvt rn satfinite ~relu :e4m3x2|e5m2x2 f32", "=T f f", "cvt_to_fp8"},
    {"cvt rn satfinite ~relu :e4m3x2|e5m2x2 :f16x2", "=T S", "cvt_half_to_fp8"},
    {"cvt rn ~relu :f16x2 :e4m3x2|e5m2x2", "=T S", "cvt_from_fp8"},
};

static const struct ptx_rule memory[] = {
    {"ld ?weak " SPACE " ?ca|cg|cs|lu|cv ?nc " LEVEL HINT PREFETCH "# :" MEMORY, "=T*^ A ?U", "ld"},
    {"ld !volatile " SPACE " # :" MEMORY, "=T*^ A", "ld_strong"},
    {"ld !relaxed|acquire " SCOPE " " SPACE " " LEVEL HINT PREFETCH "# :" MEMORY, "=T*^ A ?U",
     "ld_strong"},
    {"ldu " SPACE " # :" MEMORY, "=T*^ A", "ld"},
    {"st ?weak " SPACE " ?wb|cg|cs|wt " LEVEL HINT "# :" MEMORY, "A T*^ ?U", "st"},
    {"st !volatile " SPACE " # :" MEMORY, "A T*^", "st_strong"},
    {"st !relaxed|release " SCOPE " " SPACE " " LEVEL HINT "# :" MEMORY, "A T*^ ?U", "st_strong"},
    {"prefetch ?global L1|L2", "A", "prefetch"},
    {"prefetch ?global L2::evict_last|L2::evict_normal", "A", "prefetch"},
    {"atom ~relaxed|acquire|release|acq_rel " SCOPE " " SPACE
     " !add|min|max|and|or|xor|exch|inc|dec :b32|u32|s32|b64|u64|s64|f32|f64",
     "=T A T", "atom"},
    {"atom ~relaxed|acquire|release|acq_rel " SCOPE " " SPACE " cas :b32|b64|u32|u64|s32|s64",
     "=T A T T", "atom_cas"},
    {"red ~relaxed|release " SCOPE " " SPACE
     " !add|min|max|and|or|xor|inc|dec :b32|u32|s32|b64|u64|s64|f32|f64",
     "A T", "red"},
    {"cp async ca|cg shared|shared::cta global " HINT PREFETCH, "A A u ?u", "cp_async"},
    {"cp async ca|cg shared|shared::cta global L2::cache_hint " PREFETCH, "A A u U",
     "cp_async_hint"},
    {"cp async ca|cg shared|shared::cta global L2::cache_hint " PREFETCH, "A A u u U",
     "cp_async_hint"},
    {"cp async commit_group", "", "cp_async_commit"},
    {"cp async wait_group", "u", "cp_async_wait"},
    {"cp async wait_all", "", "cp_async_wait_all"},
};

static const struct ptx_rule collectives[] = {
    {"ldmatrix sync aligned m8n8 # ~trans ?shared|shared::cta b16", "=u* A", "ldmatrix"},
    {"stmatrix sync aligned m8n8 # ~trans ?shared|shared::cta b16", "A u*", "stmatrix"},
    {"mma sync aligned m16n8k16 row col f32 bf16 bf16 f32", "=f#4 u#4 u#2 f#4", "mma_bf16"},
    {"shfl sync !up|down|bfly|idx b32", "=u| u u u u", "shfl"},
    {"vote sync !all|any|uni pred", "=p p u", "vote"},
    {"vote sync ballot b32", "=u p u", "ballot"},
    {"match any sync :b32|b64", "=u T u", "match_any"},
    {"match all sync :b32|b64", "=u| T u", "match_all"},
    {"redux sync " SYNC_OPS " :b32|u32|s32", "=T T u", "redux"},
    {"activemask b32", "=u", "activemask"},
    {"elect sync", "=u| u", "elect"},
    {"bar sync", "u ?u", "bar_sync"},
    {"bar cta sync", "u ?u", "bar_sync"},
    {"barrier ?cta sync ?aligned", "u ?u", "bar_sync"},
    {"bar ?cta red !popc u32", "=u u p", "bar_red"},
    {"bar ?cta red !and|or pred", "=p u p", "bar_red"},
    {"bar warp sync", "u", "bar_warp_sync"},
    {"membar !cta|gl|sys", "", "fence"},
    {"fence ?sc|acq_rel !cta|cluster|gpu|sys", "", "fence"},
    {"nanosleep u32", "u", "nanosleep"},
    {"trap", "", "trap"},
    {"brkpt", "", "trap"},
    {"griddepcontrol wait|launch_dependents", "", "griddepcontrol"},
};

#define GROUP(rules)                        \
    {                                       \
        rules, sizeof rules / sizeof *rules \
    }
static const struct {
    const struct ptx_rule *rules;
    size_t n;
} groups[] = {GROUP(moves),       GROUP(integers), GROUP(floats),
              GROUP(conversions), GROUP(memory),   GROUP(collectives)};
#define N_GROUPS (sizeof groups / sizeof *groups)

static const char *cxx_type(const char *name, size_t n)
{
    static const struct {
        const char *name, *type;
    } types[] = {
        {"pred", "bool"},
        {"b8", "uint8_t"},
        {"u8", "uint8_t"},
        {"s8", "int8_t"},
        {"b16", "uint16_t"},
        {"u16", "uint16_t"},
        {"s16", "int16_t"},
        {"b32", "uint32_t"},
        {"u32", "uint32_t"},
        {"s32", "int32_t"},
        {"b64", "uint64_t"},
        {"u64", "uint64_t"},
        {"s64", "int64_t"},
        {"f32", "float"},
        {"f64", "double"},
        {"f16", "__half"},
        {"bf16", "__nv_bfloat16"},
        {"f16x2", "__half2"},
        {"bf16x2", "__nv_bfloat162"},
        {"e4m3x2", "__nv_fp8x2_e4m3"},
        {"e5m2x2", "__nv_fp8x2_e5m2"},
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == n && memcmp(types[i].name, name, n) == 0) return types[i].type;
    return NULL;
}

/* Whether the part [name, name + n) is one of "a|b|c". */
static bool is_choice(const char *choices, size_t length, const char *name, size_t n)
{
    for (size_t at = 0; at <= length;) {
        const char *bar = memchr(choices + at, '|', length - at);
        size_t size = bar ? (size_t)(bar - choices) - at : length - at;
        if (size == n && memcmp(choices + at, name, n) == 0) return true;
        at += size + 1;
    }
    return false;
}

static void note_modifier(struct ptx_match *m, const char *name, size_t n)
{
    char *modifier = m->modifiers[m->n_modifiers++];

    snprintf(modifier, sizeof m->modifiers[0], "%.*s", (int)n, name);
    for (; *modifier; modifier++)
        if (*modifier == ':') *modifier = '_';
}

/* One part of a pattern against one of a name; n is 0 behind the name's end. True when the part
 * goes with the pattern's; *taken then says whether it was used up. */
static bool match_part(struct ptx_match *m, const char *pattern, size_t length, const char *name,
                       size_t n, bool *taken)
{
    char kind = *pattern;
    bool special = strchr("?!~:", kind) != NULL;

    *taken = false;
    if (kind == '#') {
        *taken = n == 2 && (*name == 'v' || *name == 'x') && strchr("1248", name[1]);
        if (*taken) m->vector = name[1] - '0';
        return true;
    }
    *taken = n > 0 && is_choice(pattern + special, length - special, name, n);
    if (kind == ':' && *taken) m->types[m->n_types++] = cxx_type(name, n);
    if ((kind == '!' || kind == '~') && *taken) note_modifier(m, name, n);
    if (kind == '~' && !*taken) note_modifier(m, "none", 4);
    return *taken || kind == '?' || kind == '~';
}

static bool match_name(const struct ptx_rule *rule, const char *name, struct ptx_match *m)
{
    const char *pattern = rule->pattern;

    memset(m, 0, sizeof *m);
    m->rule = rule;
    while (*pattern) {
        size_t length = strcspn(pattern, " "), n = strcspn(name, ".");
        bool taken;
        if (length > 0 && !match_part(m, pattern, length, name, n, &taken)) return false;
        if (length > 0 && taken) name += n + (name[n] == '.');
        pattern += length;
        pattern += *pattern == ' ';
    }
    return *name == 0;
}

/* Whether an operand has the shape its place in the list asks for. */
static bool fits(const char *spec, const struct ptx_arg *arg, const struct ptx_match *m)
{
    size_t length = strcspn(spec, " ");
    const char *star = memchr(spec, '*', length), *count = memchr(spec, '#', length);
    const char *bar = memchr(spec, '|', length);
    bool result = *spec == '=';

    spec += *spec == '=' || *spec == '?';
    for (int i = 0; i < arg->n; i++) {
        const struct ptx_item *item = &arg->items[i];
        if (item->kind == PTX_SINK && !result) return false;
        if (result && (item->kind == PTX_CONSTANT || item->kind == PTX_BITS)) return false;
        if (item->negated && (result || *spec != 'p') && *spec != 'T') return false;
    }
    if (*spec == 'A') return arg->shape == PTX_ADDRESS;
    if (*spec == 'v') return arg->shape == PTX_VECTOR && (arg->n == 2 || arg->n == 4);
    if (arg->shape == PTX_PAIR) return bar != NULL;
    if (count) return arg->shape == PTX_VECTOR && arg->n == atoi(count + 1);
    if (star && m->vector > 1) return arg->shape == PTX_VECTOR && arg->n == m->vector;
    if (star) return arg->shape == PTX_SCALAR || (arg->shape == PTX_VECTOR && arg->n == 1);
    return arg->shape == PTX_SCALAR;
}

static bool fit_operands(const struct ptx_instruction *instruction, const struct ptx_match *m)
{
    const char *spec = m->rule->args;
    int i = 0;

    for (; *spec; i++) {
        if (i >= instruction->n_args) {
            if (*spec != '?') return false;
        } else if (!fits(spec, &instruction->args[i], m)) {
            return false;
        }
        spec += strcspn(spec, " ");
        spec += *spec == ' ';
    }
    return i >= instruction->n_args;
}

bool ptx_match(const struct ptx_instruction *instruction, struct ptx_match *match)
{
    for (size_t g = 0; g < N_GROUPS; g++)
        for (size_t i = 0; i < groups[g].n; i++)
            if (match_name(&groups[g].rules[i], instruction->name, match) &&
                fit_operands(instruction, match))
                return true;
    return false;
}

bool ptx_name_known(const char *name)
{
    struct ptx_match ignored;

    for (size_t g = 0; g < N_GROUPS; g++)
        for (size_t i = 0; i < groups[g].n; i++)
            if (match_name(&groups[g].rules[i], name, &ignored)) return true;
    return false;
}

const char *ptx_special(const char *name)
{
    static const struct {
        const char *name, *cxx;
    } registers[] = {
        {"laneid", "simt_lane"},
        {"warpid", "simt_ptx::warp_id()"},
        {"nwarpid", "simt_ptx::n_warps()"},
        {"tid.x", "threadIdx.x"},
        {"tid.y", "threadIdx.y"},
        {"tid.z", "threadIdx.z"},
        {"ntid.x", "blockDim.x"},
        {"ntid.y", "blockDim.y"},
        {"ntid.z", "blockDim.z"},
        {"ctaid.x", "blockIdx.x"},
        {"ctaid.y", "blockIdx.y"},
        {"ctaid.z", "blockIdx.z"},
        {"nctaid.x", "gridDim.x"},
        {"nctaid.y", "gridDim.y"},
        {"nctaid.z", "gridDim.z"},
        {"smid", "simt_ptx::sm_id()"},
        {"nsmid", "simt_ptx::n_sms()"},
        {"gridid", "(uint64_t)0"},
        {"cluster_ctarank", "0u"},
        {"cluster_nctarank", "1u"},
        {"lanemask_eq", "simt_ptx::lane_mask<0>()"},
        {"lanemask_lt", "simt_ptx::lane_mask<1>()"},
        {"lanemask_le", "simt_ptx::lane_mask<2>()"},
        {"lanemask_gt", "simt_ptx::lane_mask<3>()"},
        {"lanemask_ge", "simt_ptx::lane_mask<4>()"},
        {"clock", "(uint32_t)simt_clock()"},
        {"clock_hi", "(uint32_t)(simt_clock() >> 32)"},
        {"clock64", "simt_clock()"},
        {"globaltimer", "simt_clock()"},
        {"globaltimer_lo", "(uint32_t)simt_clock()"},
        {"globaltimer_hi", "(uint32_t)(simt_clock() >> 32)"},
        {"WARP_SZ", "(uint32_t)32"},
    };

    for (size_t i = 0; i < sizeof registers / sizeof *registers; i++)
        if (strcmp(registers[i].name, name) == 0) return registers[i].cxx;
    return NULL;
}
