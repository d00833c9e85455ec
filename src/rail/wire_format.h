/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What rails send: the address that the control plane carries, and the headers of active messages. Anybody who reaches
 * the port can send to a rail. Its uid is a secret (util/secret.h) that is told with its address; a message without it
 * is a stranger's, whatever else it says. No UCX in here.
 */
#ifndef MPATH_RAIL_WIRE_FORMAT_H
#define MPATH_RAIL_WIRE_FORMAT_H

#include "lane/lane.h"

/* What mpath_rail_address() hands out; the UCX worker address follows. */
typedef struct rail_address {
    uint32_t magic;
    uint32_t worker_bytes;
    uint64_t uid;
} rail_address_t;

/* Header of the active message: names the sender, who may be known here under any number. */
typedef struct rail_wire {
    uint64_t receiver; /* uid of the rail that it is for */
    uint64_t sender;   /* uid of the sending rail */
    mpath_chunk_t chunk;
} rail_wire_t;

typedef enum rail_wire_verdict {
    RAIL_WIRE_CHUNK,
    RAIL_WIRE_STRANGER, /* the sender has not got this rail's address from the job */
    RAIL_WIRE_BROKEN    /* it has, and what it sends is no chunk */
} rail_wire_verdict_t;

void rail_address_write(uint64_t uid, uint32_t worker_bytes, rail_address_t *head);
/* MPATH_OK: `head` is of this version of mpath, and all of the worker's address follows it. */
mpath_status_t rail_address_read(const void *address, size_t bytes, rail_address_t *head);

/* `uid`: of the receiving rail; `bytes`: of data, as UCX counted them. Fills in `wire` where it is a chunk. */
rail_wire_verdict_t rail_wire_read(uint64_t uid, const void *header, size_t header_bytes, size_t bytes,
                                   rail_wire_t *wire);

#endif
