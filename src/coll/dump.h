/* SPDX-License-Identifier: BSD-3-Clause */
/* The call that gained or lost most against its static routes, as files for mpath_plan: parameter dump_plan. */
#ifndef MPATH_COLL_DUMP_H
#define MPATH_COLL_DUMP_H

#include "topo/topo.h"
#include "util/param.h"

#include <stdint.h>

typedef struct mpath_dump_call {
    const char *name;                       /* of the communicator */
    uint32_t number;                        /* of the call */
    const char *algorithm;                  /* that carried it */
    uint64_t static_ns, mpath_ns, taken_ns; /* predicted, predicted, measured */
    const mpath_topo_t *topo;               /* with the rates that plans count on */
    const uint64_t *demand;                 /* demand[source * ranks + destination] */
} mpath_dump_call_t;

/*
 * Writes NAME.matrix.txt and NAME.topo.xml where the call's taken time differs from that of its static routes by a tenth more than
 * that of any call before, in the whole process. By rank 0 of the job, or, where NAME has %r or %p, by each. What goes wrong is
 * logged, once. Any thread.
 */
void mpath_dump_plan(const mpath_settings_t *settings, int job_rank, const mpath_dump_call_t *call);
/* Whether a parameter asks for it. */
int mpath_dump_wanted(const mpath_settings_t *settings);
/* No more calls: who was to write files and had nothing to write says so. */
void mpath_dump_end(const mpath_settings_t *settings, int job_rank);

#endif
