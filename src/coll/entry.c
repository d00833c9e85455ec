/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a reduction or a gather is asked about, on devices and on the host. */
#include "coll/entry.h"

#include "coll/reduction_private.h"
#include "device/gpu.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/number.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

void mpath_entry_init(mpath_entry_t *entry, const mpath_settings_t *settings, const mpath_tuning_t *tuning,
                      const mpath_entry_ops_t *ops, void *user, int size, int rank, int is_remote)
{
    *entry = (mpath_entry_t){.settings  = settings,
                             .tuning    = tuning,
                             .ops       = ops,
                             .user      = user,
                             .size      = size,
                             .rank      = rank,
                             .is_remote = is_remote};
}

static const char *entry_name(const mpath_entry_t *entry)
{
    return entry->ops->name(entry->user);
}

/* NULL: there is no team, or none yet. */
static mpath_symmetric_t *entry_team(const mpath_entry_t *entry, int makes, int *is_tried_p)
{
    mpath_symmetric_t *symmetric = NULL;

    *is_tried_p = entry->ops->team(entry->user, makes, &symmetric);
    return symmetric;
}

/* A number that differs where parameters differ that decide about calls before there is a team. */
static uint64_t key_of(const mpath_settings_t *settings)
{
    const uint64_t values[] = {(uint64_t)settings->gate,
                               (uint64_t)settings->allreduce_algorithm,
                               (uint64_t)settings->reduce_scatter_algorithm,
                               (uint64_t)settings->allgather_algorithm,
                               mpath_key_mix(0, settings->tune, strlen(settings->tune)),
                               settings->symmetric_min_bytes};
    uint64_t key            = 14695981039346656037ull; /* FNV-1a, in words */

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        key = (key ^ values[i]) * 1099511628211ull;
    }
    return key;
}

/* The first time on a communicator it is collective: ranks whose parameters differ would decide differently here. */
static int is_alike(mpath_entry_t *entry)
{
    if (!entry->is_compared) {
        entry->is_compared = 1;
        entry->is_alike    = entry->ops->same(entry->user, key_of(entry->settings));
    }
    return entry->is_alike;
}

/* Between nodes calls so short go to the previous function anyway: they are not worth a question about devices. */
static int is_too_short(const mpath_entry_t *entry, uint64_t bytes)
{
    return entry->is_remote && bytes < entry->settings->symmetric_min_bytes &&
           entry->settings->gate != MPATH_GATE_ALWAYS;
}

/* -- devices -- */

static int has_devices(const mpath_symmetric_t *symmetric)
{
    return symmetric != NULL && (symmetric->gpu != NULL || symmetric->over_nodes);
}

/*
 * Whether all ranks say so. Where there is a team, by an agreement without data: MPI's own messages may take a rail that
 * has failed since.
 */
static int do_all(const mpath_entry_t *entry, mpath_symmetric_t *symmetric, int mine)
{
    mpath_call_t call = {.operation = MPATH_OPERATION_ALLREDUCE, .flags = mine ? 0 : MPATH_CALL_APART};
    mpath_agreed_t agreed;

    if (symmetric == NULL) {
        return entry->ops->all(entry->user, mine, 0);
    }
    memset(symmetric->send_bytes, 0, (size_t)entry->size * sizeof(*symmetric->send_bytes));
    call.send_bytes = call.send_offsets = call.recv_bytes = call.recv_offsets = symmetric->send_bytes;
    return mpath_agree(symmetric->team, &call, &agreed) == MPATH_OK && !(agreed.flags & MPATH_CALL_APART);
}

/* On one node there is no pipeline, and nothing travels in the agreement. */
static void tell_forced(const mpath_entry_t *entry)
{
    for (int i = 0; entry->rank == 0 && i < entry->tuning->count; i++) {
        const mpath_tuning_rule_t *rule = &entry->tuning->rules[i];

        if (rule->collective != MPATH_OPERATION_ALLTOALLV && mpath_reduction_is_for_nodes(rule->algorithm)) {
            mpath_info(
                "%s: \"%s\" of coll_mpath_tune does not act on device memory of one node; GPUs combine there, see "
                "gpu_reduce of coll_mpath_internals",
                entry_name(entry), rule->algorithm->name);
            return;
        }
    }
}

/* Every rank's application has started CUDA: makes what the calls need. Collective. */
static void make_devices(mpath_entry_t *entry)
{
    int is_tried;
    mpath_symmetric_t *symmetric = entry_team(entry, 1, &is_tried);
    mpath_status_t status;

    if (symmetric == NULL) { /* the same on all ranks */
        entry->never_on_devices = 1;
        return;
    }
    if (mpath_topo_num_nodes(mpath_team_topo(symmetric->team)) > 1) {
        symmetric->over_nodes = 1;
        /* where every rank's MPI can move device memory by itself, an Allgather may be faster so */
        symmetric->tries_gathers = do_all(entry, symmetric, entry->ops->knows_devices(entry->user));
        return;
    }
    status = mpath_symmetric_gpu_create(symmetric->team, &symmetric->gpu);
    if (!entry->ops->all(entry->user, status == MPATH_OK, 1)) {
        mpath_symmetric_gpu_destroy(symmetric->gpu);
        symmetric->gpu          = NULL;
        entry->never_on_devices = 1;
        return;
    }
    tell_forced(entry);
}

static int is_forced_aside(const mpath_entry_t *entry, mpath_operation_t collective, uint64_t bytes)
{
    const mpath_algorithm_t *forced = mpath_tuning_find(entry->tuning, collective, MPATH_ON_DEVICE, bytes);

    return forced != NULL && mpath_algorithm_is_previous(forced);
}

/* Whom to ask about devices; NULL: nobody. */
static mpath_symmetric_t *ask_on_devices(mpath_entry_t *entry, mpath_operation_t collective, uint64_t bytes)
{
    int is_tried;
    mpath_symmetric_t *symmetric = entry_team(entry, 0, &is_tried);

    if (entry->never_on_devices || is_too_short(entry, bytes) || (is_tried && symmetric == NULL)) {
        return NULL; /* the last: there is no team, or it is just being made, with these very functions */
    }
    if (entry->calls == 0) {
        entry->never_on_devices = entry->size < 2 || !is_alike(entry);
    }
    entry->calls++;
    if (entry->never_on_devices || entry->settings->gate == MPATH_GATE_NEVER ||
        is_forced_aside(entry, collective, bytes)) {
        return NULL;
    }
    if (!has_devices(symmetric) && (entry->calls & (entry->calls - 1)) == 0 &&
        do_all(entry, symmetric, mpath_gpu_available() && entry->settings->gpu)) {
        make_devices(entry);
        symmetric = entry_team(entry, 0, &is_tried);
    }
    return has_devices(symmetric) ? symmetric : NULL;
}

static int passes_devices(mpath_entry_t *entry, uint64_t bytes)
{
    uint64_t next = entry->calls + 1;
    int is_tried;
    mpath_symmetric_t *symmetric = entry_team(entry, 0, &is_tried);

    if (entry->never_on_devices || is_too_short(entry, bytes) || (is_tried && symmetric == NULL)) {
        return 1;
    }
    if (has_devices(symmetric) || entry->calls == 0 || (next & (next - 1)) == 0) {
        return 0;
    }
    entry->calls = next;
    return 1;
}

/* -- the host -- */

/* Whom to ask about data on the host; NULL: nobody. The first time it makes the team. */
static mpath_symmetric_t *ask_on_host(mpath_entry_t *entry, const mpath_reduction_t *call)
{
    int is_tried;

    if (call->collective != MPATH_OPERATION_ALLGATHER && call->combination == NULL) {
        entry->why = MPATH_WHY_OPERATION;
        return NULL;
    }
    if (!is_alike(entry)) {
        entry->why = MPATH_WHY_PARAMETERS_DIFFER;
        return NULL;
    }
    if (!mpath_tuning_may_carry(entry->tuning, entry->settings, call->collective, MPATH_ON_HOST, call->bytes)) {
        entry->why = call->bytes < entry->settings->symmetric_min_bytes ? MPATH_WHY_LESS : MPATH_WHY_PARAMETER;
        return NULL;
    }
    entry->why = MPATH_WHY_STAYS_OUT; /* where there is none */
    return entry_team(entry, 1, &is_tried);
}

int mpath_entry_passes(mpath_entry_t *entry, mpath_operation_t collective, uint64_t bytes)
{
    const mpath_settings_t *settings = entry->settings;
    int is_tried;
    mpath_symmetric_t *symmetric;

    if (mpath_gpu_available()) {
        return 0;
    }
    if (entry->ops == NULL) {
        entry->why = MPATH_WHY_STAYS_OUT;
        return 1;
    }
    if (!entry->is_compared || settings->gate != MPATH_GATE_AUTO ||
        mpath_tuning_has(entry->tuning, collective, MPATH_ON_HOST | MPATH_ON_DEVICE)) {
        return 0;
    }
    if (entry->is_alike && bytes >= settings->symmetric_min_bytes) {
        symmetric = entry_team(entry, 0, &is_tried);
        if (!is_tried || (symmetric != NULL && !mpath_symmetric_never_gains(symmetric))) {
            return 0;
        }
    }
    if (!passes_devices(entry, bytes)) {
        return 0;
    }
    symmetric  = entry_team(entry, 0, &is_tried);
    entry->why = bytes < settings->symmetric_min_bytes ? MPATH_WHY_LESS
                 : !entry->is_alike                    ? MPATH_WHY_PARAMETERS_DIFFER
                 : symmetric == NULL                   ? MPATH_WHY_STAYS_OUT
                                                       : MPATH_WHY_ONE_NODE;
    return 1;
}

/* -- the calls -- */

static mpath_status_t carry_here(mpath_symmetric_t *symmetric, const mpath_reduction_t *call, int on_devices)
{
    const mpath_symmetric_buffers_t *b = &call->buffers;

    switch (call->collective) {
    case MPATH_OPERATION_ALLREDUCE:
        return on_devices
                   ? mpath_allreduce_anywhere(symmetric, b, call->elements, call->combination, call->how)
                   : mpath_allreduce(symmetric, b->send, b->recv, call->elements, call->combination, b->ineligible);
    case MPATH_OPERATION_REDUCE_SCATTER:
        return on_devices
                   ? mpath_reduce_scatter_anywhere(symmetric, b, call->blocks, call->combination, call->how)
                   : mpath_reduce_scatter(symmetric, b->send, b->recv, call->blocks, call->combination, b->ineligible);
    default:
        return on_devices ? mpath_allgather_anywhere(symmetric, b, call->blocks, call->offsets)
                          : mpath_allgather(symmetric, b->send, b->recv, call->blocks, call->offsets, b->ineligible);
    }
}

static mpath_status_t carry(mpath_symmetric_t *symmetric, const mpath_reduction_t *call, int on_devices)
{
    mpath_status_t status = carry_here(symmetric, call, on_devices);

    mpath_team_flush_notices(symmetric->team);
    return status;
}

static mpath_status_t carry_on_devices(mpath_entry_t *entry, mpath_reduction_t *call)
{
    mpath_symmetric_t *symmetric = ask_on_devices(entry, call->collective, call->bytes);
    const char *what             = mpath_collective_text(call->collective);
    mpath_status_t status;

    if (symmetric == NULL || (call->collective != MPATH_OPERATION_ALLGATHER && call->how == NULL)) {
        return MPATH_DECLINED;
    }
    call->look(call, call->user);
    if (call->combination != NULL) {
        call->buffers.alike      = call->combination->alike;
        call->buffers.alike_text = call->combination->alike_text;
    }
    status = carry(symmetric, call, 1);
    if (status == MPATH_OK) {
        mpath_debug("%s: %s %s", entry_name(entry), symmetric->over_nodes ? "mpath carried" : "the GPUs carried", what);
    } else if (status == MPATH_DECLINED && symmetric->over_nodes) {
        mpath_debug("%s: %s goes on with data on the host: %s", entry_name(entry), what,
                    mpath_symmetric_declined_because(symmetric));
    }
    return status;
}

static mpath_status_t carry_on_host(mpath_entry_t *entry, mpath_symmetric_t *symmetric, const mpath_reduction_t *call)
{
    mpath_status_t status = carry(symmetric, call, 0);

    entry->why = mpath_symmetric_declined_because(symmetric);
    return status;
}

/* What calls before have shown of a gather: whether the previous function takes device memory as it is. */
static mpath_status_t ask_tuner(mpath_entry_t *entry, const mpath_reduction_t *call, int *previous_p)
{
    int is_tried;
    mpath_symmetric_t *symmetric = entry_team(entry, 0, &is_tried);

    *previous_p = 0;
    return symmetric != NULL && call->collective == MPATH_OPERATION_ALLGATHER && !is_too_short(entry, call->bytes)
               ? mpath_symmetric_ask_gathers(symmetric, call->bytes, previous_p)
               : MPATH_OK;
}

mpath_status_t mpath_entry_run(mpath_entry_t *entry, mpath_reduction_t *call)
{
    mpath_symmetric_t *symmetric = NULL;
    int previous                 = entry->ops == NULL, is_tried;
    mpath_status_t status        = previous ? MPATH_OK : ask_tuner(entry, call, &previous);

    entry->why = entry->ops == NULL ? MPATH_WHY_STAYS_OUT : MPATH_WHY_FASTER; /* where it is left so early */
    if (status == MPATH_OK) {
        status = previous ? MPATH_DECLINED : carry_on_devices(entry, call);
    }
    if (status != MPATH_DECLINED) {
        return status;
    }
    symmetric = previous ? NULL : ask_on_host(entry, call);
    status    = call->to_host(call, symmetric != NULL, call->user);
    if (status == MPATH_OK) {
        return symmetric != NULL ? carry_on_host(entry, symmetric, call) : MPATH_DECLINED;
    }
    symmetric = entry->ops != NULL ? entry_team(entry, 0, &is_tried) : NULL;
    if (symmetric != NULL) {
        mpath_team_break(symmetric->team, status); /* the others would wait: they hear of it in the agreement */
        mpath_team_flush_notices(symmetric->team);
    }
    return status;
}

void mpath_entry_ended(mpath_entry_t *entry)
{
    int is_tried;
    mpath_symmetric_t *symmetric = entry->ops != NULL ? entry_team(entry, 0, &is_tried) : NULL;

    if (symmetric != NULL) {
        mpath_symmetric_ended(symmetric);
    }
}
