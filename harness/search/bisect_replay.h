/* A case replayed by another build of this program, older perhaps. */
#ifndef ATTEST_BISECT_REPLAY_H
#define ATTEST_BISECT_REPLAY_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/case/case.h"

enum replay_outcome {
    REPLAY_RIGHT,
    REPLAY_FAILS,      /* the kernel is wrong: `check` says which check caught it */
    REPLAY_CANNOT_SAY, /* that build does not understand the case, or refuses it */
    REPLAY_BROKE       /* infrastructure: it could not run, took too long, was killed */
};

struct replay_request {
    const char *program, *directory; /* the directory it runs in; NULL: here */
    const char *backend;             /* NULL: its default */
    const char *module;              /* a module in place of its own; NULL: its own */
    double timeout_s;
    const volatile bool *stop; /* may be NULL */
};
struct replay {
    enum replay_outcome outcome;
    char check[64], why[400];      /* why: one line, for anything but REPLAY_RIGHT */
    char case_text[CASE_TEXT_MAX]; /* as that build got it */
};

/* Runs the case. A key that the build does not know is left out, if its value here is this
 * program's default for it: an older build then behaves as if the key had that value. Any other
 * unknown key gives REPLAY_CANNOT_SAY. */
void replay_case(const struct replay_request *request, const char *case_text,
                 struct replay *result);
/* What `explain` says there about the case; malloc'ed, NULL if it says nothing. */
char *replay_explain(const struct replay_request *request, const char *case_text);
/* The case without a key: false if the key is not in it. `value` gets the key's text. */
bool replay_drop_key(const char *case_text, const char *key, char *without, size_t without_size,
                     char *value, size_t value_size);
#endif
