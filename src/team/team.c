/* SPDX-License-Identifier: BSD-3-Clause */
/* Team: what its ranks know of each other, whether it is whole, and who has attached itself to it. */
#include "team/channel.h"
#include "team/team_private.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

/*
 * Breaking a team. The reason stands in the header of the node's segment, where node mates see it whenever they wait,
 * and goes to the other nodes as a notice from the leader and from the deputy of the node that broke it, as soon as
 * each of them learns of it: in the call it is in, or in its next one.
 *
 * The word in the header: bits 0-7 the status, negated; bit 8 set when the other nodes know already; from bit 9 on the
 * rank that broke the team.
 */

#define BREAK_KNOWN (1u << 8)
#define BREAK_RANK_SHIFT 9
#define LOOK_INTERVAL_NS (2 * MPATH_NS_PER_MS)

static unsigned break_word(mpath_status_t reason, int origin, unsigned known)
{
    return (unsigned)-reason | known | (unsigned)origin << BREAK_RANK_SHIFT;
}

/* Takes over what stands in the header. */
static void break_adopt(mpath_team_t *team)
{
    unsigned word = atomic_load_explicit(&team->header->broken, memory_order_acquire);

    team->broken = (mpath_status_t) - (int)(word & 0xff);
    if (!(word & BREAK_KNOWN)) {
        mpath_channels_notify(team, team->broken, (int)(word >> BREAK_RANK_SHIFT));
    }
    /* Others may be sending already what this rank, if it has not come to moving, will never look at. */
    for (const mpath_team_user_t *user = team->users; user != NULL; user = user->next) {
        if (user->ops->stop != NULL) {
            user->ops->stop(user->self);
        }
    }
}

void mpath_team_break(mpath_team_t *team, mpath_status_t reason)
{
    unsigned expected = 0;

    if (team->broken != MPATH_OK) {
        return;
    }
    reason = mpath_status_is_error(reason) ? reason : MPATH_ERR_INTERNAL;
    if (atomic_compare_exchange_strong(&team->header->broken, &expected, break_word(reason, team->rank, 0))) {
        mpath_info("%s: rank %d gives up (%s): every later call of mpath on the communicator fails, on all ranks",
                   team->oob.name, team->rank, mpath_status_string(reason)); /* the caller has logged why */
    }
    break_adopt(team);
}

void mpath_team_break_alike(mpath_team_t *team, mpath_status_t reason)
{
    if (team->broken != MPATH_OK) {
        return;
    }
    team->broken = reason;
    for (const mpath_team_user_t *user = team->users; user != NULL; user = user->next) {
        user->ops->stop(user->self);
    }
}

void mpath_team_break_by_notice(mpath_team_t *team, mpath_status_t reason, int origin)
{
    unsigned expected = 0;

    if (team->broken != MPATH_OK) {
        return;
    }
    reason = mpath_status_is_error(reason) ? reason : MPATH_ERR_INTERNAL;
    if (atomic_compare_exchange_strong(&team->header->broken, &expected, break_word(reason, origin, BREAK_KNOWN))) {
        mpath_info("%s: rank %d has given up (%s)", team->oob.name, origin, mpath_status_string(reason));
    }
    break_adopt(team);
}

mpath_status_t mpath_team_status(mpath_team_t *team)
{
    uint64_t now_ns;

    if (team->broken != MPATH_OK) {
        return team->broken;
    }
    if (atomic_load_explicit(&team->header->broken, memory_order_relaxed) != 0) {
        break_adopt(team);
        return team->broken;
    }
    if (team->channels != NULL) {
        now_ns = mpath_time_ns();
        if (now_ns >= team->next_look_ns) {
            team->next_look_ns = now_ns + LOOK_INTERVAL_NS;
            team->oob.progress(team->oob.context);
            (void)mpath_channels_look(team, NULL); /* notices break the team; other messages wait for the next call */
        }
    }
    return team->broken;
}

void mpath_team_attach(mpath_team_t *team, mpath_team_user_t *user, const mpath_team_user_ops_t *ops, void *self)
{
    *user       = (mpath_team_user_t){.next = team->users, .ops = ops, .self = self};
    team->users = user;
}

void *mpath_team_attached(const mpath_team_t *team, const mpath_team_user_ops_t *ops)
{
    for (const mpath_team_user_t *user = team->users; user != NULL; user = user->next) {
        if (user->ops == ops) {
            return user->self;
        }
    }
    return NULL;
}

void mpath_team_drain(mpath_team_t *team)
{
    for (const mpath_team_user_t *user = team->users; user != NULL && team->num_drains > 0; user = user->next) {
        if (user->ops->drain != NULL) {
            user->ops->drain(user->self);
        }
    }
}

int mpath_team_is_cut_off(mpath_team_t *team, int rank, int anew, char *text, size_t size)
{
    int cut_off = 0;

    for (const mpath_team_user_t *user = team->users; user != NULL && !cut_off; user = user->next) {
        cut_off = user->ops->is_cut_off != NULL && user->ops->is_cut_off(user->self, rank, anew, text, size);
    }
    return cut_off;
}

void mpath_team_set_record(mpath_team_t *team, mpath_record_t *record)
{
    mpath_record_leave_team(team->record);
    mpath_record_enter_team(record, team->id, team->rank, team->size);
    team->record = record;
    team->page   = record != NULL ? record->slot : NULL;
}

mpath_record_t *mpath_team_record(const mpath_team_t *team)
{
    return team->record;
}

int mpath_team_job_rank(const mpath_team_t *team)
{
    return team->context->job_rank;
}

const char *mpath_team_name(const mpath_team_t *team)
{
    return team->oob.name;
}

void mpath_team_say(mpath_team_t *team, int rank, const mpath_team_word_t *word)
{
    for (const mpath_team_user_t *user = team->users; user != NULL; user = user->next) {
        if (user->ops->say != NULL) {
            user->ops->say(user->self, rank, word);
        }
    }
}

int mpath_team_heard(mpath_team_t *team, int rank, mpath_team_word_t *word)
{
    int heard = 0;

    for (const mpath_team_user_t *user = team->users; user != NULL && !heard; user = user->next) {
        heard = user->ops->heard != NULL && user->ops->heard(user->self, rank, word);
    }
    return heard;
}

uint64_t mpath_team_id(const mpath_team_t *team)
{
    return team->id;
}

int mpath_team_rank(const mpath_team_t *team)
{
    return team->rank;
}

int mpath_team_size(const mpath_team_t *team)
{
    return team->size;
}

const mpath_topo_t *mpath_team_topo(const mpath_team_t *team)
{
    return team->topo;
}

const mpath_topo_t *mpath_team_gpu_topo(const mpath_team_t *team)
{
    return team->gpu_topo;
}

unsigned mpath_team_topo_version(const mpath_team_t *team)
{
    return team->topo_version;
}

mpath_nic_set_t mpath_team_lost(const mpath_team_t *team, int node)
{
    return team->lost[node];
}

const mpath_settings_t *mpath_team_settings(const mpath_team_t *team)
{
    return &team->context->settings;
}

const mpath_context_t *mpath_team_context(const mpath_team_t *team)
{
    return team->context;
}

mpath_process_t *mpath_team_mates(const mpath_team_t *team, int *num_p)
{
    mpath_process_t *mates = malloc((size_t)team->num_local * sizeof(*mates));

    for (int i = 0; mates != NULL && i < team->num_local; i++) {
        mates[i] = team->members[i].process;
    }
    *num_p = team->num_local;
    return mates;
}

uint64_t mpath_team_memory_bytes(const mpath_team_t *team)
{
    uint64_t bytes = team->segment.bytes / (uint64_t)team->num_local + mpath_channels_memory_bytes(team) +
                     (team->outbox_share != NULL ? mpath_outbox_bytes(team->context->outbox) : 0);

    for (const mpath_team_user_t *user = team->users; user != NULL; user = user->next) {
        bytes += user->ops->memory_bytes != NULL ? user->ops->memory_bytes(user->self) : 0;
    }
    return bytes;
}

const char *mpath_team_host(const mpath_team_t *team, int rank)
{
    return mpath_topo_machine(team->topo, team->node_of[rank])->host;
}

/* System calls: for a caller that has waited a while. */
static mpath_status_t team_node_member_status(const mpath_team_t *team, int local_rank)
{
    const mpath_team_member_t *member = &team->members[local_rank];

    if (!atomic_load_explicit(&member->published, memory_order_acquire)) {
        return MPATH_OK; /* has not attached yet */
    }
    return mpath_process_alive(&member->process) ? MPATH_OK : MPATH_ERR_UNREACHABLE;
}

mpath_status_t mpath_team_peer_status(const mpath_team_t *team, int rank)
{
    mpath_status_t status;

    if (team->node_of[rank] != team->node || rank == team->rank) {
        return MPATH_OK;
    }
    status = team_node_member_status(team, team->local_of[rank]);
    if (status != MPATH_OK) {
        mpath_segment_sweep(); /* it may have been about to share more memory */
    }
    return status;
}

int mpath_team_marked(const mpath_team_t *team)
{
    return team->is_marked(team);
}

uint32_t mpath_team_call(const mpath_team_t *team)
{
    return team->call;
}
