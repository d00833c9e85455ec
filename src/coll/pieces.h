/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pieces: a copy in host memory of data that lies in several allocations, of devices and of the host, one piece behind
 * the other. For buffers that are no one piece of memory, which is rare: MPI_BOTTOM with absolute addresses,
 * displacements from one allocation into another, memory that is mapped from several GPUs. Copies are on the default
 * streams, as those of a shadow (coll/shadow.h).
 */
#ifndef MPATH_COLL_PIECES_H
#define MPATH_COLL_PIECES_H

#include "gpu/memory.h"

#include <stddef.h>

typedef struct mpath_pieces mpath_pieces_t;

/* MPATH_ERR_NO_MEMORY is logged. */
mpath_status_t mpath_pieces_create(mpath_pieces_t **pieces_p);
/* NULL is left alone. */
void mpath_pieces_destroy(mpath_pieces_t *pieces);

/* The next piece; pieces may overlap. MPATH_ERR_PARAM, logged: it begins in device memory and reaches beyond its end. */
mpath_status_t mpath_pieces_add(mpath_pieces_t *pieces, const void *address, size_t bytes);
/* Nonzero: all are in memory of the host that is not managed by CUDA. */
int mpath_pieces_on_host(const mpath_pieces_t *pieces);

/* After the last piece: makes the copy. `gapped`: what is between pieces near each other may be written as it was. */
mpath_status_t mpath_pieces_open(mpath_pieces_t *pieces, int gapped, void **host_p);

/* All pieces to the copy, and back; done when it returns. Errors are logged. */
mpath_status_t mpath_pieces_load(const mpath_pieces_t *pieces);
mpath_status_t mpath_pieces_store(const mpath_pieces_t *pieces);

#endif
