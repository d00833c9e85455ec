/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `--mca coll mpath` means "only mpath" to Open MPI, which then refuses to make any communicator, because mpath does
 * not serve MPI_Barrier and the others. So the components without which nothing goes are added to such a selection.
 */
#include "coll_mpath.h"
#include "coll_mpath_help.h"

#include "opal/class/opal_list.h"
#include "opal/mca/base/mca_base_component_repository.h"

#include <stdlib.h>
#include <string.h>

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
        mpath_info("component %s of coll_mpath_fallback does not exist here; it is left out", name);
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
        mpath_info("added coll component %s to the selection '%s'", name, framework->framework_selection);
        return;
    }
    mpath_info("component %s of coll_mpath_fallback does not open here (%d); it is left out", name, rc);
    opal_list_remove_item(&framework->framework_components, &item->super);
    mca_base_component_close(component, framework->framework_output);
    OBJ_RELEASE(item);
}

void mca_coll_mpath_fallback_add(void)
{
    mca_base_framework_t *framework = &ompi_coll_base_framework;
    const char *selection           = framework->framework_selection;
    bool complete                   = true;
    char *list, *name, *rest = NULL;
    int i;

    if ((NULL == selection) || ('\0' == selection[0]) || ('^' == selection[0])) {
        return; /* every component takes part */
    }
    for (i = 0; NULL != fallback_needed[i]; i++) {
        complete = complete && list_has(selection, fallback_needed[i]);
    }
    if (complete || (NULL == mca_coll_mpath_component.fallback)) {
        return;
    }
    list = strdup(mca_coll_mpath_component.fallback);
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
