/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's part of a communicator on device memory, for tests of relays and of the ways between GPUs of a node. */
#include "gpu_member.h"

#include <stdlib.h>
#include <string.h>

void member_join(member_t *member, const mpath_oob_t *oob, int device, mpath_memory_kind_t recv_kind, uint64_t room)
{
    ranks_check(mpath_team_create(member->context, oob, &member->team) == MPATH_OK);
    ranks_check(mpath_coll_create(member->team, &member->coll) == MPATH_OK);
    a2a_init(&member->a2a, oob->rank, oob->size);
    member->demand = calloc((size_t)oob->size * (size_t)oob->size, sizeof(uint64_t));
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, room, 1, &member->send);
    gpu_memory_alloc(recv_kind, device, room, (recv_kind == MPATH_MEMORY_VMM) ? 2 : 1, &member->recv);
}

void member_open(member_t *member, ranks_self_t *self, const mpath_settings_t *settings, uint64_t room)
{
    *member = (member_t){.context = ranks_context(self, settings)};
    member_join(member, &self->oob, self->rank % mpath_gpu_count(), MPATH_MEMORY_DEVICE, room);
}

void member_leave(member_t *member)
{
    a2a_end(&member->a2a);
    free(member->demand);
    mpath_coll_destroy(member->coll);
    mpath_team_destroy(member->team);
    gpu_memory_free(&member->send);
    gpu_memory_free(&member->recv);
}

void member_end(member_t *member)
{
    member_leave(member);
    mpath_context_destroy(member->context);
    mpath_gpu_cleanup();
}

/* The buffers of the host are copies of the device's. */
static mpath_status_t member_to_host(mpath_call_t *call, void *user)
{
    member_t *member = user;
    a2a_t *a2a       = &member->a2a;

    gpu_memory_read(member->send.address, a2a->send, a2a->send_room);
    gpu_memory_read(member->recv.address, a2a->recv, a2a->recv_room);
    *call              = a2a->call;
    member->was_copied = 1;
    return MPATH_OK;
}

/* The buffers of the host stand in the device's. */
mpath_status_t member_call(member_t *member, a2a_kind_t kind, uint64_t max_bytes, uint64_t seed)
{
    a2a_t *a2a = &member->a2a;
    mpath_memory_t send, recv;
    mpath_status_t status;
    mpath_call_t call;

    if (kind != A2A_GIVEN) {
        a2a_demand(kind, a2a->size, max_bytes, seed, member->demand);
    }
    a2a_fill(a2a, member->demand, seed);
    gpu_memory_write(member->send.address, a2a->send, a2a->send_room);
    gpu_memory_write(member->recv.address, a2a->recv, a2a->recv_room);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)member->send.address, a2a->send_room, &send) == MPATH_OK);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)member->recv.address, a2a->recv_room, &recv) == MPATH_OK);
    call             = a2a->call;
    call.send_buffer = (void *)(uintptr_t)member->send.address;
    call.recv_buffer = (void *)(uintptr_t)member->recv.address;
    call.send_memory = (member->memory == MEMBER_DEVICE) ? &send : NULL;
    call.recv_memory = (member->memory == MEMBER_DEVICE) ? &recv : NULL;
    if (member->memory == MEMBER_HOST) {
        call.send_buffer = a2a->call.send_buffer;
        call.recv_buffer = a2a->call.recv_buffer;
    }
    member->was_copied = 0;
    call.to_host       = member->copies ? member_to_host : NULL;
    call.user          = member;
    status             = mpath_alltoallv(member->coll, &call);
    if (member->was_copied) {
        gpu_memory_write(member->recv.address, a2a->recv, a2a->recv_room);
    }
    a2a_spoil(a2a);
    gpu_memory_write(member->send.address, a2a->send, a2a->send_room);
    gpu_memory_read(member->recv.address, a2a->recv, a2a->recv_room);
    return status;
}

void member_round(member_t *member, a2a_kind_t kind, uint64_t max_bytes, uint64_t seed)
{
    ranks_check(member_call(member, kind, max_bytes, seed) == MPATH_OK);
    ranks_check(a2a_check(&member->a2a) == 0);
}

void member_forwarded(const member_t *member, uint64_t *bytes, mpath_coll_counters_t *counters)
{
    mpath_coll_counters(member->coll, counters);
    ranks_check(mpath_team_allgather(member->team, &counters->relay.moved.forwarded_bytes, sizeof(*bytes), bytes) ==
                MPATH_OK);
}
