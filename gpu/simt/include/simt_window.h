/* Shared memory as PTX sees it: a window of 32-bit addresses. The window of static variables and
 * that of the dynamic memory lie apart, each around its first byte, so that an address that is
 * wrong by anything a kernel could plausibly get wrong still leads back to where it really points,
 * and is found there. The dynamic memory begins at a multiple of 2^30, whatever alignment a kernel
 * asked for: address bits can be combined as on a device. */
#ifndef ATTEST_SIMT_WINDOW_H
#define ATTEST_SIMT_WINDOW_H

#define SIMT_WINDOW_STATIC 0x20000000u
#define SIMT_WINDOW_DYNAMIC 0x80000000u
#define SIMT_WINDOW_SPAN 0x10000000u /* to each side */

/* 0, which nothing lies at, for a pointer that is not into shared memory. */
SIMT_FN size_t __cvta_generic_to_shared(const void *pointer)
{
    uintptr_t at = (uintptr_t)pointer, begin = (uintptr_t)__start_simt_shared;
    if (begin != 0 && at >= begin && at < (uintptr_t)__stop_simt_shared)
        return SIMT_WINDOW_STATIC + (at - begin);
    uintptr_t offset = at - (uintptr_t)simt_dynamic_shared;
    if (offset + SIMT_WINDOW_SPAN < 2 * (uintptr_t)SIMT_WINDOW_SPAN)
        return (unsigned)(SIMT_WINDOW_DYNAMIC + offset);
    return 0;
}
SIMT_FN void *__cvta_shared_to_generic(size_t address)
{
    unsigned at = (unsigned)address;
    if (at - SIMT_WINDOW_STATIC < SIMT_WINDOW_SPAN)
        return __start_simt_shared + (at - SIMT_WINDOW_STATIC);
    if (at - SIMT_WINDOW_DYNAMIC + SIMT_WINDOW_SPAN < 2 * SIMT_WINDOW_SPAN)
        return (char *)simt_dynamic_shared + (int)(at - SIMT_WINDOW_DYNAMIC);
    return (void *)(uintptr_t)at; /* as wrong as it was */
}
SIMT_FN size_t __cvta_generic_to_global(const void *pointer)
{
    return (size_t)(uintptr_t)pointer;
}
SIMT_FN void *__cvta_global_to_generic(size_t address)
{
    return (void *)(uintptr_t)address;
}
SIMT_FN unsigned __isShared(const void *pointer)
{
    return __cvta_generic_to_shared(pointer) != 0;
}
SIMT_FN unsigned __isGlobal(const void *pointer)
{
    return !__isShared(pointer);
}

#endif
