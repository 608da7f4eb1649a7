/* The launch under way on this processor thread, and the registers its kernel sees. */
#include "run.h"

struct simt_run simt_run;

/* A section of their own: trace builds know by it what a kernel may read. */
#define REGISTER __attribute__((section("simt_registers")))
REGISTER struct simt_index simt_thread_idx, simt_block_idx, simt_block_dim, simt_grid_dim;
REGISTER uint32_t simt_lane;
REGISTER void *simt_dynamic_shared;
