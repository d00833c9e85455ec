/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mca_hook_mpath.so, a component of Open MPI: loads the transport into MPI programs that name it in UCX_TLS. Hooks are
 * the first framework that MPI_Init opens, before pml/ucx makes its UCX context, which takes the transports that are
 * there. So `-x UCX_TLS=mpath,self` is enough, also with a UCX that has no way to name modules (before 1.22). Its one
 * parameter says where the transport lies; an empty one loads none. Programs that do not ask for the transport are left
 * alone.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif
#include "ompi_config.h"

#include "ompi/constants.h"
#include "ompi/mca/hook/hook.h"
#include "opal/mca/base/base.h"

#include "ucx_tl_mpath/load.h"

#include "opal/mca/base/mca_base_pvar.h"

#include <dlfcn.h>
#include <stdlib.h>

static int hook_register(void);
static int hook_open(void);

static char *transport;

/* Performance variables hook_mpath_*: the transport's counters, which are none until it is loaded. */
static const struct {
    const char *name, *help;
} counters[MPATH_UCX_NUM_COUNTERS] = {
    [MPATH_UCX_SENT_PACKETS]     = {"sent_packets", "Packets that the UCX transport sent"},
    [MPATH_UCX_SENT_BYTES]       = {"sent_bytes", "Bytes that the UCX transport sent, headers included"},
    [MPATH_UCX_RECEIVED_PACKETS] = {"received_packets", "Packets that the UCX transport received"},
    [MPATH_UCX_RECEIVED_BYTES]   = {"received_bytes", "Bytes that the UCX transport received, headers included"},
    [MPATH_UCX_RESENT_PACKETS]   = {"resent_packets", "Packets sent again because their rail had failed"},
    [MPATH_UCX_LOST_RAILS]       = {"lost_rails", "Connections of rails that failed or stalled"},
    [MPATH_UCX_PLANS]            = {"plans", "Times that the planner divided the rails among the peers"},
    [MPATH_UCX_RMA_BYTES]        = {"rma_bytes", "Bytes of puts and gets by rails with remote access"},
    [MPATH_UCX_RELAYED_BYTES]    = {"relayed_bytes", "Bytes passed on for other processes"},
};
static uint64_t (*counter_value)(mpath_ucx_counter_t counter);

extern ompi_hook_base_component_t mca_hook_mpath_component;
__attribute__((visibility("default"))) ompi_hook_base_component_t mca_hook_mpath_component = {
    .hookm_version =
        {
            OMPI_HOOK_BASE_VERSION_1_0_0,
            .mca_component_name = "mpath",
            MCA_BASE_MAKE_VERSION(component, 0, 1, 0),
            .mca_open_component            = hook_open,
            .mca_register_component_params = hook_register,
        },
    .hookm_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
};

static int counter_read(const struct mca_base_pvar_t *pvar, void *value, void *object)
{
    (void)object;
    *(unsigned long long *)value = NULL == counter_value ? 0 : counter_value((mpath_ucx_counter_t)(intptr_t)pvar->ctx);
    return OPAL_SUCCESS;
}

static int register_counters(void)
{
    intptr_t i;
    int rc;

    for (i = 0; i < MPATH_UCX_NUM_COUNTERS; i++) {
        rc = mca_base_component_pvar_register(
            &mca_hook_mpath_component.hookm_version, counters[i].name, counters[i].help, OPAL_INFO_LVL_4,
            MCA_BASE_PVAR_CLASS_GENERIC, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
            MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, counter_read, NULL, NULL, (void *)i);
        if (0 > rc) {
            return rc;
        }
    }
    return OMPI_SUCCESS;
}

static int hook_register(void)
{
    int index;

    transport = (char *)MPATH_UCX_TRANSPORT_PATH;
    index     = mca_base_component_var_register(
            &mca_hook_mpath_component.hookm_version, "transport",
            "File with the UCX transport mpath, which is loaded when UCX_TLS names mpath "
                "(empty: never)",
            MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0, OPAL_INFO_LVL_6, MCA_BASE_VAR_SCOPE_READONLY, &transport);
    return index < 0 ? index : register_counters();
}

static int hook_open(void)
{
    void *handle;

    if (NULL != transport && '\0' != transport[0] && mpath_ucx_asked_for(secure_getenv("UCX_TLS"))) {
        handle = mpath_ucx_load(transport);
        if (NULL != handle) {
            *(void **)&counter_value = dlsym(handle, MPATH_UCX_COUNTER_SYMBOL);
        }
    }
    return OMPI_SUCCESS;
}
