/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The component: what Open MPI finds when it loads mca_coll_mpath.so; and the module: mpath on one communicator, which
 * keeps the functions that it replaces. The team is made by the first call.
 *
 * `--mca coll mpath` means "only mpath" to Open MPI, which then refuses to make any communicator, because mpath does
 * not serve MPI_Barrier and the others. Who writes it means "mpath before all others": nothing of the installation is to
 * be missing. A list that names others, too, gets only those without which nothing goes.
 */
#include "coll_mpath.h"
#include "coll_mpath_help.h"
#include "coll_mpath_peers.h"
#include "coll_mpath_request.h"
#include "coll_mpath_symmetric.h"

#include "ompi/runtime/mpiruntime.h"
#include "opal/class/opal_list.h"
#include "opal/mca/base/mca_base_component_repository.h"

#include "device/gpu.h"
#include "util/file.h"
#include "util/spelling.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Above every component that serves collectives itself (hcoll has 90), below those that watch them (monitoring has 100). */
#define FALLBACK_FIRST_PRIORITY 99

/* What "all" adds to a selection that names others beside mpath. */
#define FALLBACK_BESIDE "basic,libnbc,inter,self,tuned"

/* Without these two, no communicator can be made. */
static const char *const fallback_needed[] = {"basic", "libnbc", NULL};

/* Nonzero: `name` is in the comma-separated list. */
static bool list_has(const char *list, const char *name)
{
    size_t length = strlen(name);
    const char *at, *end;

    for (at = list; '\0' != *at; at = ('\0' != *end) ? end + 1 : end) {
        end = at + strcspn(at, ",");
        if (((size_t)(end - at) == length) && (0 == strncmp(at, name, length))) {
            return true;
        }
    }
    return false;
}

/* True: the list has `name`, and nothing else. */
static bool list_is(const char *list, const char *name)
{
    const char *at, *end;

    for (at = list; '\0' != *at; at = ('\0' != *end) ? end + 1 : end) {
        end = at + strcspn(at, ",");
        if ((end != at) && (((size_t)(end - at) != strlen(name)) || (0 != strncmp(at, name, strlen(name))))) {
            return false;
        }
    }
    return list_has(list, name);
}

static bool framework_has(mca_base_framework_t *framework, const char *name)
{
    mca_base_component_list_item_t *item;

    OPAL_LIST_FOREACH(item, &framework->framework_components, mca_base_component_list_item_t)
    {
        if (0 == strcmp(item->cli_component->mca_component_name, name)) {
            return true;
        }
    }
    return false;
}

/*
 * Puts the component in front of the framework's list: the loop that is just opening the components is past that, so it
 * does not open this one a second time.
 */
static mca_base_component_list_item_t *framework_prepend_static(mca_base_framework_t *framework, const char *name)
{
    mca_base_component_list_item_t *item;
    int i;

    if (NULL == framework->framework_static_components) {
        return NULL;
    }
    for (i = 0; NULL != framework->framework_static_components[i]; i++) {
        if (0 == strcmp(COLL_MPATH_STATIC_COMPONENT(framework, i)->mca_component_name, name)) {
            item                = OBJ_NEW(mca_base_component_list_item_t);
            item->cli_component = COLL_MPATH_STATIC_COMPONENT(framework, i);
            opal_list_prepend(&framework->framework_components, &item->super);
            return item;
        }
    }
    return NULL;
}

static mca_base_component_list_item_t *framework_prepend_file(mca_base_framework_t *framework, const char *name)
{
    mca_base_component_repository_item_t *file;
    opal_list_item_t *item;
    opal_list_t *files = NULL;

    if (OPAL_SUCCESS != mca_base_component_repository_get_components(framework, &files)) {
        return NULL;
    }
    OPAL_LIST_FOREACH(file, files, mca_base_component_repository_item_t)
    {
        if (0 != strcmp(file->ri_name, name)) {
            continue;
        }
        if (OPAL_SUCCESS != mca_base_component_repository_open(framework, file)) {
            return NULL;
        }
        /* It was appended. */
        item = opal_list_remove_last(&framework->framework_components);
        opal_list_prepend(&framework->framework_components, item);
        return (mca_base_component_list_item_t *)item;
    }
    return NULL;
}

/* All processes come to the same. */
#define fallback_say(...)                                                                                              \
    do {                                                                                                               \
        if (0 == OMPI_PROC_MY_NAME->vpid) {                                                                            \
            mpath_debug(__VA_ARGS__);                                                                                  \
        }                                                                                                              \
    } while (0)

/* Does for a component what the framework does for those that were selected: register, open. */
static void fallback_add_one(mca_base_framework_t *framework, const char *name)
{
    mca_base_component_list_item_t *item;
    const mca_base_component_t *component;
    int rc = OPAL_SUCCESS;

    if (framework_has(framework, name)) {
        return;
    }
    item = framework_prepend_static(framework, name);
    if (NULL == item) {
        item = framework_prepend_file(framework, name);
    }
    if (NULL == item) {
        fallback_say("component %s of coll_mpath_fallback does not exist here; it is left out", name);
        return;
    }
    component = item->cli_component;
    if (NULL != component->mca_register_component_params) {
        rc = component->mca_register_component_params();
    }
    if ((OPAL_SUCCESS == rc) && (NULL != component->mca_open_component)) {
        rc = component->mca_open_component();
    }
    if (OPAL_SUCCESS == rc) {
        fallback_say("added coll component %s to the selection '%s'", name, framework->framework_selection);
        return;
    }
    fallback_say("component %s of coll_mpath_fallback does not open here (%d); it is left out", name, rc);
    opal_list_remove_item(&framework->framework_components, &item->super);
    mca_base_component_close(component, framework->framework_output);
    OBJ_RELEASE(item);
}

/* Every component of the installation, as a list; NULL: no memory. */
static char *framework_list_all(mca_base_framework_t *framework)
{
    mca_base_component_repository_item_t *file;
    opal_list_t *files = NULL;
    size_t size        = 1;
    char *list;
    int i;

    if (OPAL_SUCCESS != mca_base_component_repository_get_components(framework, &files)) {
        files = NULL;
    }
    size += ((NULL == files) ? 0 : opal_list_get_size(files)) * (MCA_BASE_MAX_COMPONENT_NAME_LEN + 2);
    for (i = 0; (NULL != framework->framework_static_components) && (NULL != framework->framework_static_components[i]);
         i++) {
        size += MCA_BASE_MAX_COMPONENT_NAME_LEN + 2;
    }
    list = calloc(1, size);
    if (NULL == list) {
        return NULL;
    }
    while (i-- > 0) {
        strcat(strcat(list, COLL_MPATH_STATIC_COMPONENT(framework, i)->mca_component_name), ",");
    }
    if (NULL != files) {
        OPAL_LIST_FOREACH(file, files, mca_base_component_repository_item_t)
        {
            strcat(strcat(list, file->ri_name), ",");
        }
    }
    return list;
}

/* What coll_mpath_fallback adds to the selection, as a list; NULL: no memory. */
static char *fallback_list(mca_base_framework_t *framework)
{
    const char *given = mca_coll_mpath_component.fallback;

    if ((NULL != given) && (0 != strcmp(given, COLL_MPATH_FALLBACK_ALL))) {
        return strdup(given);
    }
    return list_is(framework->framework_selection, "mpath") ? framework_list_all(framework) : strdup(FALLBACK_BESIDE);
}

/* Where the value of a parameter of this component comes from; the file may be NULL. */
static mca_base_var_source_t param_source(const char *name, const char **file)
{
    mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
    int index                    = mca_base_var_find("ompi", "coll", "mpath", name);

    *file = NULL;
    if ((0 > index) || (OPAL_SUCCESS != mca_base_var_get_value(index, NULL, &source, file))) {
        return MCA_BASE_VAR_SOURCE_DEFAULT;
    }
    return source;
}

/* The selection names mpath, so somebody wants it: what keeps it away is said, with the place where it is written. */
static void tell_what_keeps_away(const char *selection)
{
    const mca_coll_mpath_component_t *component = &mca_coll_mpath_component;
    const char *name = (0 == component->settings.priority) ? "priority" : (0 == component->enable) ? "enable" : NULL;
    const char *file;

    if (NULL == name) {
        return;
    }
    if ((MCA_BASE_VAR_SOURCE_FILE != param_source(name, &file)) || (NULL == file)) {
        file = "the command line or the environment";
    }
    COLL_MPATH_TELL(
        "kept-away",
        "the selection of coll components is '%s', but coll_mpath_%s is 0, by %s: mpath serves no communicator",
        selection, name, file);
}

/* Makes "mpath before all others" of the selection "--mca coll mpath", and says what keeps mpath away in spite of it. */
static void fallback_add(void)
{
    mca_base_framework_t *framework = &ompi_coll_base_framework;
    mpath_settings_t *settings      = &mca_coll_mpath_component.settings;
    const char *selection           = framework->framework_selection;
    const char *file;
    bool complete = true;
    char *list, *name, *rest = NULL;
    int i;

    if ((NULL == selection) || ('\0' == selection[0]) || ('^' == selection[0])) {
        return; /* every component takes part */
    }
    tell_what_keeps_away(selection);
    if (list_is(selection, "mpath") && (MCA_BASE_VAR_SOURCE_DEFAULT == param_source("priority", &file))) {
        settings->priority = FALLBACK_FIRST_PRIORITY;
    }
    for (i = 0; NULL != fallback_needed[i]; i++) {
        complete = complete && list_has(selection, fallback_needed[i]);
    }
    list = complete ? NULL : fallback_list(framework);
    if (NULL == list) {
        return;
    }
    for (name = strtok_r(list, ",", &rest); NULL != name; name = strtok_r(NULL, ",", &rest)) {
        fallback_add_one(framework, name);
    }
    free(list);
    for (i = 0; NULL != fallback_needed[i]; i++) {
        if (!framework_has(framework, fallback_needed[i]) && !list_has(selection, fallback_needed[i])) {
            COLL_MPATH_TELL(
                "fallback-missing",
                "the selection of coll components '%s' lacks %s, without which no communicator can be made, "
                "and coll_mpath_fallback does not add it",
                selection, fallback_needed[i]);
        }
    }
}

static void module_construct(mca_coll_mpath_module_t *module)
{
    memset((char *)module + sizeof(module->super), 0, sizeof(*module) - sizeof(module->super));
}

#define MODULE_LET_GO(_mpath, _api)                                                                                    \
    do {                                                                                                               \
        if (NULL != (_mpath)->previous_##_api##_module) {                                                              \
            OBJ_RELEASE((_mpath)->previous_##_api##_module);                                                           \
        }                                                                                                              \
    } while (0)

/* All three forms of a collective. */
#define MODULE_LET_GO_OF(_mpath, _api)                                                                                 \
    do {                                                                                                               \
        MODULE_LET_GO(_mpath, _api);                                                                                   \
        MODULE_LET_GO(_mpath, i##_api);                                                                                \
        MODULE_LET_GO(_mpath, _api##_init);                                                                            \
    } while (0)

static void module_destruct(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_lifetime_forget(module);
    mca_coll_mpath_team_end(module);
    mca_coll_mpath_loss_end(module);
    mca_coll_mpath_queue_release(module);
    mca_coll_mpath_record_close(module);
    MODULE_LET_GO_OF(module, alltoallv);
    MODULE_LET_GO_OF(module, alltoall);
    MODULE_LET_GO_OF(module, allreduce);
    MODULE_LET_GO_OF(module, reduce_scatter);
    MODULE_LET_GO_OF(module, reduce_scatter_block);
    MODULE_LET_GO_OF(module, allgather);
    MODULE_LET_GO_OF(module, allgatherv);
    MODULE_LET_GO_OF(module, alltoallw);
}

OBJ_CLASS_INSTANCE(mca_coll_mpath_module_t, mca_coll_base_module_t, module_construct, module_destruct);

/* Modules are enabled in the order of rising priority: what the communicator has now is what mpath replaces. */
#define MODULE_TAKE_OVER(_mpath, _comm, _api)                                                                          \
    do {                                                                                                               \
        (_mpath)->previous_##_api          = (_comm)->c_coll->coll_##_api;                                             \
        (_mpath)->previous_##_api##_module = (_comm)->c_coll->coll_##_api##_module;                                    \
        if (NULL != (_mpath)->previous_##_api##_module) {                                                              \
            OBJ_RETAIN((_mpath)->previous_##_api##_module);                                                            \
        }                                                                                                              \
        if (NULL != (_mpath)->previous_##_api) {                                                                       \
            COLL_MPATH_INSTALL(_comm, _mpath, _api);                                                                   \
        }                                                                                                              \
    } while (0)

/* The forms that have a request: all or none, for a communicator's operations of both have one order. */
#define MODULE_TAKE_OVER_OF(_mpath, _comm, _api)                                                                       \
    do {                                                                                                               \
        MODULE_TAKE_OVER(_mpath, _comm, _api);                                                                         \
        if ((0 != mca_coll_mpath_component.nonblocking) && (NULL != (_mpath)->previous_##_api) &&                      \
            (NULL != (_comm)->c_coll->coll_i##_api) && (NULL != (_comm)->c_coll->coll_##_api##_init)) {                \
            MODULE_TAKE_OVER(_mpath, _comm, i##_api);                                                                  \
            MODULE_TAKE_OVER(_mpath, _comm, _api##_init);                                                              \
        }                                                                                                              \
    } while (0)

#define MODULE_GIVE_BACK_OF(_mpath, _comm, _api)                                                                       \
    do {                                                                                                               \
        COLL_MPATH_UNINSTALL(_comm, _mpath, _api);                                                                     \
        COLL_MPATH_UNINSTALL(_comm, _mpath, i##_api);                                                                  \
        COLL_MPATH_UNINSTALL(_comm, _mpath, _api##_init);                                                              \
    } while (0)

static int module_enable(mca_coll_base_module_t *base, struct ompi_communicator_t *comm)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;

    module->comm = comm;
    if (OMPI_COMM_IS_INTER(comm)) { /* there are only copies of device buffers to be made */
        module->tried = true;
    }
    MODULE_TAKE_OVER_OF(module, comm, alltoallv);
    MODULE_TAKE_OVER_OF(module, comm, alltoall);
    MODULE_TAKE_OVER_OF(module, comm, allreduce);
    MODULE_TAKE_OVER_OF(module, comm, reduce_scatter);
    MODULE_TAKE_OVER_OF(module, comm, reduce_scatter_block);
    MODULE_TAKE_OVER_OF(module, comm, allgather);
    MODULE_TAKE_OVER_OF(module, comm, allgatherv);
    MODULE_TAKE_OVER_OF(module, comm, alltoallw);
    mca_coll_mpath_symmetric_enable(module);
    if (&ompi_mpi_comm_world.comm == comm) {
        mca_coll_mpath_record_world(module);
    }
    if ((NULL == module->previous_alltoallv) && (NULL == module->previous_alltoall)) {
        mpath_info_by(0 == ompi_comm_rank(comm), "%s: no other component serves MPI_Alltoallv there; mpath stays out",
                      comm->c_name);
    }
    return OMPI_SUCCESS;
}

static int module_disable(mca_coll_base_module_t *base, struct ompi_communicator_t *comm)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;

    (void)module;
    (void)comm;
    MODULE_GIVE_BACK_OF(module, comm, alltoallv);
    MODULE_GIVE_BACK_OF(module, comm, alltoall);
    MODULE_GIVE_BACK_OF(module, comm, allreduce);
    MODULE_GIVE_BACK_OF(module, comm, reduce_scatter);
    MODULE_GIVE_BACK_OF(module, comm, reduce_scatter_block);
    MODULE_GIVE_BACK_OF(module, comm, allgather);
    MODULE_GIVE_BACK_OF(module, comm, allgatherv);
    MODULE_GIVE_BACK_OF(module, comm, alltoallw);
    return OMPI_SUCCESS;
}

static int init_query(bool enable_progress_threads, bool enable_mpi_threads)
{
    (void)enable_progress_threads;
    (void)enable_mpi_threads;
    return OMPI_SUCCESS;
}

/*
 * A module in reserve: the others have theirs, and would wait for this rank in the first call. Where there is no memory
 * for one, it has to come to that call all the same, and say so.
 */
static pthread_mutex_t reserve_lock = PTHREAD_MUTEX_INITIALIZER;
static mca_coll_mpath_module_t *reserve;

/* A module for the communicator that no memory is left for: made before a process says that it takes part. */
static int reserve_fill(void)
{
    pthread_mutex_lock(&reserve_lock);
    if (NULL == reserve) {
        reserve = OBJ_NEW(mca_coll_mpath_module_t);
    }
    pthread_mutex_unlock(&reserve_lock);
    return (NULL != reserve) ? OMPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
}

static void reserve_drop(void)
{
    if (NULL != reserve) {
        OBJ_RELEASE(reserve);
        reserve = NULL;
    }
}

static mca_coll_mpath_module_t *module_new(struct ompi_communicator_t *comm)
{
    mca_coll_mpath_module_t *module = OBJ_NEW(mca_coll_mpath_module_t);

    if (NULL != module) {
        (void)reserve_fill();
        return module;
    }
    pthread_mutex_lock(&reserve_lock);
    module  = reserve;
    reserve = NULL;
    pthread_mutex_unlock(&reserve_lock);
    if (NULL == module) {
        mpath_error("%s: no memory for mpath's part in it, which the other ranks have; the job ends", comm->c_name);
        ompi_mpi_abort(comm, MPI_ERR_NO_MEM);
    }
    return module;
}

static mca_coll_base_module_t *comm_query(struct ompi_communicator_t *comm, int *priority)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;
    mca_coll_mpath_module_t *module;

    *priority = -1;
    if ((0 == settings->priority) || (0 == mca_coll_mpath_component.enable)) {
        return NULL;
    }
    /*
     * A process alone and the groups of an intercommunicator are served as well: device buffers get copies for the
     * previous functions, about which the ranks need not agree.
     */
    if (!OMPI_COMM_IS_INTER(comm) && !mca_coll_mpath_peers_alike(comm)) {
        return NULL;
    }
    module = module_new(comm);
    if (NULL == module) {
        return NULL;
    }
    module->super.coll_module_enable  = module_enable;
    module->super.coll_module_disable = module_disable;
    *priority                         = settings->priority;
    return &module->super;
}

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
            .collm_init_query = init_query,
            .collm_comm_query = comm_query,
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
    int rc = reserve_fill();

    if (OMPI_SUCCESS != rc) {
        return rc; /* the others have no word of this process, and do without mpath */
    }
    mca_coll_mpath_lifetime_begin(&lifetime);
    component_open_log();
    mca_coll_mpath_help_hook();
    component_check_spelling();
    fallback_add();
    mca_coll_mpath_peers_publish();
    return OMPI_SUCCESS;
}

static int component_close(void)
{
    mca_coll_mpath_queue_close();
    mca_coll_mpath_lifetime_end();
    mca_coll_mpath_context_end();
    mca_coll_mpath_peers_end();
    reserve_drop();
    mpath_gpu_cleanup(); /* the application may go on with its GPUs for long */
    return OMPI_SUCCESS;
}
