/* The sentences that both pages say. */
#ifndef ATTEST_REPORT_WORDS_H
#define ATTEST_REPORT_WORDS_H

#include "harness/report/report.h"

enum { REPORT_SENTENCE_MAX = 600, REPORT_SENTENCES_MAX = 10 };

struct report_words {
    char verdict[REPORT_SENTENCE_MAX];
    /* Answers "how sure are we?", the strongest first. */
    char sure[REPORT_SENTENCES_MAX][REPORT_SENTENCE_MAX];
    int n_sure;
};
void report_say(const struct report *report, struct report_words *words);

/* "1,234,567" into text; returns text. */
char *report_grouped(uint64_t value, char text[32]);
/* "99.98 %"; "-" where whole is 0. Never rounds up to 100 or down to 0. */
char *report_percent(uint64_t part, uint64_t whole, char text[32]);
/* err/E, ulps: "1.2e-05", "0.467", "12.3", "346,312". value >= 0. */
char *report_small(double value, char text[32]);
/* Whether errors of this operation's outputs are measured against a bound. */
bool report_has_errors(const struct report_counts *counts);
/* Whether it has selected rows. */
bool report_has_rows(const struct report_counts *counts);
/* What the worst err/E column says: a number, or "bit-exact". */
char *report_ratio(const struct report_op *op, char text[32]);
/* "caught", "MISSED", "not run" */
const char *report_outcome(const struct report_broken *broken);
uint64_t report_checks(const struct report_counts *counts);
#endif
