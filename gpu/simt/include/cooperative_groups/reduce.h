/* cooperative_groups::reduce over a tile. Every lane gets the same bits: at each step two lanes
 * combine the same two values. The order in which a device sums floats is not documented. */
#ifndef ATTEST_SIMT_COOPERATIVE_GROUPS_REDUCE_H
#define ATTEST_SIMT_COOPERATIVE_GROUPS_REDUCE_H

#include <cooperative_groups.h>

namespace cooperative_groups
{

#define SIMT_GROUP_OPERATION(name, expression)   \
    template <class T> struct name {             \
        SIMT_MEMBER T operator()(T a, T b) const \
        {                                        \
            return expression;                   \
        }                                        \
    };
SIMT_GROUP_OPERATION(plus, a + b)
SIMT_GROUP_OPERATION(less, b < a ? b : a)
SIMT_GROUP_OPERATION(greater, a < b ? b : a)
SIMT_GROUP_OPERATION(bit_and, a &b)
SIMT_GROUP_OPERATION(bit_or, a | b)
SIMT_GROUP_OPERATION(bit_xor, a ^ b)
#undef SIMT_GROUP_OPERATION

template <unsigned Size, class P, class T, class Operation>
SIMT_FN T reduce(const thread_block_tile<Size, P> &tile, T value, Operation operation)
{
    for (unsigned step = Size / 2; step > 0; step /= 2)
        value = operation(value, tile.shfl_xor(value, (int)step));
    return value;
}

} // namespace cooperative_groups

#endif
