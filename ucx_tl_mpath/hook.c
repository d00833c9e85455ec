/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mca_hook_mpath.so, a component of Open MPI: loads the transport into MPI programs that name it in UCX_TLS. Hooks are the
 * first framework that MPI_Init opens, before pml/ucx makes its UCX context, which takes the transports that are there. So
 * `-x UCX_TLS=mpath,self` is enough, also with a UCX that has no way to name modules (before 1.22). Its one parameter says
 * where the transport lies; an empty one loads none. Programs that do not ask for the transport are left alone.
 */
#include "ompi_config.h"

#include "ompi/constants.h"
#include "ompi/mca/hook/hook.h"
#include "opal/mca/base/base.h"

#include "ucx_tl_mpath/load.h"

#include <stdlib.h>

static int hook_register(void);
static int hook_open(void);

static char *transport;

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

static int hook_register(void)
{
    int index;

    transport = (char *)MPATH_UCX_TRANSPORT_PATH;
    index     = mca_base_component_var_register(
            &mca_hook_mpath_component.hookm_version, "transport",
            "File with the UCX transport mpath, which is loaded when UCX_TLS names mpath "
                "(empty: never)",
            MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0, OPAL_INFO_LVL_6, MCA_BASE_VAR_SCOPE_READONLY, &transport);
    return index < 0 ? index : OMPI_SUCCESS;
}

static int hook_open(void)
{
    if (NULL != transport && '\0' != transport[0] && mpath_ucx_asked_for(getenv("UCX_TLS"))) {
        mpath_ucx_load(transport);
    }
    return OMPI_SUCCESS;
}
