/* Constants of CUDA's mathematics. */
#ifndef ATTEST_SIMT_MATH_CONSTANTS_H
#define ATTEST_SIMT_MATH_CONSTANTS_H

#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_MIN_DENORM_F __int_as_float(0x00000001)
#define CUDART_MAX_NORMAL_F __int_as_float(0x7f7fffff)
#define CUDART_NEG_ZERO_F __int_as_float(0x80000000)
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#define CUDART_LN2_F 0x1.62e43p-1f
#define CUDART_L2E_F 0x1.715476p0f
#define CUDART_PI_F 0x1.921fb6p1f
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ll)
#define CUDART_NAN __longlong_as_double((long long)0xfff8000000000000ull)

#endif
