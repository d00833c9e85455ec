/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench: control and performance variables through the MPI tool interface. */
#include "tools/bench/bench.h"
#include "tools/bench/pvar.h"

#include <string.h>

static const char *const pvar_names[BENCH_MAX_PVARS] = {[BENCH_PVAR_CALLS]           = "coll_mpath_calls",
                                                        [BENCH_PVAR_DECLINED]        = "coll_mpath_declined",
                                                        [BENCH_PVAR_PLANS]           = "coll_mpath_plans",
                                                        [BENCH_PVAR_PLAN_HITS]       = "coll_mpath_plan_hits",
                                                        [BENCH_PVAR_AGREE_NS]        = "coll_mpath_agree_ns",
                                                        [BENCH_PVAR_PLAN_NS]         = "coll_mpath_plan_ns",
                                                        [BENCH_PVAR_MOVE_NS]         = "coll_mpath_move_ns",
                                                        [BENCH_PVAR_RELAYED_BYTES]   = "coll_mpath_relayed_bytes",
                                                        [BENCH_PVAR_KERNEL_BYTES]    = "coll_mpath_kernel_bytes",
                                                        [BENCH_PVAR_ENGINE_BYTES]    = "coll_mpath_engine_bytes",
                                                        [BENCH_PVAR_STAGED_BYTES]    = "coll_mpath_staged_bytes",
                                                        [BENCH_PVAR_YIELDS]          = "coll_mpath_yields",
                                                        [BENCH_PVAR_RECEIVE_YIELDS]  = "coll_mpath_receive_yields",
                                                        [BENCH_PVAR_KERNEL_LAUNCHES] = "coll_mpath_kernel_launches",
                                                        [BENCH_PVAR_KERNEL_CTAS]     = "coll_mpath_kernel_ctas",
                                                        [BENCH_PVAR_DEVICE_BYTES]    = "coll_mpath_device_bytes"};

int bench_cvar_write(const char *name, int value)
{
    MPI_T_cvar_handle handle;
    int index, count, status;

    status = MPI_T_cvar_get_index(name, &index);
    if (status != MPI_SUCCESS) {
        return status;
    }
    status = MPI_T_cvar_handle_alloc(index, NULL, &handle, &count);
    if (status != MPI_SUCCESS) {
        return status;
    }
    status = MPI_T_cvar_write(handle, &value);
    MPI_T_cvar_handle_free(&handle);
    return status;
}

void bench_cvar_string(const char *name, char *value, int size)
{
    char text[4096] = "";
    MPI_T_cvar_handle handle;
    int index, count;

    value[0] = '\0';
    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS) {
        return;
    }
    if (count < (int)sizeof(text) && MPI_T_cvar_read(handle, text) == MPI_SUCCESS) {
        snprintf(value, (size_t)size, "%s", text);
    }
    MPI_T_cvar_handle_free(&handle);
}

void bench_pvars_open(bench_pvars_t *pvars)
{
    int i, index, count;

    memset(pvars, 0, sizeof(*pvars));
    if (MPI_T_pvar_session_create(&pvars->session) != MPI_SUCCESS) {
        pvars->session = MPI_T_PVAR_SESSION_NULL;
        return;
    }
    for (i = 0; i < BENCH_MAX_PVARS; i++) {
        index           = mpath_pvar_find(pvar_names[i]);
        pvars->found[i] = index >= 0 && MPI_T_pvar_handle_alloc(pvars->session, index, NULL, &pvars->handles[i],
                                                                &count) == MPI_SUCCESS;
    }
}

void bench_pvars_read(const bench_pvars_t *pvars, unsigned long long values[BENCH_MAX_PVARS])
{
    int i;

    memset(values, 0, BENCH_MAX_PVARS * sizeof(values[0]));
    for (i = 0; i < BENCH_MAX_PVARS; i++) {
        if (pvars->found[i]) {
            MPI_T_pvar_read(pvars->session, pvars->handles[i], &values[i]);
        }
    }
}

void bench_pvars_close(bench_pvars_t *pvars)
{
    int i;

    for (i = 0; i < BENCH_MAX_PVARS; i++) {
        if (pvars->found[i]) {
            MPI_T_pvar_handle_free(pvars->session, &pvars->handles[i]);
        }
    }
    if (pvars->session != MPI_T_PVAR_SESSION_NULL) {
        MPI_T_pvar_session_free(&pvars->session);
    }
}
