/* The report's pictures: gnuplot draws them, as SVG that takes its colours from the page around it.
 */
#ifndef ATTEST_REPORT_PLOT_H
#define ATTEST_REPORT_PLOT_H

#include "harness/report/report.h"

enum report_plot { PLOT_RATIO, PLOT_ULP, PLOT_MARGIN, PLOT_KINDS };

struct report_plots {
    char *(*ops)[PLOT_KINDS]; /* per operation of the report: SVG elements, NULL where none */
    size_t n_ops;
    char *kills;    /* broken kernels caught against cases tried; NULL without any */
    char note[256]; /* why there are none; "" otherwise */
};

/* Always gives a valid result: where gnuplot is missing or fails, the note says so and there is no
 * picture. `program` is gnuplot's name or path. */
void report_plots_make(const struct report *report, const char *program,
                       struct report_plots *plots);
void report_plots_free(struct report_plots *plots);
#endif
