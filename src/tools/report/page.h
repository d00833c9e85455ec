/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A page of HTML that needs nothing beside itself: no script, no font, no network. Sections follow each other; what is in
 * them is escaped by who writes it.
 */
#ifndef MPATH_TOOLS_REPORT_PAGE_H
#define MPATH_TOOLS_REPORT_PAGE_H

#include "plan/plan.h"
#include "tools/plan/input.h"

#include <jansson.h>
#include <stdio.h>

void page_begin(FILE *out, const char *title, const char *version);
void page_end(FILE *out);
void page_section(FILE *out, const char *id, const char *title);
void page_section_end(FILE *out);
/* Figures in a row: begin, each with its name and its value, end. */
void page_figures(FILE *out);
void page_figure(FILE *out, const char *name, const char *value, const char *note);
void page_figures_end(FILE *out);
/* A bar in a cell of a table; `part` of its whole length, 0 to 1. */
void page_bar(FILE *out, double part, const char *text);

/* plan.c: what plans make of a matrix on a machine. Errors are logged. */
mpath_status_t report_plan(FILE *out, const plan_input_t *input, const mpath_plan_params_t *params);

/* run.c: the summary of a job; */
void report_summary(FILE *out, const json_t *summary);

/* trace.c: the timeline of its ranks, of one file or of several. MPATH_ERR_NO_MEMORY, logged. */
mpath_status_t report_trace(FILE *out, json_t *const *traces, int count);

#endif
