/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks ask each other before there is a team, or beside it. */
#include "coll_mpath.h"

#include "exec/exchange.h"

#include <stdlib.h>

mpath_status_t mca_coll_mpath_gather(mca_coll_mpath_module_t *module, uint64_t mine, uint64_t *all)
{
    int timeout_s = mca_coll_mpath_component.settings.timeout_s;
    mca_coll_mpath_oob_t *state;
    mpath_oob_t oob;
    mpath_status_t status;

    status = mca_coll_mpath_oob_create(module->comm, COLL_MPATH_TAG_GATHER, &oob, &state);
    if (MPATH_OK != status) {
        return status;
    }
    status = mpath_exchange_allgather(&oob, timeout_s, NULL, oob.size, oob.rank, &mine, sizeof(mine), all);
    mca_coll_mpath_oob_destroy(state);
    return status;
}

bool mca_coll_mpath_all(mca_coll_mpath_module_t *module, bool mine)
{
    int size      = ompi_comm_size(module->comm), rank;
    uint64_t *all = calloc((size_t)size, sizeof(*all));
    bool each     = (NULL != all) && (MPATH_OK == mca_coll_mpath_gather(module, mine, all));

    for (rank = 0; each && (rank < size); rank++) {
        each = 0 != all[rank];
    }
    free(all);
    return each;
}
