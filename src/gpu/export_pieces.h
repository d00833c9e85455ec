/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pieces of exports that are made of several physical allocations. Those with file descriptors are a list in a file
 * in memory of the owner, which importers fetch like the descriptors in it; fabric handles are in the export itself.
 */
#ifndef MPATH_GPU_EXPORT_PIECES_H
#define MPATH_GPU_EXPORT_PIECES_H

#include "gpu/export.h"

typedef struct mpath_export_piece {
    uint64_t bytes;
    uint64_t id; /* another one for another physical allocation */
    int32_t fd;  /* in the owner */
    uint32_t reserved;
} mpath_export_piece_t;

/* What the file begins with: the export that it is of, and so many pieces behind it. */
typedef struct mpath_export_list {
    uint64_t magic, base, bytes, buffer_id, pieces;
} mpath_export_list_t;

#define MPATH_EXPORT_LIST_MAGIC UINT64_C(0x6d70617468206c31)

/*
 * Descriptors for the pieces from made->base on, and the list of them. A physical allocation has one descriptor,
 * however many exports it is in. MPATH_ERR_NO_MEMORY, silent: that would take more than half of the descriptors that
 * the process may have; MPATH_DECLINED: the driver refuses, with the call and its result. Under the lock of the exports.
 */
typedef struct mpath_export_refusal {
    const char *call;
    mpath_cu_result_t result;
} mpath_export_refusal_t;
mpath_status_t mpath_export_pieces_make(mpath_export_t *made, mpath_export_refusal_t *refusal);
void mpath_export_pieces_close(const mpath_export_t *made);

/* Descriptors that there may be. */
uint64_t mpath_export_pieces_limit(void);

/* For importers: an array of export->pieces, to be freed. Errors, logged, as of mpath_import_get(). */
mpath_status_t mpath_import_pieces(const mpath_export_t *export, mpath_export_piece_t **list_p);

/* For importers: copies a descriptor of the owner into this process. -1: logged. */
int mpath_import_fd(const mpath_process_t *owner, int fd);

/* Whether a piece of one export begins where the other one has another piece, or none that begins there. */
int mpath_export_pieces_differ(const mpath_export_t *a, const mpath_export_piece_t *a_list, const mpath_export_t *b,
                               const mpath_export_piece_t *b_list);

#endif
