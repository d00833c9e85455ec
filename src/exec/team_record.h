/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank tells the others about itself when a team is set up, and whether such ranks can form a team. */
#ifndef MPATH_EXEC_TEAM_RECORD_H
#define MPATH_EXEC_TEAM_RECORD_H

#include "exec/team_private.h"

#define TEAM_RECORD_VALUES 30

typedef struct team_record {
    uint64_t node_key;
    uint64_t topo_key;
    uint64_t team_id;                    /* rank 0's proposal counts */
    uint64_t shared_memory_bytes;        /* free on its host; 0: unknown */
    uint64_t values[TEAM_RECORD_VALUES]; /* of the parameters that all ranks must share */
    int64_t status;                      /* of its context */
} team_record_t;

/* A checksum of this build of mpath; ranks with different builds must not even exchange records. */
uint64_t team_record_build(void);

void team_record_fill(mpath_context_t *context, const mpath_oob_t *oob, team_record_t *record);

/* MPATH_OK, or MPATH_DECLINED with a reason logged by rank 0; the same on every rank. */
mpath_status_t team_record_compare(const mpath_oob_t *oob, const team_record_t *records);

#endif
