/* What any number of runs have shown together, and its three faces: tolerance.json, tolerance.md
 * and tolerance.html. Equal input gives equal files: there is no clock in them. */
#ifndef ATTEST_REPORT_H
#define ATTEST_REPORT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/judge/result.h"

/* What cases of one kind sum up to. worst_ratio and max_ulp are those of cases that passed, the
 * spread that of all. */
struct report_counts {
    uint64_t cases, passed, failed, refused, errors;
    uint64_t compared, nearest, unjudged; /* elements */
    uint64_t identical, equivalent;       /* selected rows */
    uint64_t checks[CHECK_COUNT];
    struct distribution spread;
    double worst_ratio, max_ulp, seconds, kernel_seconds;
    char *worst_case; /* that has worst_ratio; NULL if it is 0. Of several the first by text */
};
struct report_regime {
    char name[32]; /* of the case's values; "captured"; "none" where the operation has no regimes */
    struct report_counts counts;
};
struct report_rule {
    char name[64];
    uint64_t geometries, cases; /* refused by both sides: in sweeps, with a case's tensors */
};
struct report_op {
    char name[64];
    struct report_counts total;
    struct report_regime *regimes; /* by name */
    size_t n_regimes;
    struct report_rule *rules; /* by name */
    size_t n_rules;
    uint64_t geometries, geometries_refused; /* of the sweeps that agreed */
    uint64_t sweeps_failed;
};
struct report_backend {
    char name[16];
    uint64_t cases, failed, errors, checks;
    double seconds, kernel_seconds;
};
struct report_broken { /* a kernel that is wrong on purpose */
    char name[64], op[64], backend[16], kind[16], like[32], check[64];
    char *bug, *case_text; /* the case that caught it */
    enum verdict verdict;  /* VERDICT_FAIL: caught */
    uint64_t cases;        /* tried, the one that caught it included */
    double seconds;
};
struct report_failure {
    char op[64], backend[16], check[64];
    enum verdict verdict;
    char *case_text, *text;
};
struct report_timing { /* of `attest bench` */
    char op[64], backend[16], device[64];
    char *case_text;
    double median_us, least_us, most_us;
    double limit_us; /* what the device needs at least, by its measured rates; 0: not known */
};
struct report_file {         /* coverage of one source file */
    char *name, *open_lines; /* "12-14, 80": lines that no case reached; "" for none */
    uint64_t lines, covered, branches, taken;
};
struct report_name {
    char text[32];
};

struct report_seen;

struct report {
    struct report_op *ops; /* in the order of op_table, then by name */
    size_t n_ops;
    struct report_counts total;
    uint64_t geometries, geometries_refused, sweeps_failed;
    struct report_backend *backends; /* by name */
    size_t n_backends;
    struct report_broken *broken;         /* by name and backend */
    size_t n_broken, n_caught, n_untried; /* untried: an error kept it from running */
    struct report_failure *failures;      /* failed and erroneous cases and sweeps, by case text */
    size_t n_failures;
    struct report_timing *timings; /* by case text */
    size_t n_timings;
    struct report_file *files; /* by name */
    size_t n_files;
    struct report_name *seeds, *tiers, *dates; /* by text */
    size_t n_seeds, n_tiers, n_dates;
    uint64_t drawn; /* cases that a verify run chose, beside those given to a replay */
    uint64_t
        repeats; /* lines left out: the case stood in the input already, with the same result */
    uint64_t unsteady; /* cases that gave other bits or another verdict when they ran again */
    /* Cases that ran on more than one backend and passed: pairs with equal and with other bits. */
    uint64_t pairs_equal, pairs_different;
    struct report_seen *seen; /* from the first line read to report_finish */
};

/* How the whole is to be taken. */
enum report_state {
    REPORT_RIGHT,
    REPORT_WRONG,    /* a case failed, backends disagree, or a time limit is exceeded */
    REPORT_BLIND,    /* no case failed, but a kernel that is wrong on purpose went unseen */
    REPORT_UNCERTAIN /* errors, or nothing was judged */
};

/* A zeroed report is empty. */
void report_free(struct report *report);
/* Adds the results of a file of JSON lines ("-": standard input). False with "FILE:LINE: what is
 * wrong"; the report is then only good for report_free. */
bool report_read(struct report *report, const char *path, char *error, size_t error_size);
/* Adds line and branch coverage in lcov's format. */
bool report_read_coverage(struct report *report, const char *path, char *error, size_t error_size);
/* Adds times from the lines of `attest bench --json`. */
bool report_read_timings(struct report *report, const char *path, char *error, size_t error_size);
/* After the last input: sorts, sums up and compares the backends. */
bool report_finish(struct report *report, char *error, size_t error_size);
enum report_state report_state(const struct report *report);

/* An entry by name, made when missing; NULL when out of memory. */
struct report_op *report_op(struct report *report, const char *name);
struct report_regime *report_regime(struct report_op *op, const char *name);
struct report_rule *report_rule(struct report_op *op, const char *name);
struct report_backend *report_backend(struct report *report, const char *name);
bool report_add_name(struct report_name **names, size_t *count, const char *text);
/* `array`, of `count` elements of `size` bytes, with room for one more, which is zeroed; NULL when
 * out of memory, and `array` is then as before. */
void *report_grow(void *array, size_t count, size_t size);
void report_counts_add(struct report_counts *to, const struct report_counts *from);

/* What a baseline knew better. */
struct report_change {
    bool worse; /* fails the run; otherwise only worth knowing */
    char what[96], before[48], now[48];
    char where[96]; /* operation, regime, kernel or file */
};
struct report_changes {
    struct report_change *items;
    size_t count, n_worse;
    char *baseline; /* its path; NULL without one */
};
void report_changes_free(struct report_changes *changes);
/* Compares two reports in the form of report_json. False if `baseline` is no such report. */
bool report_against(const cJSON *now, const cJSON *baseline, struct report_changes *changes,
                    char *error, size_t error_size);

/* The owner deletes it. NULL when out of memory. `date` may be NULL: the data's last one. */
cJSON *report_json(const struct report *report, const char *date);
const char *report_date(const struct report *report, const char *date); /* "" if there is none */
/* The pages; malloc'ed text, NULL when out of memory. `plots` as from report_plots. */
char *report_markdown(const struct report *report, const struct report_changes *changes,
                      const char *date);
struct report_plots;
char *report_html(const struct report *report, const struct report_changes *changes,
                  const char *date, const struct report_plots *plots);

/* Writes a whole file: to a temporary one in the same folder, then renamed. */
bool report_write_file(const char *path, const char *text, size_t size, char *error,
                       size_t error_size);
#endif
