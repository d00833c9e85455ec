/* SPDX-License-Identifier: BSD-3-Clause */
/* The component: what Open MPI finds when it loads mca_coll_mpath.so. */
#include "coll_mpath.h"
#include "coll_mpath_help.h"
#include "coll_mpath_request.h"
#include "coll_mpath_peers.h"

#include "device/gpu.h"
#include "util/file.h"
#include "util/spelling.h"

#include "ompi/runtime/mpiruntime.h"

#include <errno.h>
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

/* By this text mpath_info knows a file to be the component, and for which Open MPI it was built. */
static const char component_mark[] __attribute__((used)) = "mpath component " MPATH_VERSION
                                                           " for Open MPI " MPATH_OMPI_SERIES;

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

static void tell_misspelt(const char *place, const char *name, const char *nearest, const char *remark, void *arg)
{
    (void)arg;
    if (NULL != remark) {
        mpath_warn("%s: '%s' %s", place, name, remark);
        return;
    }
    COLL_MPATH_TELL("misspelt", "%s: '%s' is no setting of mpath%s%s; it has no effect", place, name,
                    (NULL != nearest) ? ", the nearest is " : "", (NULL != nearest) ? nearest : "");
}

/* mpirun's --mca is in the environment of the processes. */
static void component_check_spelling(void)
{
    int index          = mca_base_var_find("opal", "mca", "base", "param_files");
    char *const *files = NULL;

    if (0 != OMPI_PROC_MY_NAME->vpid) {
        return; /* once per job */
    }
    mpath_spelling_check_environment(tell_misspelt, NULL);
    if ((0 <= index) && (OPAL_SUCCESS == mca_base_var_get_value(index, &files, NULL, NULL)) && (NULL != files) &&
        (NULL != files[0])) {
        mpath_spelling_check_files(files[0], tell_misspelt, NULL);
    }
}

static void component_end_module(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_team_end(module);
    mca_coll_mpath_loss_end(module);
}

/* Not before: ompi_info registers the component, and has no log. */
static void component_open_log(void)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;
    int rank                         = (int)OMPI_PROC_MY_NAME->vpid;
    char path[MPATH_FILE_NAME_MAX];

    mpath_log_set_rank(rank);
    if ((NULL != settings->log_file) && ('\0' != settings->log_file[0])) {
        if (MPATH_OK != mpath_file_name(settings->log_file, rank, path, sizeof(path))) {
            mpath_warn("coll_mpath_log_file: '%s' is no name of a file; the log goes to standard error",
                       settings->log_file);
        } else if (0 != mpath_log_set_file(path)) {
            mpath_warn("%s cannot be written: %s; the log goes to standard error", path, strerror(errno));
        }
    }
    mpath_log_set_rooms(settings->log_rooms);
}

static int component_open(void)
{
    static const mca_coll_mpath_lifetime_ops_t lifetime = {
        .finish = mca_coll_mpath_queue_finish, .waits = mca_coll_mpath_queue_ends_team, .end = component_end_module};
    int rc = mca_coll_mpath_reserve_fill();

    if (OMPI_SUCCESS != rc) {
        return rc; /* the others have no word of this process, and do without mpath */
    }
    mca_coll_mpath_lifetime_begin(&lifetime);
    component_open_log();
    mca_coll_mpath_help_hook();
    component_check_spelling();
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
    mca_coll_mpath_reserve_drop();
    mpath_gpu_cleanup(); /* the application may go on with its GPUs for long */
    return OMPI_SUCCESS;
}
