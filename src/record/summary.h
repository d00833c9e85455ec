/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The summary of a job: what each process reports, added up, as text or JSON (doc/seeing.md). Local: who sends reports
 * where is the caller's business.
 */
#ifndef MPATH_RECORD_SUMMARY_H
#define MPATH_RECORD_SUMMARY_H

#include "record/record.h"
#include "util/status.h"

#include <stdio.h>

typedef struct mpath_report_row {
    uint64_t carried, left, failed, repeated, predicted, static_ns, mpath_ns, taken_ns;
    uint64_t algorithms[MPATH_RECORD_ALGORITHMS];
    uint64_t reasons[MPATH_REASONS];
    uint64_t carried_bytes, left_bytes; /* in all communicators; the rest: in those whose rank 0 this process was */
} mpath_report_row_t;

typedef struct mpath_report_rail {
    char name[MPATH_PAGE_NAME_MAX];
    int64_t number;
    uint64_t sent_bytes, received_bytes, failures;
} mpath_report_rail_t;

/* Of one process: flat, so that it is a message to another process of the same build. */
typedef struct mpath_report {
    uint64_t magic; /* of a report of this build */
    int64_t rank;   /* in the job */
    char host[MPATH_RECORD_NAME_MAX];
    uint64_t job_ns; /* since the first call that was counted */
    uint64_t agree_ns, plan_ns, move_ns, relayed_bytes;
    uint64_t num_rails;
    mpath_report_rail_t rails[MPATH_PAGE_RAILS];
    mpath_report_row_t rows[MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES];
} mpath_report_t;

/* What this process has counted; the caller fills in times and relayed bytes. */
void mpath_report_make(int rank, mpath_report_t *report);

typedef struct mpath_summary mpath_summary_t;

/* `version` is mpath's, and outlives the summary. MPATH_ERR_NO_MEMORY is logged. */
mpath_status_t mpath_summary_create(int num_ranks, const char *version, mpath_summary_t **summary_p);
/* MPATH_ERR_PARAM, logged: it is no report of a process of this build and job. */
mpath_status_t mpath_summary_add(mpath_summary_t *summary, const mpath_report_t *report);
void mpath_summary_write_text(const mpath_summary_t *summary, FILE *out);
void mpath_summary_write_json(const mpath_summary_t *summary, FILE *out);
void mpath_summary_destroy(mpath_summary_t *summary);

#endif
