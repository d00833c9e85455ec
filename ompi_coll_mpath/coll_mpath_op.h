/* SPDX-License-Identifier: BSD-3-Clause */
/* How elements are combined. */
#ifndef COLL_MPATH_OP_H
#define COLL_MPATH_OP_H

#include "coll_mpath.h"

/* Of so many elements, gaps included: what reductions go by. */
uint64_t mca_coll_mpath_reduced_bytes(uint64_t elements, struct ompi_datatype_t *datatype);

/* How libmpath combines; lives as long as the call. */
typedef struct mca_coll_mpath_op_t {
    struct ompi_op_t *op;
    struct ompi_datatype_t *datatype;
    mpath_combination_t combination;
} mca_coll_mpath_op_t;
/* NULL, on all ranks: libmpath is not asked to combine such elements. It is about everything predefined that commutes. */
const mpath_combination_t *mca_coll_mpath_op_of(struct ompi_op_t *op, struct ompi_datatype_t *datatype,
                                                mca_coll_mpath_op_t *work);

/* The same by kernels. False, on all ranks: they do not know it; of what they know, mca_coll_mpath_op_of() is not NULL. */
bool mca_coll_mpath_op_how(struct ompi_op_t *op, struct ompi_datatype_t *datatype, mpath_reduce_how_t *how);

#endif
