/* Pieces of the HTML page. Everything that comes from data goes through html_text. */
#ifndef ATTEST_REPORT_HTML_H
#define ATTEST_REPORT_HTML_H

#include <stdio.h>

#include "harness/report/plot.h"
#include "harness/report/report.h"

extern const char report_style[]; /* the style sheet */

/* Writes text with the characters that mean something in HTML, and all control characters, made
 * harmless; fit for attribute values in double quotes too. */
void html_text(FILE *f, const char *text);
/* A table inside a region that scrolls sideways: html_table, rows, html_table_end. `columns` are
 * the headings, separated by '|'; a leading '#' sets a column of numbers. */
void html_table(FILE *f, const char *label, const char *columns);
void html_table_end(FILE *f);

void html_operations(FILE *f, const struct report *report);
/* Per operation: plots, regimes, selections. */
void html_errors(FILE *f, const struct report *report, const struct report_plots *plots);
void html_refusals(FILE *f, const struct report *report);
void html_checks(FILE *f, const struct report *report);
void html_broken(FILE *f, const struct report *report, const struct report_plots *plots);
void html_coverage(FILE *f, const struct report *report);
void html_timings(FILE *f, const struct report *report);
#endif
