/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A side of a call whose data lies in several allocations: its copy on the host has the elements of one rank behind
 * those of the other, without gaps, and arguments of its own that lead there. The counts stay.
 */
#ifndef COLL_MPATH_PIECES_H
#define COLL_MPATH_PIECES_H

#include "coll_mpath_pack.h"

#include "coll/staging.h"

typedef struct mca_coll_mpath_pieces_t {
    mpath_pieces_t *pieces;           /* NULL: the side is one piece of memory, or all of it the host's */
    struct ompi_datatype_t *datatype; /* of the copy; NULL: the user's */
    void *displs;                     /* of the copy */
} mca_coll_mpath_pieces_t;

/* Where the elements of a rank begin and end, from the user's buffer; both 0 without any. */
void mca_coll_mpath_piece_range(const mca_coll_mpath_args_t *args, int rank, ptrdiff_t *from_p, ptrdiff_t *to_p);

/* Looks where every piece lies. What is found is to be closed, also after an error. */
mpath_status_t mca_coll_mpath_pieces_look(const mca_coll_mpath_args_t *args, int size, bool contiguous,
                                          mca_coll_mpath_pieces_t *found);
/* Makes the copy, without contents; `args` leads to it afterwards. Errors are logged. */
mpath_status_t mca_coll_mpath_pieces_open(mca_coll_mpath_args_t *args, int size, bool contiguous,
                                          mca_coll_mpath_pieces_t *found, void **copy_p);
void mca_coll_mpath_pieces_close(mca_coll_mpath_pieces_t *found);

#endif
