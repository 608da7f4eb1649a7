/* The functions that instrumented modules call (mk/simt-module.sh --trace names them to the
 * compiler). They check [address, address + bytes) and break the launch off when something is
 * wrong. */
#ifndef ATTEST_SIMT_TRACE_H
#define ATTEST_SIMT_TRACE_H

#include "run.h"

void simt_load1_noabort(uintptr_t address);
void simt_load2_noabort(uintptr_t address);
void simt_load4_noabort(uintptr_t address);
void simt_load8_noabort(uintptr_t address);
void simt_load16_noabort(uintptr_t address);
void simt_loadN_noabort(uintptr_t address, uint64_t bytes);
void simt_store1_noabort(uintptr_t address);
void simt_store2_noabort(uintptr_t address);
void simt_store4_noabort(uintptr_t address);
void simt_store8_noabort(uintptr_t address);
void simt_store16_noabort(uintptr_t address);
void simt_storeN_noabort(uintptr_t address, uint64_t bytes);

/* A traced module's calls of memcpy and the like, its own and the compiler's. */
void *__wrap_memcpy(void *target, const void *source, size_t bytes);
void *__wrap_memmove(void *target, const void *source, size_t bytes);
void *__wrap_memset(void *target, int value, size_t bytes);

#endif
