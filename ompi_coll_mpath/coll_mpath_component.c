/* SPDX-License-Identifier: BSD-3-Clause */
/* The component: what Open MPI finds when it loads mca_coll_mpath.so. */
#include "coll_mpath.h"
#include "coll_mpath_help.h"
#include "coll_mpath_request.h"
#include "coll_mpath_peers.h"

#include "gpu/device.h"

#include "ompi/runtime/mpiruntime.h"

#include <stdio.h>
#include <string.h>

static int component_register(void);
static int component_open(void);
static int component_close(void);

mca_coll_mpath_component_t mca_coll_mpath_component = {
    .super =
        {
            .collm_version =
                {
                    MPATH_COLL_BASE_VERSION,
                    .mca_component_name = "mpath",
                    MCA_BASE_MAKE_VERSION(component, 0, 1, 0),
                    .mca_open_component            = component_open,
                    .mca_close_component           = component_close,
                    .mca_register_component_params = component_register,
                },
            .collm_data       = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
            .collm_init_query = mca_coll_mpath_init_query,
            .collm_comm_query = mca_coll_mpath_comm_query,
        },
};

/*
 * libmpi of 4.1, 5.0 and 6.0 has the same soname, and the framework looks at the version of its interface only after
 * register and open have run, and then says nothing.
 */
static bool component_fits(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    char series[32];
    int length = 0, major, minor;

    (void)MPI_Get_library_version(version, &length);
    if (2 != sscanf(version, "Open MPI v%d.%d", &major, &minor)) {
        return true; /* a vendor's name: leave it to the framework */
    }
    snprintf(series, sizeof(series), "%d.%d", major, minor);
    if (0 == strcmp(series, MPATH_OMPI_SERIES)) {
        return true;
    }
    COLL_MPATH_TELL("wrong-series",
                    "the component mpath was built for Open MPI %s and this is Open MPI %s; it is not used",
                    MPATH_OMPI_SERIES, series);
    return false;
}

static int component_register(void)
{
    int rc;

    if (!component_fits()) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    rc = mca_coll_mpath_params_register();
    if (0 > rc) {
        return rc;
    }
    rc = mca_coll_mpath_pvars_register();
    return (0 > rc) ? rc : OMPI_SUCCESS;
}

static int component_open(void)
{
    mca_coll_mpath_help_hook();
    mca_coll_mpath_fallback_add();
    mca_coll_mpath_peers_publish();
    return OMPI_SUCCESS;
}

static int component_close(void)
{
    mca_coll_mpath_queue_close();
    mca_coll_mpath_lifetime_end();
    mca_coll_mpath_context_end();
    mca_coll_mpath_peers_end();
    mpath_gpu_cleanup(); /* the application may go on with its GPUs for long */
    return OMPI_SUCCESS;
}
