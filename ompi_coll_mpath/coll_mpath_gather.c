/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ranks ask each other before there is a team, or beside it. Where that fails, because one of them is gone or does
 * not come, this rank cannot know what the others do: every call on the communicator fails from then on, on all of them,
 * as they are told.
 */
#include "coll_mpath.h"

#include "team/exchange.h"

static mpath_status_t gather_end(mca_coll_mpath_module_t *module, mca_coll_mpath_oob_t *state, mpath_status_t status)
{
    mca_coll_mpath_oob_close(state);
    if (MPATH_ERR_INTERNAL == status) {
        mca_coll_mpath_loss_give_up(module, status, -1);
    }
    if (mpath_exchange_is_parted(status) || (MPATH_ERR_INTERNAL == status)) {
        mca_coll_mpath_loss_note(module, status);
    }
    mca_coll_mpath_loss_rest(module);
    return status;
}

mpath_status_t mca_coll_mpath_gather(mca_coll_mpath_module_t *module, uint64_t mine, uint64_t *all)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;
    mca_coll_mpath_oob_t state;
    mpath_oob_t oob;
    mpath_status_t status;

    if (MPATH_OK != module->parted) {
        return module->parted;
    }
    mca_coll_mpath_oob_open(module, COLL_MPATH_TAG_GATHER, &state, &oob);
    status = mpath_exchange_allgather(&oob, mpath_patience_late(settings), NULL, oob.size, oob.rank, &mine,
                                      sizeof(mine), all);
    if (!mpath_exchange_is_parted(status)) {
        status = mpath_exchange_agree(&oob, mpath_patience_here(settings), status);
    }
    return gather_end(module, &state, status);
}

static bool gather_all(mca_coll_mpath_module_t *module, mpath_patience_t patience, bool mine)
{
    mca_coll_mpath_oob_t state;
    mpath_oob_t oob;
    mpath_status_t status;

    mca_coll_mpath_oob_open(module, COLL_MPATH_TAG_GATHER, &state, &oob);
    status = mpath_exchange_agree(&oob, patience,
                                  (MPATH_OK != module->parted) ? MPATH_ERR_UNREACHABLE
                                  : mine                       ? MPATH_OK
                                                               : MPATH_DECLINED);
    if (MPATH_ERR_NO_MEMORY == status) {
        status = MPATH_ERR_INTERNAL; /* a message could not be sent, for which another rank waits */
    }
    return MPATH_OK == gather_end(module, &state, status);
}

bool mca_coll_mpath_all(mca_coll_mpath_module_t *module, bool mine)
{
    return (MPATH_OK == module->parted) &&
           gather_all(module, mpath_patience_late(&mca_coll_mpath_component.settings), mine);
}

bool mca_coll_mpath_all_here(mca_coll_mpath_module_t *module, bool mine)
{
    return gather_all(module, mpath_patience_here(&mca_coll_mpath_component.settings), mine);
}
