/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `--mca coll mpath` means "only mpath" to Open MPI, which then refuses to make any communicator, because mpath does
 * not serve MPI_Barrier and the others. Who writes it means "mpath before all others": nothing of the installation is to
 * be missing. A list that names others, too, gets only those without which nothing goes.
 */
#include "coll_mpath.h"
#include "coll_mpath_help.h"

#include "opal/class/opal_list.h"
#include "opal/mca/base/mca_base_component_repository.h"

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

void mca_coll_mpath_fallback_add(void)
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
