/* Coverage of the kernels. Their modules mark each edge they reach by a flag, and tell so to whoever
 * defines this function when they are loaded; the engine gets the flags as counters that are 0 or 1. */
#include "fuzz/fuzz.h"

void __sanitizer_cov_bool_flag_init(bool *begin, bool *end);
void __sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end) __attribute__((weak));

void __sanitizer_cov_bool_flag_init(bool *begin, bool *end)
{
    if (__sanitizer_cov_8bit_counters_init)
        __sanitizer_cov_8bit_counters_init((uint8_t *)begin, (uint8_t *)end);
}
