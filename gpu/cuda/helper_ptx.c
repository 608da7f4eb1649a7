/* The two helper kernels, as PTX text that the driver compiles for whatever device it finds; no
 * compiler is needed at run time. Entries of 32 bytes as in struct gpu_cuda_op. */
#include "internal.h"

/* gpu_cuda_transfer: block x does entry x, thread t the 16 bytes at 16t. Source 0 writes the
 * red-zone word instead of copying.
 *
 * gpu_cuda_verify: entry x is a range; its blocks (y) and threads stride over it by 16 bytes. Any
 * word that is not the pattern stores its vector's address in the entry's result. Which one wins
 * among several does not matter: the host looks for the first itself. */
const char gpu_cuda_helper_ptx[] =
    ".version 7.0\n"
    ".target sm_80\n"
    ".address_size 64\n"
    ".visible .entry gpu_cuda_transfer(.param .u64 table)\n"
    "{\n"
    "    .reg .pred %p<3>;\n"
    "    .reg .b32 %r<8>;\n"
    "    .reg .b64 %d<10>;\n"
    "    ld.param.u64 %d0, [table];\n"
    "    mov.u32 %r0, %ctaid.x;\n"
    "    mul.wide.u32 %d1, %r0, 32;\n"
    "    add.s64 %d0, %d0, %d1;\n"
    "    ld.global.v2.u64 {%d2, %d3}, [%d0];\n" /* target, source */
    "    ld.global.u64 %d4, [%d0+16];\n"        /* bytes */
    "    mov.u32 %r1, %tid.x;\n"
    "    mul.wide.u32 %d5, %r1, 16;\n"
    "    setp.ge.u64 %p0, %d5, %d4;\n"
    "    @%p0 ret;\n"
    "    mov.u32 %r4, 0x7fff7fff;\n"
    "    mov.u32 %r5, %r4;\n"
    "    mov.u32 %r6, %r4;\n"
    "    mov.u32 %r7, %r4;\n"
    "    setp.eq.u64 %p1, %d3, 0;\n"
    "    @%p1 bra store;\n"
    "    add.s64 %d6, %d3, %d5;\n"
    "    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d6];\n"
    "store:\n"
    "    add.s64 %d7, %d2, %d5;\n"
    "    st.global.v4.u32 [%d7], {%r4, %r5, %r6, %r7};\n"
    "    ret;\n"
    "}\n"
    ".visible .entry gpu_cuda_verify(.param .u64 table)\n"
    "{\n"
    "    .reg .pred %p<3>;\n"
    "    .reg .b32 %r<12>;\n"
    "    .reg .b64 %d<10>;\n"
    "    ld.param.u64 %d0, [table];\n"
    "    mov.u32 %r0, %ctaid.x;\n"
    "    mul.wide.u32 %d1, %r0, 32;\n"
    "    add.s64 %d0, %d0, %d1;\n"
    "    ld.global.v2.u64 {%d2, %d3}, [%d0];\n" /* low and high end */
    "    ld.global.u64 %d4, [%d0+24];\n"        /* result */
    "    mov.u32 %r1, %ctaid.y;\n"
    "    mov.u32 %r2, %ntid.x;\n"
    "    mov.u32 %r3, %tid.x;\n"
    "    mad.lo.u32 %r1, %r1, %r2, %r3;\n"
    "    mul.wide.u32 %d5, %r1, 16;\n"
    "    add.s64 %d2, %d2, %d5;\n"
    "    mov.u32 %r3, %nctaid.y;\n"
    "    mul.lo.u32 %r2, %r2, %r3;\n"
    "    mul.wide.u32 %d6, %r2, 16;\n" /* stride */
    "next:\n"
    "    setp.ge.u64 %p0, %d2, %d3;\n"
    "    @%p0 ret;\n"
    "    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d2];\n"
    "    xor.b32 %r4, %r4, 0x7fff7fff;\n"
    "    xor.b32 %r5, %r5, 0x7fff7fff;\n"
    "    xor.b32 %r6, %r6, 0x7fff7fff;\n"
    "    xor.b32 %r7, %r7, 0x7fff7fff;\n"
    "    or.b32 %r8, %r4, %r5;\n"
    "    or.b32 %r9, %r6, %r7;\n"
    "    or.b32 %r8, %r8, %r9;\n"
    "    setp.ne.u32 %p1, %r8, 0;\n"
    "    @%p1 st.global.u64 [%d4], %d2;\n"
    "    add.s64 %d2, %d2, %d6;\n"
    "    bra next;\n"
    "}\n";
