/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of relays share: ranks on GPUs of a described machine, and rounds of random demands. */
#include "relay_support.h"

#include "team/agree_private.h"
#include "team/team_private.h"
#include "unit/capture.h"
#include "wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINK_BPS 1000000000ull

/* Ranks that share a GPU, and the NIC beside it. */
static int on_gpu(const relay_job_t *job)
{
    return (job->on_gpu > 0) ? job->on_gpu : 1;
}

static uint32_t nics_beside(const relay_job_t *job, int gpu)
{
    uint32_t all = (1u << job->setup.nics) - 1;

    if (job->setup.nics == 0) {
        return 0;
    }
    return (job->beside == RELAY_BESIDE_ALL)     ? all
           : (job->beside == RELAY_BESIDE_OTHER) ? 1u << ((gpu + 1) % job->setup.nics)
                                                 : 1u << gpu;
}

/* The GPUs of a node with one for each of its ranks. */
static void describe_gpus(const ranks_self_t *self, const relay_job_t *job, mpath_node_gpus_t *gpus)
{
    *gpus          = (mpath_node_gpus_t){.link = job->link, .domain = -1};
    gpus->num_gpus = self->size / ((job->setup.nodes > 0) ? job->setup.nodes : 1) / on_gpu(job);
    for (int g = 0; g < gpus->num_gpus; g++) {
        gpus->gpus[g] = (mpath_gpu_t){
            .pcie_up_bps = job->pcie_bps, .pcie_down_bps = job->pcie_bps, .nics = nics_beside(job, g)};
        if (job->link == MPATH_GPU_LINK_SWITCH) {
            gpus->gpus[g].egress_bps = gpus->gpus[g].ingress_bps = LINK_BPS;
        }
        for (int peer = 0; (job->link == MPATH_GPU_LINK_MESH) && (peer < gpus->num_gpus); peer++) {
            gpus->nvlink_bps[g][peer] = (peer != g) ? LINK_BPS : 0;
        }
    }
}

void relay_member_join(member_t *member, const ranks_self_t *self, const mpath_oob_t *oob, const relay_job_t *job)
{
    int device    = (self->rank / on_gpu(job)) % mpath_gpu_count(); /* of four; else rank 5 shares that of rank 1 */
    uint64_t room = ((uint64_t)self->size + 1) * (job->max_bytes + 64);

    member_join(member, oob, device, (self->rank % 2 == 0) ? MPATH_MEMORY_DEVICE : MPATH_MEMORY_VMM, room);
}

static void start_application(const ranks_self_t *self, const relay_job_t *job)
{
    char number[16];

    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("FAKE_CUDA_WITHOUT", (job->without != NULL) ? job->without : "", 1);
    setenv("FAKE_CUDA_FULL", (job->full != NULL) ? job->full : "", 1);
    if (job->alone) {
        snprintf(number, sizeof(number), "%d", self->rank / on_gpu(job) % 4);
        setenv("CUDA_VISIBLE_DEVICES", number, 1);
    }
    if (job->alone > 1) {
        setenv("FAKE_NVML_HIDDEN", "1", 1);
    }
    gpu_application_starts();
    if (job->links != NULL) {
        gpu_nvml_starts(job->links);
    }
}

void relay_member_init(member_t *member, ranks_self_t *self, const relay_job_t *job)
{
    mpath_settings_t settings;

    if (job->first == NULL) {
        start_application(self, job);
    }
    mpath_settings_init(&settings);
    settings.gate       = job->by_gate ? MPATH_GATE_AUTO : MPATH_GATE_ALWAYS;
    settings.check_plan = 1;
    settings.timeout_s  = 100;
    settings.gpu_probe  = MPATH_GPU_PROBE_OFF;
    settings.gpu_rail   = job->gpu_rail;
    if (job->tune != NULL) {
        settings.tune = job->tune;
    }
    if (job->keeps_rates) {
        settings.adapt = MPATH_ADAPT_OFF;
    }
    if (job->adapt_file != NULL) {
        settings.adapt_file = job->adapt_file;
    }
    if (job->resend_after_s > 0) {
        settings.resend_after_s = job->resend_after_s;
    }
    if (job->pool_bytes > 0) {
        settings.gpu_relay_bytes = job->pool_bytes;
    }
    if (job->host_bytes > 0) {
        settings.gpu_memory_bytes = job->host_bytes;
    }
    memset(member, 0, sizeof(*member));
    member->context = ranks_context(self, &settings);
    if (job->first != NULL) {
        job->first(member->context);
        start_application(self, job);
    }
    if (!job->discovers) {
        describe_gpus(self, job, &member->context->gpus);
        member->context->gpu                = self->local_rank / on_gpu(job);
        member->context->emulated           = job->emulated;
        member->context->topo_params.fabric = job->spine ? MPATH_FABRIC_SPINE : 0;
    }
    for (int nic = 0; nic < job->setup.nics; nic++) {
        member->context->machine.nics[nic].up = !((job->down >> nic) & 1);
    }
    if (job->affine) {
        member->context->topo_params.access = MPATH_REACH_AFFINE;
    }
    member->context->nic       = (job->setup.nics > 0) ? self->local_rank / on_gpu(job) : -1;
    member->context->nic_known = 1;
    relay_member_join(member, self, &self->oob, job);
}

void relay_lose_context(const ranks_self_t *self, const relay_job_t *job, int mine, member_t *members, int num)
{
    int device    = self->rank % mpath_gpu_count();
    uint64_t room = ((uint64_t)self->size + 1) * (job->max_bytes + 64), all[RANKS_MAX], none = 0;

    ranks_check(mpath_team_allgather(members[0].team, &none, sizeof(none), all) == MPATH_OK);
    for (int i = 0; mine && (i < num); i++) {
        gpu_memory_free(&members[i].send);
        gpu_memory_free(&members[i].recv);
    }
    if (mine) {
        gpu_application_resets(device);
    }
    for (int i = 0; mine && (i < num); i++) {
        mpath_gpu_notice_lost();
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, room, 1, &members[i].send);
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, room, 1, &members[i].recv);
    }
}

static int rounds_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    uint64_t passed[RANKS_MAX], sum = 0;
    mpath_coll_counters_t counters;
    mpath_wire_t *wire;
    member_t member;

    relay_member_init(&member, self, job);
    for (int round = 0; round < job->rounds; round++) {
        member_round(&member, (a2a_kind_t)(round % 7), (round % 3 == 2) ? 3000 : job->max_bytes, (uint64_t)round);
    }
    for (int round = 0; round < 3; round++) {
        member_round(&member, A2A_HOT, job->max_bytes, 77);
    }
    if (job->tune != NULL) { /* nobody has the matrix */
        ranks_check(member.team->agree->matrix == NULL);
    }
    member_forwarded(&member, passed, &counters);
    for (int rank = 0; rank < self->size; rank++) {
        sum += passed[rank];
    }
    ranks_check(counters.declined == 0);
    ranks_check((sum > 0) == !job->passes_nothing);
    ranks_check((job->setup.nodes < 2) || (counters.relay.moved.calls >= (uint64_t)job->rounds));
    ranks_check(counters.relay.moved.slot_bytes <= 32 << 20);
    if ((job->setup.nodes > 1) && (job->emulated != MPATH_EMULATED_COPIES)) { /* it is there; a limit of its own */
        const mpath_settings_t *settings = &member.context->settings;

        ranks_check(mpath_wire_get(member.team, MPATH_LINKS_ALL, &wire) == MPATH_OK);
        ranks_check(mpath_wire_rail_chunk(wire) == settings->gpu_chunk_bytes);
        ranks_check(mpath_wire_max_chunk(wire) == settings->chunk_bytes);
    }
    member_end(&member);
    return 0;
}

void relay_run_rounds(const relay_job_t *given)
{
    relay_job_t job = *given;

    job.link          = ((job.link == MPATH_GPU_LINK_NONE) && !job.unlinked) ? MPATH_GPU_LINK_MESH : job.link;
    job.pcie_bps      = (job.pcie_bps == 0) ? 50000000000ull : job.pcie_bps;
    job.setup.nic_bps = RELAY_RAIL_BPS;
    job.killed        = -1;
    assert_int_equal(ranks_run(&job.setup, rounds_body, &job), 0);
}
