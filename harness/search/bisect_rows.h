/* The two rows that a case can be bisected over. Each fills *row, whose `row` is the struct itself.
 */
#ifndef ATTEST_BISECT_ROWS_H
#define ATTEST_BISECT_ROWS_H

#include <limits.h>

#include "harness/search/bisect.h"

/* What both need to replay the case. `why` of a step is printed as it happens. */
struct bisect_case {
    const char *text, *backend; /* backend NULL: the default */
    double timeout_s;           /* of one replay */
    const volatile bool *stop;
};

/* Revisions of a git repository, each built in a worktree of its own outside the repository. */
struct bisect_revisions {
    struct bisect_case replayed;
    const char *repository; /* a folder in it */
    const char *build;      /* shell command that makes build/attest in the worktree */
    double build_timeout_s;
    char folder[PATH_MAX];          /* temporary; holds `tree` and build.log */
    char good[64], bad[64];         /* commits, by hash; `bad` moves as the search goes on */
    const char *good_end, *bad_end; /* their names for bisect_search */
    struct revision {
        char hash[64], subject[160];
        enum bisect_verdict verdict;
        bool judged;
    } * seen;
    size_t n_seen;
};
/* Resolves the revisions, makes the worktree. False with a message; *bad_input says whether that is
 * the revisions' fault. */
bool bisect_revisions_open(struct bisect_revisions *r, struct bisect_row *row, const char *good,
                           const char *bad, bool *bad_input, char *error, size_t error_size);
/* Lays and builds a revision as for a step; `why` says why it could not. */
bool bisect_revisions_rebuild(struct bisect_revisions *r, const char *hash, char *why,
                              size_t why_size);
/* The program in the tree and how to run it there. */
void bisect_revisions_request(const struct bisect_revisions *r, char program[PATH_MAX],
                              char directory[PATH_MAX], struct replay_request *request);
/* "commit …" with author, date and message; malloc'ed, NULL if git does not say. */
char *bisect_revisions_describe(const struct bisect_revisions *r, const char *hash);
void bisect_revisions_close(struct bisect_revisions *r);

/* Module files in the order they were made in. */
struct bisect_modules {
    struct bisect_case replayed;
    const char *program;
    const char *const *files;
    size_t count, good, bad; /* indices of the last good and the first bad one */
    bool *tried;             /* and could not be judged */
};
bool bisect_modules_open(struct bisect_modules *m, struct bisect_row *row);
void bisect_modules_close(struct bisect_modules *m);
#endif
