/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Help texts. Open MPI renders them; it is not asked to show them, too: mpirun of 4.1.4 now and then loses one that
 * comes while the processes start ("Data unpack would read past end of buffer"), and of several with one topic it shows
 * the first only. The file is looked for before, for Open MPI would say how sorry it is.
 */
#include "coll_mpath_help.h"
#include "coll_mpath.h"

#if OMPI_MAJOR_VERSION < 6
#include "opal/mca/installdirs/installdirs.h"
#include "opal/util/show_help.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELP_TOPICS_MAX 16

static bool file_is_in(const char *folder)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s", folder, COLL_MPATH_HELP_FILE);

    return (0 < length) && ((size_t)length < sizeof(path)) && (0 == access(path, R_OK));
}

/* A component in the user's own folder may have its texts beside it. */
static bool beside_component(void)
{
    char folder[PATH_MAX];
    Dl_info info;
    char *end;

    if ((0 == dladdr(&mca_coll_mpath_component, &info)) || (sizeof(folder) <= strlen(info.dli_fname))) {
        return false;
    }
    strcpy(folder, info.dli_fname);
    end = strrchr(folder, '/');
    if (NULL == end) {
        return false;
    }
    *end = '\0';
    return file_is_in(folder) && (OPAL_SUCCESS == opal_show_help_add_dir(folder));
}

static bool file_is_there(void)
{
    static int there = -1;

    if (0 > there) {
        there = file_is_in(opal_install_dirs.opaldatadir) || beside_component();
    }
    return 0 != there;
}

/* Notes the topic; false when it was noted before. */
static bool is_new(const char *topic)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const char *shown[HELP_TOPICS_MAX];
    bool found = false;
    int i;

    pthread_mutex_lock(&lock);
    for (i = 0; (HELP_TOPICS_MAX > i) && (NULL != shown[i]) && !found; i++) {
        found = (0 == strcmp(shown[i], topic));
    }
    if (!found && (HELP_TOPICS_MAX > i)) {
        shown[i] = topic;
    }
    pthread_mutex_unlock(&lock);
    return !found;
}

bool mca_coll_mpath_help_show(const char *topic, ...)
{
    uint16_t local_rank = (uint16_t)ompi_process_info.my_local_rank;
    va_list arguments;
    char *text;

    if (((0 != local_rank) && (UINT16_MAX != local_rank)) || !file_is_there() || !is_new(topic)) {
        return false;
    }
    va_start(arguments, topic);
    text = opal_show_help_vstring(COLL_MPATH_HELP_FILE, topic, true, arguments);
    va_end(arguments);
    if (NULL == text) {
        return false;
    }
    fputs(text, stderr); /* one call: the text stays whole */
    free(text);
    return true;
}

/* The topics of libmpath take its line. */
static int help_topic_sink(const char *topic, const char *line)
{
    static const char *const topics[] = {"settings-differ", "no-rail"};
    size_t i;

    for (i = 0; i < sizeof(topics) / sizeof(topics[0]); i++) {
        if (0 == strcmp(topic, topics[i])) {
            return mca_coll_mpath_help_show(topic, line) ? 1 : 0;
        }
    }
    return 0;
}

void mca_coll_mpath_help_hook(void)
{
    mpath_log_set_topic_sink(help_topic_sink);
}
#endif

/* -- what MPI functions return -- */

/* The log has named the cause; a text says what to do. */
static void help_error(mpath_status_t status)
{
    if (MPATH_ERR_TIMED_OUT == status) {
        (void)mca_coll_mpath_help_show("deadline", mpath_status_string(status));
    } else if (MPATH_ERR_UNREACHABLE == status) {
        (void)mca_coll_mpath_help_show("peer-lost", mpath_status_string(status));
    } else if (MPATH_ERR_NO_MEMORY == status) {
        (void)mca_coll_mpath_help_show("no-memory", mpath_status_string(status));
    }
}

int mca_coll_mpath_error(mpath_status_t status)
{
    help_error(status);
    switch (status) {
    case MPATH_OK:
        return OMPI_SUCCESS;
    case MPATH_ERR_TRUNCATED:
        return MPI_ERR_TRUNCATE;
    case MPATH_ERR_NO_MEMORY:
        return OMPI_ERR_OUT_OF_RESOURCE;
    case MPATH_ERR_PARAM:
        return MPI_ERR_ARG;
    default:
        return MPI_ERR_OTHER;
    }
}
