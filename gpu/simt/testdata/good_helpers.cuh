#pragma once

__device__ __forceinline__ float twice(float x)
{
    return x + x;
}

template <class T> __device__ T reverse_of(const T *values, unsigned n)
{
    return values[n - 1 - threadIdx.x];
}
