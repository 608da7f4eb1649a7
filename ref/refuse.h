/* Filling in a refusal. */
#ifndef ATTEST_REF_REFUSE_H
#define ATTEST_REF_REFUSE_H

#include "ref.h"

/* Writes rule and text to *why, if why is not null, and returns false. */
__attribute__((format(printf, 3, 4))) bool ref_refuse(struct ref_refusal *why, const char *rule,
                                                      const char *format, ...);
#endif
