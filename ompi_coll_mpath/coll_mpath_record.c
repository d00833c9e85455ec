/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What calls on a communicator were, and the summary of the job: in MPI_Finalize each rank hands rank 0 of MPI_COMM_WORLD
 * what it has counted. An attribute of MPI_COMM_SELF tells when: it is set where MPI_COMM_WORLD gets its module, before
 * all others, so that its delete function runs after theirs, when the teams have ended.
 */
#include "coll_mpath.h"

#include "coll/dump.h"
#include "record/summary.h"
#include "team/wait.h"
#include "util/file.h"
#include "util/time.h"

#include "ompi/attribute/attribute.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mca_coll_mpath_module_t *record_world; /* whose ranks report; NULL: none do */
static int record_keyval = MPI_KEYVAL_INVALID;

/* -- counting -- */

mpath_record_t *mca_coll_mpath_record(mca_coll_mpath_module_t *module)
{
    if (!module->record_tried) {
        module->record_tried = true;
        if (!OMPI_COMM_IS_INTER(module->comm) && (1 < ompi_comm_size(module->comm))) {
            module->record = mpath_record_open(module->comm->c_name, ompi_comm_rank(module->comm));
        }
    }
    return module->record;
}

void mca_coll_mpath_record_close(mca_coll_mpath_module_t *module)
{
    if (module == record_world) {
        record_world = NULL;
    }
    mpath_record_close(module->record);
    module->record = NULL;
}

void mca_coll_mpath_record_end(mca_coll_mpath_module_t *module, mpath_operation_t collective, mpath_status_t status,
                               const char *why)
{
    mpath_record_end_t end = (MPATH_OK == status)         ? MPATH_RECORD_CARRIED
                             : (MPATH_DECLINED == status) ? MPATH_RECORD_LEFT
                                                          : MPATH_RECORD_FAILED;

    mpath_record_end(mca_coll_mpath_record(module), (unsigned)collective, end, why);
}

/* -- the summary -- */

/* A message of another rank. */
typedef struct record_wait_t {
    mpath_oob_t *oob;
    mpath_oob_request_t *request;
    size_t bytes; /* that have come */
    int peer, limit_s;
    const char *what;
} record_wait_t;

static mpath_status_t record_look(void *engine, int *events_p)
{
    record_wait_t *wait = engine;

    *events_p = 0;
    return wait->oob->test(wait->oob->context, wait->request, &wait->bytes);
}

static mpath_status_t record_check(void *engine, uint64_t waited_ns)
{
    const record_wait_t *wait = engine;

    if (waited_ns < (uint64_t)wait->limit_s * MPATH_NS_PER_S) {
        return MPATH_OK;
    }
    mpath_warn("rank %d has waited %d s in MPI_Finalize for rank %d, %s; it goes on without", wait->oob->rank,
               wait->limit_s, wait->peer, wait->what);
    return MPATH_ERR_TIMED_OUT;
}

static int record_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    (void)engine;
    (void)why;
    (void)rank_p;
    (void)text;
    (void)size;
    return 0; /* record_check() has the deadline */
}

/* Waits for a message of `bytes` bytes, or its end. */
static mpath_status_t record_message(mpath_oob_t *oob, int peer, mpath_oob_request_t *request, const char *what,
                                     int limit_s, size_t *bytes_p)
{
    static const mpath_wait_ops_t ops = {.look = record_look, .check = record_check, .edge = record_edge};
    record_wait_t engine  = {.oob = oob, .request = request, .peer = peer, .limit_s = limit_s, .what = what};
    mpath_wait_t wait     = {.oob = oob, .turn_mask = MPATH_WAIT_TURN_ALWAYS};
    mpath_status_t status = mpath_wait(&wait, &ops, &engine);

    if (MPATH_OK != status) {
        oob->cancel(oob->context, request);
    }
    *bytes_p = engine.bytes;
    return status;
}

static bool record_wants_summary(void)
{
    const char *wanted = mca_coll_mpath_component.settings.summary;

    return (NULL != wanted) && ('\0' != wanted[0]) && (0 != strcmp(wanted, "0"));
}

/* Opens what a parameter names; `name`: the parameter, what: what is lost where that fails. */
static FILE *record_open(const char *name, const char *pattern, const char *what, char *path, size_t size)
{
    FILE *out;

    if (MPATH_OK != mpath_file_name(pattern, (int)OMPI_PROC_MY_NAME->vpid, path, size)) {
        mpath_warn("coll_mpath_%s: '%s' is no name of a file; the %s is not written", name, pattern, what);
        return NULL;
    }
    out = fopen(path, "w");
    if (NULL == out) {
        mpath_warn("%s cannot be written: %s; the %s is lost", path, strerror(errno), what);
    }
    return out;
}

static void record_close(FILE *out, const char *path, const char *what)
{
    bool failed = 0 != fflush(out);

    failed = ((stderr != out) && (0 != fclose(out))) || failed;
    if (failed) {
        mpath_warn("%s cannot be written: %s; the %s is not whole", (stderr != out) ? path : "standard error",
                   strerror(errno), what);
    }
}

static void summary_write(const mpath_summary_t *summary)
{
    const char *wanted = mca_coll_mpath_component.settings.summary;
    size_t length      = strlen(wanted);
    char path[MPATH_FILE_NAME_MAX];
    mpath_file_guard_t guard;
    FILE *out = stderr;

    if (0 != strcmp(wanted, "1")) {
        out = record_open("summary", wanted, "summary", path, sizeof(path));
    }
    if (NULL == out) {
        return;
    }
    mpath_file_guard_begin(&guard);
    if ((5 < length) && (0 == strcmp(wanted + length - 5, ".json"))) {
        mpath_summary_write_json(summary, out);
    } else {
        mpath_summary_write_text(summary, out);
    }
    record_close(out, path, "summary");
    mpath_file_guard_end(&guard);
}

/* Rank 0: takes the reports of all others, in their order. Who does not come is missing; then the rest is not waited for. */
static void summary_gather(mpath_oob_t *oob, mpath_summary_t *summary, mpath_report_t *report)
{
    int limit_s = mca_coll_mpath_component.settings.timeout_s, rank;

    for (rank = 1; rank < oob->size; rank++) {
        mpath_oob_request_t request = {NULL};
        size_t bytes                = 0;
        mpath_status_t status       = oob->irecv(oob->context, rank, report, sizeof(*report), &request);

        if (MPATH_OK == status) {
            status = record_message(oob, rank, &request, "which has not told what it has counted", limit_s, &bytes);
        }
        if (MPATH_OK != status) {
            limit_s = 1;
        } else if (sizeof(*report) == bytes) {
            (void)mpath_summary_add(summary, report);
        }
    }
}

static void summary_take(mpath_oob_t *oob, mpath_report_t *report)
{
    int size = (NULL != oob) ? oob->size : ompi_comm_size(&ompi_mpi_comm_world.comm);
    mpath_summary_t *summary;

    if (MPATH_OK != mpath_summary_create(size, MPATH_VERSION, &summary)) {
        return;
    }
    (void)mpath_summary_add(summary, report);
    if (NULL != oob) {
        summary_gather(oob, summary, report);
    }
    summary_write(summary);
    mpath_summary_destroy(summary);
}

static void summary_send(mpath_oob_t *oob, const mpath_report_t *report)
{
    mpath_oob_request_t request = {NULL};
    size_t bytes;

    if (MPATH_OK == oob->isend(oob->context, 0, report, sizeof(*report), &request)) {
        (void)record_message(oob, 0, &request, "which has not taken what is counted here",
                             mca_coll_mpath_component.settings.timeout_s, &bytes);
    }
}

/* `oob` NULL: the ranks do not meet. */
static void summary_make(mpath_oob_t *oob)
{
    mpath_report_t *report = malloc(sizeof(*report));
    int rank               = ompi_comm_rank(&ompi_mpi_comm_world.comm);

    if (NULL == report) {
        mpath_error("no memory for what this rank has counted; it is missing in the summary");
        return;
    }
    mpath_report_make(rank, report);
    mca_coll_mpath_pvars_report(report);
    if (0 == rank) {
        summary_take(oob, report);
    } else if (NULL != oob) {
        summary_send(oob, report);
    }
    free(report);
}

/* -- the timeline -- */

#define CLOCK_ROUNDS 8

/* Rank 0 asks CLOCK_ROUNDS times for the time, then tells what it has found. */
typedef struct clock_word_t {
    int64_t is_found, offset_ns, error_ns; /* an answer has its time in offset_ns */
} clock_word_t;

static bool trace_is_wanted(void)
{
    const char *wanted = mca_coll_mpath_component.settings.trace;

    return (NULL != wanted) && ('\0' != wanted[0]);
}

static bool clock_hear(mpath_oob_t *oob, int peer, int limit_s, clock_word_t *word)
{
    mpath_oob_request_t request = {NULL};
    size_t bytes                = 0;

    return (MPATH_OK == oob->irecv(oob->context, peer, word, sizeof(*word), &request)) &&
           (MPATH_OK == record_message(oob, peer, &request, "to compare clocks", limit_s, &bytes)) &&
           (sizeof(*word) == bytes);
}

static bool clock_say(mpath_oob_t *oob, int peer, int limit_s, const clock_word_t *word)
{
    mpath_oob_request_t request = {NULL};
    size_t bytes;

    return (MPATH_OK == oob->isend(oob->context, peer, word, sizeof(*word), &request)) &&
           (MPATH_OK == record_message(oob, peer, &request, "to compare clocks", limit_s, &bytes));
}

/* Rank 0, with one other: the shortest round counts. False: it does not come. */
static bool clock_measure(mpath_oob_t *oob, int peer, int limit_s)
{
    clock_word_t found = {.is_found = 1, .error_ns = INT64_MAX}, asks = {0}, answer;
    int round;

    for (round = 0; round < CLOCK_ROUNDS; round++) {
        uint64_t asked_ns = mpath_time_ns();
        int64_t took_ns;

        if (!clock_say(oob, peer, limit_s, &asks) || !clock_hear(oob, peer, limit_s, &answer)) {
            return false;
        }
        took_ns = (int64_t)(mpath_time_ns() - asked_ns);
        if (took_ns / 2 < found.error_ns) {
            found.error_ns  = took_ns / 2;
            found.offset_ns = (int64_t)asked_ns + took_ns / 2 - answer.offset_ns;
        }
    }
    return clock_say(oob, peer, limit_s, &found);
}

static void clock_measure_all(mpath_oob_t *oob)
{
    int limit_s = mca_coll_mpath_component.settings.timeout_s, rank;

    for (rank = 1; rank < oob->size; rank++) {
        if (!clock_measure(oob, rank, limit_s)) {
            limit_s = 1;
        }
    }
}

static bool clock_answer(mpath_oob_t *oob, clock_word_t *word)
{
    int limit_s = mca_coll_mpath_component.settings.timeout_s;

    while (clock_hear(oob, 0, limit_s, word)) {
        if (0 != word->is_found) {
            return true;
        }
        word->offset_ns = (int64_t)mpath_time_ns();
        if (!clock_say(oob, 0, limit_s, word)) {
            return false;
        }
    }
    return false;
}

static void trace_write(const mpath_trace_about_t *about)
{
    const char *wanted = mca_coll_mpath_component.settings.trace;
    char path[MPATH_FILE_NAME_MAX], pattern[MPATH_FILE_NAME_MAX];
    mpath_file_guard_t guard;
    FILE *out;

    snprintf(pattern, sizeof(pattern), mpath_file_name_differs(wanted) ? "%s" : "%s.%%r", wanted);
    out = record_open("trace", pattern, "timeline", path, sizeof(path));
    if (NULL != out) {
        mpath_file_guard_begin(&guard);
        (void)mpath_trace_write(about, out);
        record_close(out, path, "timeline");
        mpath_file_guard_end(&guard);
    }
}

static void trace_make(mpath_oob_t *oob)
{
    char host[MPATH_RECORD_NAME_MAX];
    mpath_trace_about_t about = {.version   = MPATH_VERSION,
                                 .host      = host,
                                 .rank      = ompi_comm_rank(&ompi_mpi_comm_world.comm),
                                 .num_ranks = ompi_comm_size(&ompi_mpi_comm_world.comm)};
    clock_word_t word;

    mpath_record_host(host);
    about.has_offset = 0 == about.rank;
    if ((NULL != oob) && (0 == about.rank)) {
        clock_measure_all(oob);
    } else if ((NULL != oob) && clock_answer(oob, &word)) {
        about.has_offset = 1;
        about.offset_ns  = word.offset_ns;
        about.error_ns   = (uint64_t)word.error_ns;
    }
    trace_write(&about);
}

/* MPI_Finalize begins, and the teams have ended. */
static int record_finalized(MPI_Comm comm, int keyval, void *value, void *extra)
{
    bool reports = record_wants_summary() || trace_is_wanted();
    bool meets   = reports && (NULL != record_world) && (1 < ompi_comm_size(record_world->comm));
    mca_coll_mpath_oob_t state;
    mpath_oob_t oob;

    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    if (meets) {
        mca_coll_mpath_oob_open(record_world, COLL_MPATH_TAG_GATHER, &state, &oob);
    }
    mpath_dump_end(&mca_coll_mpath_component.settings, (int)OMPI_PROC_MY_NAME->vpid);
    if (record_wants_summary()) {
        summary_make(meets ? &oob : NULL);
    }
    if (0 != (mpath_trace_is_on() & MPATH_TRACE_RINGS)) {
        trace_make(meets ? &oob : NULL);
    }
    if (meets) {
        mca_coll_mpath_oob_close(&state);
    }
    return MPI_SUCCESS;
}

static int record_copy(MPI_Comm comm, int keyval, void *extra, void *value, void *copy, int *flag COLL_MPATH_COPIES_FOR)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    (void)value;
    (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

void mca_coll_mpath_record_world(mca_coll_mpath_module_t *module)
{
    ompi_attribute_fn_ptr_union_t copy = {.attr_communicator_copy_fn = record_copy};
    ompi_attribute_fn_ptr_union_t gone = {.attr_communicator_delete_fn = record_finalized};
    struct ompi_communicator_t *self   = &ompi_mpi_comm_self.comm;
    int rc;

    if (MPATH_LOG_TRACE <= mca_coll_mpath_component.settings.verbose) {
        mpath_trace_log();
    }
    if (trace_is_wanted()) {
        (void)mpath_trace_open((size_t)mca_coll_mpath_component.settings.trace_chunks);
    }
    if (!record_wants_summary() && !trace_is_wanted() && !mpath_dump_wanted(&mca_coll_mpath_component.settings)) {
        return;
    }
    record_world = module;
    rc           = ompi_attr_create_keyval(COMM_ATTR, copy, gone, &record_keyval, NULL, 0, NULL);
    if (OMPI_SUCCESS == rc) { /* the one of the functions that set attributes which MPI's Fortran library needs, too */
        rc = ompi_attr_set_aint(COMM_ATTR, self, &self->c_keyhash, record_keyval, 0, false);
    }
    if (OMPI_SUCCESS != rc) {
        mpath_warn("Open MPI does not tell when MPI_Finalize begins (error %d): there will be no summary, no "
                   "timeline and no word of a plan that is not written",
                   rc);
    }
}
