/* Exhaustive check of the rotation tables (ops.md §0): every position below a limit and every pair
 * of one (theta, rot), the oracle's floats against the nearest floats of the true cosine and sine.
 *
 * The true values come from MPFR (--full), or, quicker, from long double sincosl where that leaves
 * no doubt about the rounding and from MPFR for the rest and for a sample of the settled ones. With
 * --dump FILE a second implementation is judged instead of the oracle: FILE holds f32 pairs,
 * [position][pair][cosine, sine], native byte order. Exit: 0 all equal, 1 not, 2 usage or file. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <mpfr.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ref/qsa.h"

enum { MAX_PAIRS = 512, MAX_THREADS = 256 };

struct settings {
    float theta;
    uint32_t rot, positions, threads, sample;
    bool full;
    const float *dump; /* [positions][rot / 2][2], or null: judge the oracle */
    double frequency[MAX_PAIRS];
};

struct worker {
    const struct settings *settings;
    uint32_t index;
    uint64_t values, by_filter, by_mpfr, sampled, wrong, filter_wrong;
    uint32_t first_wrong_pos, first_wrong_pair;
    pthread_t thread;
};

static void frequencies_by_mpfr(struct settings *settings)
{
    mpfr_t value, exponent;
    mpfr_inits2(300, value, exponent, (mpfr_ptr)0);
    for (uint32_t j = 0; j < settings->rot / 2; j++) {
        mpfr_set_si(exponent, -2 * (long)j, MPFR_RNDN);
        mpfr_div_ui(exponent, exponent, settings->rot, MPFR_RNDN);
        mpfr_set_d(value, settings->theta, MPFR_RNDN);
        mpfr_pow(value, value, exponent, MPFR_RNDN);
        settings->frequency[j] = mpfr_get_d(value, MPFR_RNDN);
    }
    mpfr_clears(value, exponent, (mpfr_ptr)0);
}

/* 100 bits: a second rounding to 24 goes wrong with a chance of 2^-75 a value. */
static void true_by_mpfr(double angle, float want[2])
{
    mpfr_t x, s, c;
    mpfr_init2(x, 53);
    mpfr_inits2(100, s, c, (mpfr_ptr)0);
    mpfr_set_d(x, angle, MPFR_RNDN);
    mpfr_sin_cos(s, c, x, MPFR_RNDN);
    want[0] = mpfr_get_flt(c, MPFR_RNDN);
    want[1] = mpfr_get_flt(s, MPFR_RNDN);
    mpfr_clears(x, s, c, (mpfr_ptr)0);
}

/* sincosl is good to about 2^-63 of the value; a margin of 2^-58 decides all but one in 2^32. */
static bool true_by_filter(double angle, float want[2])
{
    long double s, c;
    sincosl(angle, &s, &c);
    want[0] = (float)(c * (1 - 0x1p-58L));
    want[1] = (float)(s * (1 - 0x1p-58L));
    return want[0] == (float)(c * (1 + 0x1p-58L)) && want[1] == (float)(s * (1 + 0x1p-58L));
}

static bool same_float(const float a[2], const float b[2])
{
    return memcmp(a, b, 2 * sizeof *a) == 0;
}

static void true_value(struct worker *worker, double angle, float want[2])
{
    const struct settings *settings = worker->settings;
    if (!settings->full && true_by_filter(angle, want)) {
        worker->by_filter++;
        /* A multiplicative hash of the running number picks the sample. */
        if ((worker->values * 0x9e3779b97f4a7c15) >> 32 >= UINT32_MAX / settings->sample) return;
        float again[2];
        true_by_mpfr(angle, again);
        worker->sampled++;
        worker->filter_wrong += !same_float(want, again);
        return;
    }
    true_by_mpfr(angle, want);
    worker->by_mpfr++;
}

static void judge(struct worker *worker, uint32_t pos, uint32_t pair)
{
    const struct settings *settings = worker->settings;
    float want[2], got[2];
    true_value(worker, pos * settings->frequency[pair], want);
    if (settings->dump) {
        size_t at = ((size_t)pos * (settings->rot / 2) + pair) * 2;
        memcpy(got, settings->dump + at, sizeof got);
    } else {
        ref_qsa_rotation(settings->theta, settings->rot, pair, pos, &got[0], &got[1]);
    }
    worker->values++;
    if (same_float(want, got)) return;
    if (!worker->wrong++) {
        worker->first_wrong_pos = pos;
        worker->first_wrong_pair = pair;
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    const struct settings *settings = worker->settings;
    for (uint64_t pos = worker->index; pos < settings->positions; pos += settings->threads) {
        for (uint32_t pair = 0; pair < settings->rot / 2; pair++)
            judge(worker, (uint32_t)pos, pair);
    }
    mpfr_free_cache();
    return NULL;
}

static const float *map_dump(const char *path, const struct settings *settings)
{
    size_t bytes = (size_t)settings->positions * settings->rot * sizeof(float);
    int file = open(path, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status)) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return NULL;
    }
    if ((uint64_t)status.st_size != bytes) {
        fprintf(stderr, "%s: %jd bytes, not %zu\n", path, (intmax_t)status.st_size, bytes);
        close(file);
        return NULL;
    }
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (map != MAP_FAILED) return map;
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return NULL;
}

static int report(const struct settings *settings, const struct worker *workers)
{
    struct worker total = {.first_wrong_pos = UINT32_MAX};
    for (uint32_t i = 0; i < settings->threads; i++) {
        const struct worker *w = &workers[i];
        total.values += w->values;
        total.by_filter += w->by_filter;
        total.by_mpfr += w->by_mpfr;
        total.sampled += w->sampled;
        total.wrong += w->wrong;
        total.filter_wrong += w->filter_wrong;
        if (w->wrong && w->first_wrong_pos < total.first_wrong_pos) {
            total.first_wrong_pos = w->first_wrong_pos;
            total.first_wrong_pair = w->first_wrong_pair;
        }
    }
    printf("theta %g, rot %u, positions below %u, %s\n", settings->theta, settings->rot,
           settings->positions, settings->dump ? "a dump" : "the oracle");
    printf("pairs %" PRIu64 ": settled in long double %" PRIu64 " (of these %" PRIu64
           " again by MPFR, %" PRIu64 " differ), by MPFR %" PRIu64 "\n",
           total.values, total.by_filter, total.sampled, total.filter_wrong, total.by_mpfr);
    printf("wrong %" PRIu64 "\n", total.wrong);
    if (total.wrong)
        printf("first at position %u, pair %u\n", total.first_wrong_pos, total.first_wrong_pair);
    return total.wrong || total.filter_wrong || !total.values;
}

static bool number(const char *text, uint32_t low, uint32_t high, uint32_t *value)
{
    char *end;
    errno = 0;
    unsigned long parsed = strtoul(text, &end, 0);
    if (errno || *end || end == text || *text == '-' || parsed < low || parsed > high) return false;
    *value = (uint32_t)parsed;
    return true;
}

static bool parse(int argc, char **argv, struct settings *settings, const char **dump)
{
    static const struct option options[] = {
        {"theta", required_argument, NULL, 't'},     {"rot", required_argument, NULL, 'r'},
        {"positions", required_argument, NULL, 'p'}, {"threads", required_argument, NULL, 'j'},
        {"sample", required_argument, NULL, 's'},    {"full", no_argument, NULL, 'f'},
        {"dump", required_argument, NULL, 'd'},      {NULL, 0, NULL, 0}};
    bool good = true;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 't':
            settings->theta = strtof(optarg, NULL);
            break;
        case 'r':
            good &= number(optarg, 2, 2 * MAX_PAIRS, &settings->rot);
            break;
        case 'p':
            good &= number(optarg, 1, 1u << 31, &settings->positions);
            break;
        case 'j':
            good &= number(optarg, 1, MAX_THREADS, &settings->threads);
            break;
        case 's':
            good &= number(optarg, 1, UINT32_MAX, &settings->sample);
            break;
        case 'f':
            settings->full = true;
            break;
        case 'd':
            *dump = optarg;
            break;
        default:
            good = false;
        }
    }
    return good && optind == argc && settings->rot % 2 == 0 && settings->theta > 0 &&
           isfinite(settings->theta);
}

int main(int argc, char **argv)
{
    struct settings settings = {
        .theta = 1e7f, .rot = 64, .positions = 1u << 20, .threads = 2, .sample = 256};
    const char *dump = NULL;
    if (!parse(argc, argv, &settings, &dump)) {
        fprintf(stderr,
                "usage: %s [--theta T] [--rot N] [--positions N] [--threads N] [--sample ONE_IN]\n"
                "          [--full] [--dump FILE]\n",
                argv[0]);
        return 2;
    }
    if (dump && !(settings.dump = map_dump(dump, &settings))) return 2;
    frequencies_by_mpfr(&settings);
    static struct worker workers[MAX_THREADS];
    uint32_t started = 0;
    for (; started < settings.threads; started++) {
        workers[started].settings = &settings;
        workers[started].index = started;
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started])) break;
    }
    for (uint32_t i = 0; i < started; i++) pthread_join(workers[i].thread, NULL);
    if (started < settings.threads) {
        fprintf(stderr, "only %u threads could be started\n", started);
        return 2;
    }
    return report(&settings, workers);
}
