/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One side of a call in bytes: what libmpath carries is contiguous for each pair. A datatype without gaps is used where
 * it lies; anything else goes through a packed copy.
 */
#ifndef COLL_MPATH_PACK_H
#define COLL_MPATH_PACK_H

#include "coll_mpath_compat.h"

#include "util/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The arguments of one side, as the MPI function has them. */
typedef struct mca_coll_mpath_args_t {
    void *buffer; /* not written on the send side */
    struct ompi_datatype_t *datatype;
    bool equal; /* MPI_Alltoall: `count` for each rank, one after the other */
    size_t count;
    mca_coll_mpath_counts_t counts;
    mca_coll_mpath_displs_t displs; /* in extents of the datatype */
    bool combined;                  /* `count` elements for an operation, which needs the datatype as it is */
} mca_coll_mpath_args_t;

/* Elements for a rank. */
size_t mca_coll_mpath_args_count(const mca_coll_mpath_args_t *args, int rank);
/* Bytes from the buffer to where the rank's elements start, their lower bound not yet counted. */
ptrdiff_t mca_coll_mpath_args_displacement(const mca_coll_mpath_args_t *args, int rank);
/* No gaps within any rank's elements; a single element may be followed by one. */
bool mca_coll_mpath_args_contiguous(const mca_coll_mpath_args_t *args, int size);

typedef struct mca_coll_mpath_side_t {
    uint64_t *bytes;   /* for each rank; borrowed */
    uint64_t *offsets; /* from `buffer`; borrowed */
    uint64_t total_bytes;
    void *buffer; /* NULL when there is nothing to carry */
    void *copy;   /* packed; NULL when the data is used where it lies */
} mca_coll_mpath_side_t;

/*
 * Describes a side in `bytes` and `offsets` (`size` entries each, which the caller keeps). With `force_copy` the side
 * gets a packed copy in any case. Allocates the copy and does not fill it. MPATH_ERR_NO_MEMORY, without a message, when
 * the copy would take more than *budget_bytes (which the copy is taken off) or there is no memory.
 */
mpath_status_t mca_coll_mpath_side_init(const mca_coll_mpath_args_t *args, int size, bool force_copy,
                                        uint64_t *budget_bytes, uint64_t *bytes, uint64_t *offsets,
                                        mca_coll_mpath_side_t *side);
void mca_coll_mpath_side_free(mca_coll_mpath_side_t *side);

/* From the user's buffer into the copy and back; nothing to do for a side without one. */
mpath_status_t mca_coll_mpath_side_pack(const mca_coll_mpath_args_t *args, int size, const mca_coll_mpath_side_t *side);
mpath_status_t mca_coll_mpath_side_unpack(const mca_coll_mpath_args_t *args, int size,
                                          const mca_coll_mpath_side_t *side);

/* True: the buffer is not host memory, as far as Open MPI knows. */
bool mca_coll_mpath_is_device(const void *buffer);
/* True: this Open MPI knows memory of CUDA devices. */
bool mca_coll_mpath_knows_devices(void);

#endif
