/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the matrix and the topology of a call. */
#include "coll/dump.h"

#include "topo/file/xml.h"
#include "util/file.h"
#include "util/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t dump_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t dump_most_ns; /* by which a call has differed so far */
static int dump_failed;

static int write_matrix(const mpath_dump_call_t *call, const char *path)
{
    int ranks = mpath_topo_num_ranks(call->topo);
    FILE *out = fopen(path, "w");
    int failed;

    if (out == NULL) {
        return 1;
    }
    fprintf(out,
            "# MPI_Alltoallv on %s, call %u: predicted %llu ns by static routes, %llu ns by \"%s\"; it took %llu ns\n",
            call->name, call->number, (unsigned long long)call->static_ns, (unsigned long long)call->mpath_ns,
            call->algorithm, (unsigned long long)call->taken_ns);
    for (int source = 0; source < ranks; source++) {
        for (int destination = 0; destination < ranks; destination++) {
            fprintf(out, "%s%llu", destination > 0 ? " " : "",
                    (unsigned long long)call->demand[(size_t)source * (size_t)ranks + (size_t)destination]);
        }
        fputc('\n', out);
    }
    failed = ferror(out);
    return (fclose(out) != 0) | failed;
}

static int write_topology(const mpath_dump_call_t *call, const char *path)
{
    FILE *out = fopen(path, "w");
    int failed;

    if (out == NULL) {
        return 1;
    }
    failed = mpath_topo_file_write(call->topo, out) != MPATH_OK;
    return (fclose(out) != 0) | failed;
}

static void dump(const mpath_dump_call_t *call, const char *name)
{
    char path[MPATH_FILE_NAME_MAX + 16];
    mpath_file_guard_t guard;
    int failed;

    mpath_file_guard_begin(&guard);
    snprintf(path, sizeof(path), "%s.matrix.txt", name);
    failed = write_matrix(call, path);
    if (!failed) {
        snprintf(path, sizeof(path), "%s.topo.xml", name);
        failed = write_topology(call, path);
    }
    mpath_file_guard_end(&guard);
    if (failed) {
        dump_failed = 1;
        mpath_warn("%s cannot be written: %s; dump_plan has no effect any more", path, strerror(errno));
    }
}

static uint64_t difference_of(const mpath_dump_call_t *call)
{
    return call->static_ns > call->taken_ns ? call->static_ns - call->taken_ns : call->taken_ns - call->static_ns;
}

int mpath_dump_wanted(const mpath_settings_t *settings)
{
    return settings->dump_plan != NULL && settings->dump_plan[0] != '\0';
}

static int is_writer(const mpath_settings_t *settings, int job_rank)
{
    return job_rank == 0 || mpath_file_name_differs(settings->dump_plan);
}

void mpath_dump_end(const mpath_settings_t *settings, int job_rank)
{
    if (!mpath_dump_wanted(settings) || !is_writer(settings, job_rank)) {
        return;
    }
    pthread_mutex_lock(&dump_lock);
    if (!dump_failed && dump_most_ns == 0) {
        mpath_warn(
            "dump_plan: no MPI_Alltoallv on host memory had predicted times, as all have that go between nodes, are not "
            "short and not forced by parameters, but the first ones, which make connections; nothing is written");
    }
    pthread_mutex_unlock(&dump_lock);
}

void mpath_dump_plan(const mpath_settings_t *settings, int job_rank, const mpath_dump_call_t *call)
{
    uint64_t by_ns = difference_of(call);
    char name[MPATH_FILE_NAME_MAX];

    if (!is_writer(settings, job_rank)) {
        return;
    }
    pthread_mutex_lock(&dump_lock);
    if (!dump_failed && by_ns > dump_most_ns + dump_most_ns / 10) {
        dump_most_ns = by_ns;
        if (mpath_file_name(settings->dump_plan, job_rank, name, sizeof(name)) == MPATH_OK) {
            dump(call, name);
        } else {
            dump_failed = 1;
            mpath_warn("dump_plan: '%s' is no name of a file; it has no effect", settings->dump_plan);
        }
    }
    pthread_mutex_unlock(&dump_lock);
}
