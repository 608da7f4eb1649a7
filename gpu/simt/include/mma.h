/* nvcuda::wmma for the shape and types that the tensor-core model knows: 16x16x16, bf16 operands,
 * f32 accumulators, as two m16n8k16 instructions (mma_model.h). Which element of a matrix sits
 * where in a fragment is not documented for a device; here it is as in those instructions. */
#ifndef ATTEST_SIMT_WMMA_H
#define ATTEST_SIMT_WMMA_H

#include <cuda_bf16.h>
#include "simt_mma.h"

namespace nvcuda
{
namespace wmma
{

enum layout_t { mem_row_major, mem_col_major };
struct row_major {
};
struct col_major {
};
struct matrix_a {
};
struct matrix_b {
};
struct accumulator {
};

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
    static_assert(M < 0, "of wmma the CPU backend models 16x16x16 with bf16 operands and f32 "
                         "accumulators");
};
template <class T> struct simt_fragment {
    static constexpr int num_elements = 8;
    T x[8];
};
template <class Layout>
struct fragment<matrix_a, 16, 16, 16, __nv_bfloat16, Layout> : simt_fragment<__nv_bfloat16> {
};
template <class Layout>
struct fragment<matrix_b, 16, 16, 16, __nv_bfloat16, Layout> : simt_fragment<__nv_bfloat16> {
};
template <> struct fragment<accumulator, 16, 16, 16, float, void> : simt_fragment<float> {
};

/* Row and column of a lane's i-th element. */
struct simt_place {
    unsigned row, column;
};
SIMT_FN simt_place simt_place_of(matrix_a, unsigned i)
{
    return {simt_lane / 4 + 8 * (i / 2 % 2), 2 * (simt_lane % 4) + i % 2 + 8 * (i / 4)};
}
SIMT_FN simt_place simt_place_of(matrix_b, unsigned i)
{
    return {2 * (simt_lane % 4) + i % 2 + 8 * (i / 2 % 2), simt_lane / 4 + 8 * (i / 4)};
}
SIMT_FN simt_place simt_place_of(accumulator, unsigned i)
{
    return {simt_lane / 4 + 8 * (i / 2 % 2), 2 * (simt_lane % 4) + i % 2 + 8 * (i / 4)};
}
SIMT_FN size_t simt_offset(simt_place place, unsigned pitch, bool by_rows)
{
    return by_rows ? (size_t)place.row * pitch + place.column
                   : (size_t)place.column * pitch + place.row;
}

template <class Use, class Layout>
SIMT_FN void load_matrix_sync(fragment<Use, 16, 16, 16, __nv_bfloat16, Layout> &target,
                              const __nv_bfloat16 *from, unsigned pitch)
{
    constexpr bool by_rows = std::is_same<Layout, row_major>::value;
    static_assert(by_rows || std::is_same<Layout, col_major>::value, "the layout is not named");
    __syncwarp();
    for (unsigned i = 0; i < 8; i++)
        target.x[i] = from[simt_offset(simt_place_of(Use(), i), pitch, by_rows)];
}
SIMT_FN void load_matrix_sync(fragment<accumulator, 16, 16, 16, float> &target, const float *from,
                              unsigned pitch, layout_t layout)
{
    __syncwarp();
    for (unsigned i = 0; i < 8; i++)
        target.x[i] =
            from[simt_offset(simt_place_of(accumulator(), i), pitch, layout == mem_row_major)];
}
SIMT_FN void store_matrix_sync(float *to, const fragment<accumulator, 16, 16, 16, float> &source,
                               unsigned pitch, layout_t layout)
{
    __syncwarp();
    for (unsigned i = 0; i < 8; i++)
        to[simt_offset(simt_place_of(accumulator(), i), pitch, layout == mem_row_major)] =
            source.x[i];
}
template <class Use, class T, class Layout, class V>
SIMT_FN void fill_fragment(fragment<Use, 16, 16, 16, T, Layout> &target, V value)
{
    for (int i = 0; i < 8; i++) target.x[i] = T(value);
}
template <class LayoutA, class LayoutB>
SIMT_FN void mma_sync(fragment<accumulator, 16, 16, 16, float> &d,
                      const fragment<matrix_a, 16, 16, 16, __nv_bfloat16, LayoutA> &a,
                      const fragment<matrix_b, 16, 16, 16, __nv_bfloat16, LayoutB> &b,
                      const fragment<accumulator, 16, 16, 16, float> &c)
{
    uint32_t words_a[4], words_b[4];
    __builtin_memcpy(words_a, a.x, sizeof words_a);
    __builtin_memcpy(words_b, b.x, sizeof words_b);
    for (int half = 0; half < 2; half++)
        simt_mma_m16n8k16_bf16(d.x + 4 * half, words_a, words_b + 2 * half, c.x + 4 * half);
}

} // namespace wmma
} // namespace nvcuda

#endif
