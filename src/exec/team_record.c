/* SPDX-License-Identifier: BSD-3-Clause */
/* Records of the ranks: filled from the context, compared with rank 0's. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "exec/team_record.h"
#include "exec/agree.h"
#include "exec/node_key.h"
#include "util/log.h"
#include "util/time.h"

#include <string.h>
#include <unistd.h>

/* Raised whenever the messages or the shared memory of a team change. */
#define TEAM_PROTOCOL 8

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

static const char *const value_names[] = {"access",
                                          "gate",
                                          "check_plan",
                                          "small_bytes",
                                          "leader_bytes",
                                          "min_fragment_bytes",
                                          "keep_routes_ppm",
                                          "chunk_bytes",
                                          "memory_bytes",
                                          "node_min_bytes",
                                          "topo_file fabric",
                                          "alltoallv_algorithm",
                                          "allreduce_algorithm",
                                          "reduce_scatter_algorithm",
                                          "allgather_algorithm",
                                          "symmetric_min_bytes",
                                          "resend_after_s",
                                          "resend_min_ms",
                                          "deterministic",
                                          "adapt",
                                          "gpu",
                                          "gpu_way",
                                          "gpu_probe",
                                          "gpu_host_percent",
                                          "gpu_help_percent",
                                          "gpu_reduce",
                                          "gpu_memory_bytes",
                                          "gpu_host_min_bytes",
                                          "gpu_port_bps",
                                          "max_paths"};

_Static_assert(sizeof(value_names) / sizeof(value_names[0]) == TEAM_RECORD_VALUES, "a name for each");

uint64_t team_record_build(void)
{
    const uint64_t numbers[] = {TEAM_PROTOCOL, sizeof(team_record_t), sizeof(mpath_machine_t), sizeof(mpath_chunk_t),
                                sizeof(void *)};

    return mpath_key_mix(mpath_key_mix(0, PACKAGE_VERSION, strlen(PACKAGE_VERSION)), numbers, sizeof(numbers));
}

/* Unlike that of any other team: who makes it, when, and a count of its own. */
static uint64_t new_team_id(const mpath_context_t *context)
{
    static atomic_uint count;
    const uint64_t parts[] = {context->node_key, (uint64_t)getpid(), mpath_time_ns(), atomic_fetch_add(&count, 1)};

    return mpath_key_mix(0, parts, sizeof(parts));
}

void team_record_fill(mpath_context_t *context, const mpath_oob_t *oob, team_record_t *record)
{
    const mpath_settings_t *settings = &context->settings;
    const uint64_t values[]          = {(uint64_t)context->topo_params.access,
                                        (uint64_t)settings->gate,
                                        (uint64_t)settings->check_plan,
                                        settings->small_bytes,
                                        settings->leader_bytes,
                                        settings->min_fragment_bytes,
                                        (uint64_t)settings->keep_routes_ppm,
                                        settings->chunk_bytes,
                                        settings->memory_bytes,
                                        settings->node_min_bytes,
                                        context->topo_params.fabric,
                                        (uint64_t)settings->alltoallv_algorithm,
                                        (uint64_t)settings->allreduce_algorithm,
                                        (uint64_t)settings->reduce_scatter_algorithm,
                                        (uint64_t)settings->allgather_algorithm,
                                        settings->symmetric_min_bytes,
                                        (uint64_t)settings->resend_after_s,
                                        (uint64_t)settings->resend_min_ms,
                                        (uint64_t)settings->deterministic,
                                        (uint64_t)settings->adapt,
                                        (uint64_t)settings->gpu,
                                        (uint64_t)settings->gpu_way,
                                        (uint64_t)settings->gpu_probe,
                                        (uint64_t)settings->gpu_host_percent,
                                        (uint64_t)settings->gpu_help_percent,
                                        (uint64_t)settings->gpu_reduce,
                                        settings->gpu_memory_bytes,
                                        settings->gpu_host_min_bytes,
                                        settings->gpu_port_bps,
                                        (uint64_t)context->topo_params.max_paths};

    _Static_assert(sizeof(values) == sizeof(record->values), "a value for each");
    memset(record, 0, sizeof(*record));
    record->node_key            = context->node_key;
    record->topo_key            = context->topo_key;
    record->team_id             = oob->rank == 0 ? new_team_id(context) : 0;
    record->shared_memory_bytes = mpath_shared_memory_free();
    record->status              = context->usable;
    memcpy(record->values, values, sizeof(values));
}

/* All ranks find the same; one of them says it aloud. */
#define record_tell(_oob, _topic, ...)                                                                                 \
    do {                                                                                                               \
        if ((_oob)->rank == 0) {                                                                                       \
            mpath_tell(_topic, __VA_ARGS__);                                                                           \
        } else {                                                                                                       \
            mpath_info(__VA_ARGS__);                                                                                   \
        }                                                                                                              \
    } while (0)

mpath_status_t team_record_compare(const mpath_oob_t *oob, const team_record_t *records)
{
    for (int rank = 0; rank < oob->size; rank++) {
        const team_record_t *record = &records[rank];

        if (record->status != MPATH_OK) {
            record_tell(oob, "unusable",
                        "%s: rank %d cannot use mpath (%s); the previous functions serve the communicator", oob->name,
                        rank, mpath_status_string((mpath_status_t)record->status));
            return MPATH_DECLINED;
        }
        if (record->topo_key != records[0].topo_key) {
            record_tell(oob, "settings-differ",
                        "%s: ranks 0 and %d have read different topology files; the previous functions serve the "
                        "communicator",
                        oob->name, rank);
            return MPATH_DECLINED;
        }
        for (int i = 0; i < TEAM_RECORD_VALUES; i++) {
            if (record->values[i] != records[0].values[i]) {
                record_tell(oob, "settings-differ",
                            "%s: parameter %s is %lld on rank 0 and %lld on rank %d; the previous functions serve the "
                            "communicator",
                            oob->name, value_names[i], (long long)records[0].values[i], (long long)record->values[i],
                            rank);
                return MPATH_DECLINED;
            }
        }
    }
    return MPATH_OK;
}
