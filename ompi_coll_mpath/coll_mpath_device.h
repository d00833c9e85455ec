/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device buffers at the border to MPI. What libmpath takes as it is stays where it is. Everything else gets a copy in
 * host memory, so that no function ever sees a device pointer that it cannot read: datatypes with gaps, MPI_IN_PLACE,
 * communicators over several nodes, and every call that is left to the previous function of an Open MPI that knows
 * nothing of devices.
 */
#ifndef COLL_MPATH_DEVICE_H
#define COLL_MPATH_DEVICE_H

#include "coll_mpath_pack.h"

#include "coll/staging.h"
#include "device/memory.h"

/*
 * A side of a call whose data lies in several allocations: its copy on the host has the elements of one rank behind
 * those of the other, without gaps, and arguments of its own that lead there. The counts stay.
 */
typedef struct mca_coll_mpath_iov_t {
    mpath_iov_t *iov;                 /* NULL: the side is one piece of memory, or all of it the host's */
    struct ompi_datatype_t *datatype; /* of the copy; NULL: the user's */
    void *displs;                     /* of the copy */
} mca_coll_mpath_iov_t;

/* Where the elements of a rank begin and end, from the user's buffer; both 0 without any. */
void mca_coll_mpath_piece_range(const mca_coll_mpath_args_t *args, int rank, ptrdiff_t *from_p, ptrdiff_t *to_p);

/* One side of a call. */
typedef struct mca_coll_mpath_device_t {
    mpath_memory_t memory; /* kind HOST: there is nothing to do for this side; with `parts` DEVICE, and no more */
    ptrdiff_t lowest;      /* from the user's buffer to the first byte in use */
    size_t span_bytes;     /* from there to the last one */
    bool contiguous;       /* no gaps within any rank's elements */
    mpath_staging_t staging;
    mca_coll_mpath_iov_t parts;
    void *copy;                 /* of either kind; NULL: not open */
    mca_coll_mpath_args_t user; /* the arguments as they came */
} mca_coll_mpath_device_t;

/* Nothing is known of it, or open: for host memory. */
static inline void mca_coll_mpath_device_none(mca_coll_mpath_device_t *device)
{
    device->memory.kind         = MPATH_MEMORY_HOST;
    device->memory.device       = -1;
    device->contiguous          = false;
    device->staging.host        = NULL;
    device->staging.pinned.base = NULL;
    device->parts               = (mca_coll_mpath_iov_t){.iov = NULL};
    device->copy                = NULL;
}

/* Nothing of a side can be a device's, whatever the process has loaded. False says nothing; it may cost less to look. */
bool mca_coll_mpath_device_is_out(const mca_coll_mpath_args_t *args, int size);

/*
 * Looks where the side's data lies, and opens no copy; to be closed all the same. MPATH_ERR_PARAM, logged, for data that
 * reaches beyond its allocation. Costs next to nothing while the application has not started CUDA.
 */
mpath_status_t mca_coll_mpath_device_look(const mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device);

/* The bytes that a side uses, or that lie between those: from `lowest` after its buffer on. */
void mca_coll_mpath_device_span(const mca_coll_mpath_args_t *args, int size, ptrdiff_t *lowest_p, size_t *bytes_p);

/* The side is no one piece of memory, and some of it a device's. */
static inline bool mca_coll_mpath_device_in_parts(const mca_coll_mpath_device_t *device)
{
    return NULL != device->parts.iov;
}

/* Device memory that goes to libmpath as it is. */
static inline bool mca_coll_mpath_device_stays(const mca_coll_mpath_device_t *device)
{
    return !mpath_memory_on_host(device->memory.kind) && !mca_coll_mpath_device_in_parts(device) &&
           (NULL == device->copy);
}

/* The host cannot read and write this memory by itself. */
static inline bool mca_coll_mpath_device_needs_staging(const mca_coll_mpath_device_t *device)
{
    return !mpath_memory_on_host(device->memory.kind) && (MPATH_MEMORY_MANAGED != device->memory.kind) &&
           (NULL == device->copy);
}

/*
 * Copies the side to the host: `args` leads to the copy afterwards, for a side in parts with other displacements and
 * another datatype. `load`: with the data; without, only what
 * lies between the elements, if anything does.
 */
mpath_status_t mca_coll_mpath_device_staging(mca_coll_mpath_args_t *args, int size, bool load,
                                             mca_coll_mpath_device_t *device);
/* The same in two steps: opens the copy; fills it, any number of times. */
mpath_status_t mca_coll_mpath_device_open(mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device);
mpath_status_t mca_coll_mpath_device_load(int size, const mca_coll_mpath_device_t *device);
/* Copies what has arrived back to the device; nothing to do without a copy. */
mpath_status_t mca_coll_mpath_device_store(int size, const mca_coll_mpath_device_t *device);
void mca_coll_mpath_device_close(mca_coll_mpath_device_t *device);

/*
 * Parameter sync=device: waits for everything the application has under way on the devices of the buffers; of pinned,
 * managed and scattered ones, which any device may write, on all. `send` NULL: in place. Errors are logged.
 */
mpath_status_t mca_coll_mpath_device_sync(const mca_coll_mpath_device_t *send, const mca_coll_mpath_device_t *recv);

#endif
