/* The geometry vector of the DSA indexer: five i32 on the device that override the scalars of a
 * launch, so that a captured graph replays at another length. Only for one query row: the row
 * strides of inputs and outputs stay those of the scalars. Blocks past the vector's pools do
 * nothing. */
#ifndef ATTEST_KERNELS_DSA_GEOM_CUH
#define ATTEST_KERNELS_DSA_GEOM_CUH

enum dsa_geom_entry {
    DSA_GEOM_KEYS = 0,     /* S */
    DSA_GEOM_POOLS = 1,    /* P: pools including a trailing partial one */
    DSA_GEOM_SELECT_K = 3, /* entry 2, the complete pools, went into it on the host */
};

#endif
