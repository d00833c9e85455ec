/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Share engine on device memory: a rail carries what the GPUs of its node combine, and is not to be borrowed meanwhile
 * by chunks that other communicators pass on (exec/relay_owners.h). A rank whose application computes in the middle of a
 * non-blocking call does not come here: what it has announced ends by itself, 20 ms later at most.
 */
#include "coll/share_gpu.h"

#include "util/time.h"

/* Rates of emulated clusters do not hold for these calls. */
static int is_emulated(const mpath_share_t *share)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(share->team);

    return (topo != NULL) && (mpath_topo_params(topo)->emulated != MPATH_EMULATED_NO);
}

void mpath_share_gpu_owners_begin(mpath_share_t *share)
{
    mpath_owners_t *owners = &share->gpu->owners;

    if (!owners->opened && (share->num_links > 0) && !is_emulated(share)) {
        mpath_owners_open(mpath_topo_machine(share->topo, share->node), mpath_team_id(share->team), 0, owners);
    }
}

void mpath_share_gpu_owners_announce(mpath_share_t *share)
{
    uint32_t nics = 0;

    if (!share->gpu->owners.opened) {
        return;
    }
    for (int i = 0; i < share->num_links; i++) {
        const share_link_t *link = &share->links[i];

        nics |= (link->freed < share->num_segments) ? 1u << share->rails[link->rail].nic[share->node] : 0;
    }
    mpath_owners_announce(&share->gpu->owners, MPATH_OWNER_SENDS(nics) | MPATH_OWNER_RECEIVES(nics), mpath_time_ns());
}

void mpath_share_gpu_owners_end(mpath_share_t *share)
{
    if (share->gpu->owners.opened) {
        mpath_owners_announce(&share->gpu->owners, 0, 0);
    }
}
