/* SPDX-License-Identifier: BSD-3-Clause */
/* The rings of events and their timeline. */
#include "record/trace.h"

#include "record/record.h"
#include "util/log.h"
#include "util/time.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LANE_ROWS 64       /* chunks of a lane that overlap have rows of their own */
#define COMMUNICATORS 1000 /* rows of calls; the last one is of all that come later */
#define FIRST_LANE_ROW 1000

_Static_assert(MPATH_TRACE_SHM == MPATH_PAGE_RAILS, "the lane after those of the rails");

typedef struct trace_communicator {
    char name[MPATH_RECORD_NAME_MAX];
    uint64_t team;
    int is_named;
} trace_communicator_t;

atomic_int mpath_trace_state;

static mpath_trace_chunk_t *chunks;
static mpath_trace_call_t *calls;
static size_t max_chunks, max_calls;
static atomic_size_t chunks_added, calls_added;
static trace_communicator_t *communicators;
static uint32_t num_communicators;
static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;

mpath_status_t mpath_trace_open(size_t capacity)
{
    size_t calls_wanted = capacity / 4 > 16 ? capacity / 4 : 16;

    if (chunks != NULL) {
        return MPATH_OK;
    }
    chunks        = calloc(capacity, sizeof(*chunks));
    calls         = calloc(calls_wanted, sizeof(*calls));
    communicators = calloc(COMMUNICATORS, sizeof(*communicators));
    if (chunks == NULL || calls == NULL || communicators == NULL) {
        mpath_error("no memory for a trace of %zu chunks; nothing is traced", capacity);
        free(chunks);
        free(calls);
        free(communicators);
        chunks        = NULL;
        calls         = NULL;
        communicators = NULL;
        return MPATH_ERR_NO_MEMORY;
    }
    max_chunks = capacity;
    max_calls  = calls_wanted;
    atomic_fetch_or(&mpath_trace_state, MPATH_TRACE_RINGS);
    return MPATH_OK;
}

void mpath_trace_log(void)
{
    atomic_fetch_or(&mpath_trace_state, MPATH_TRACE_LOG);
}

static int rings_are_on(void)
{
    return (mpath_trace_is_on() & MPATH_TRACE_RINGS) != 0;
}

static void lane_name(unsigned lane, char *text, size_t size)
{
    static const char *const names[] = {"shared memory", "GPU kernels", "GPU copy engines", "GPU and host memory"};
    const mpath_page_rail_t *rail    = lane < MPATH_PAGE_RAILS ? &mpath_page()->rails[lane] : NULL;

    if (rail == NULL) {
        snprintf(text, size, "%s", names[lane - MPATH_TRACE_SHM]);
    } else {
        snprintf(text, size, "%s (%d)", rail->name, (int)rail->number);
    }
}

static const char *kind_name(unsigned kind)
{
    static const char *const names[] = {"send", "fetch", "came", "kernel", "copy"};

    return names[kind];
}

static int chunk_is_gpus(const mpath_trace_chunk_t *chunk)
{
    return chunk->lane > MPATH_TRACE_SHM;
}

void mpath_trace_add_chunk(const mpath_trace_chunk_t *chunk)
{
    char lane[MPATH_RECORD_NAME_MAX];

    if (rings_are_on()) {
        chunks[atomic_fetch_add_explicit(&chunks_added, 1, memory_order_relaxed) % max_chunks] = *chunk;
    }
    if (mpath_trace_is_on() & MPATH_TRACE_LOG) {
        lane_name(chunk->lane, lane, sizeof(lane));
        if (chunk_is_gpus(chunk)) {
            mpath_trace("call %u: %s by %s: %llu bytes, %llu ns", chunk->call, kind_name(chunk->kind), lane,
                        (unsigned long long)chunk->bytes, (unsigned long long)(chunk->ended_ns - chunk->began_ns));
        } else {
            mpath_trace("call %u: %s by %s: flow %u, hop %u, %llu bytes at %llu, %llu ns", chunk->call,
                        kind_name(chunk->kind), lane, chunk->flow, (unsigned)chunk->hop,
                        (unsigned long long)chunk->bytes, (unsigned long long)chunk->offset,
                        (unsigned long long)(chunk->ended_ns - chunk->began_ns));
        }
    }
}

void mpath_trace_add_call(const mpath_trace_call_t *call)
{
    if (rings_are_on()) {
        calls[atomic_fetch_add_explicit(&calls_added, 1, memory_order_relaxed) % max_calls] = *call;
    }
}

uint32_t mpath_trace_communicator(const char *name)
{
    uint32_t number;

    if (!rings_are_on()) {
        return 0;
    }
    pthread_mutex_lock(&trace_lock);
    number = num_communicators < COMMUNICATORS - 1 ? num_communicators++ : COMMUNICATORS - 1;
    snprintf(communicators[number].name, sizeof(communicators[number].name), "%s",
             number < COMMUNICATORS - 1 ? name : "others");
    communicators[number].is_named = 1;
    pthread_mutex_unlock(&trace_lock);
    return number;
}

void mpath_trace_set_team(uint32_t communicator, uint64_t team)
{
    if (rings_are_on()) {
        communicators[communicator].team = team;
    }
}

uint64_t mpath_trace_team(uint32_t communicator)
{
    return rings_are_on() ? communicators[communicator].team : 0;
}

/* -- writing -- */

typedef struct trace_writer {
    FILE *out;
    int rank;
    const char *before; /* the next event */
} trace_writer_t;

static void write_us(FILE *out, const char *key, uint64_t ns)
{
    fprintf(out, ", \"%s\": %llu.%03u", key, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

static void write_name(trace_writer_t *writer, const char *what, unsigned row, const char *name)
{
    fprintf(writer->out,
            "%s{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %u, \"args\": {\"name\": ", writer->before, what,
            writer->rank, row);
    mpath_json_string(writer->out, name);
    fprintf(writer->out, "}}");
    writer->before = ",\n";
}

static void write_order(trace_writer_t *writer, const char *what, unsigned row, unsigned order)
{
    fprintf(writer->out,
            "%s{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %u, \"args\": {\"sort_index\": %u}}",
            writer->before, what, writer->rank, row, order);
    writer->before = ",\n";
}

static void write_begin(trace_writer_t *writer, const char *category, const char *name, unsigned row, uint64_t began_ns,
                        uint64_t ended_ns, int is_moment)
{
    fprintf(writer->out, "%s{\"ph\": \"%s\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %u",
            writer->before, is_moment ? "i" : "X", category, name, writer->rank, row);
    write_us(writer->out, "ts", is_moment ? ended_ns : began_ns);
    if (is_moment) {
        fprintf(writer->out, ", \"s\": \"t\"");
    } else {
        write_us(writer->out, "dur", ended_ns > began_ns ? ended_ns - began_ns : 0);
    }
    fprintf(writer->out, ", \"args\": {");
    writer->before = ",\n";
}

static void write_number(FILE *out, const char *key, uint64_t value)
{
    if (value > 0) {
        fprintf(out, ", \"%s\": %llu", key, (unsigned long long)value);
    }
}

static void write_call(trace_writer_t *writer, const mpath_trace_call_t *call)
{
    const trace_communicator_t *communicator = &communicators[call->communicator];
    int is_call                              = call->phase == MPATH_RECORD_IDLE;
    FILE *out                                = writer->out;

    write_begin(writer, is_call ? "call" : "phase",
                is_call ? mpath_record_collective_name(call->collective) : mpath_record_phase_name(call->phase),
                call->communicator, call->began_ns, call->ended_ns, 0);
    fprintf(out, "\"comm\": ");
    mpath_json_string(out, communicator->name);
    fprintf(out, ", \"team\": \"%016llx\", \"call\": %u", (unsigned long long)communicator->team, call->call);
    if (is_call) {
        fprintf(out, ", \"memory\": \"%s\"", mpath_record_memory_name(call->memory));
        write_number(out, "bytes", call->bytes);
        write_number(out, "static_ns", call->static_ns);
        write_number(out, "mpath_ns", call->mpath_ns);
        write_number(out, "relayed_bytes", call->relayed_bytes);
        write_number(out, "repeats", call->repeats);
        if (call->why != NULL) {
            fprintf(out, ", \"left\": ");
            mpath_json_string(out, call->why);
        } else if (call->failed) {
            fprintf(out, ", \"failed\": true");
        } else {
            fprintf(out, ", \"algorithm\": \"%s\"", mpath_record_algorithm_name(call->algorithm));
        }
    }
    fprintf(out, "}}");
}

static void write_chunk(trace_writer_t *writer, const mpath_trace_chunk_t *chunk, unsigned row)
{
    char lane[MPATH_RECORD_NAME_MAX];

    lane_name(chunk->lane, lane, sizeof(lane));
    write_begin(writer, chunk_is_gpus(chunk) ? "gpu" : "chunk", kind_name(chunk->kind), row, chunk->began_ns,
                chunk->ended_ns, chunk->kind == MPATH_TRACE_CAME);
    fprintf(writer->out, "\"lane\": ");
    mpath_json_string(writer->out, lane);
    fprintf(writer->out, ", \"bytes\": %llu, \"team\": \"%016llx\", \"call\": %u", (unsigned long long)chunk->bytes,
            (unsigned long long)chunk->team, chunk->call);
    if (!chunk_is_gpus(chunk)) {
        fprintf(writer->out, ", \"flow\": %u, \"offset\": %llu, \"hop\": %u", chunk->flow,
                (unsigned long long)chunk->offset, (unsigned)chunk->hop);
    }
    fprintf(writer->out, "}}");
}

/* By lane, then by beginning. */
static int compare_chunks(const void *left, const void *right)
{
    const mpath_trace_chunk_t *a = *(const mpath_trace_chunk_t *const *)left;
    const mpath_trace_chunk_t *b = *(const mpath_trace_chunk_t *const *)right;

    if (a->lane != b->lane) {
        return a->lane < b->lane ? -1 : 1;
    }
    return a->began_ns != b->began_ns ? (a->began_ns < b->began_ns ? -1 : 1) : 0;
}

/* The first row of the lane that is free then. */
static unsigned take_row(uint64_t *ends_ns, const mpath_trace_chunk_t *chunk)
{
    unsigned row = 0;

    while (row < LANE_ROWS - 1 && ends_ns[row] > chunk->began_ns) {
        row++;
    }
    ends_ns[row] = chunk->ended_ns;
    return row;
}

static void write_lane_row(trace_writer_t *writer, unsigned lane, unsigned row)
{
    char name[MPATH_RECORD_NAME_MAX], text[2 * MPATH_RECORD_NAME_MAX];
    unsigned number = FIRST_LANE_ROW + lane * LANE_ROWS + row;

    lane_name(lane, name, sizeof(name));
    snprintf(text, sizeof(text), row == 0 ? "lane %s" : "lane %s, %u", name, row + 1);
    write_name(writer, "thread_name", number, text);
    write_order(writer, "thread_sort_index", number, number);
}

static void write_chunks(trace_writer_t *writer, const mpath_trace_chunk_t **sorted, size_t count)
{
    uint64_t ends_ns[LANE_ROWS];
    unsigned lane = MPATH_TRACE_LANES, rows = 0;

    for (size_t i = 0; i < count; i++) {
        unsigned row;

        if (sorted[i]->lane != lane) {
            lane = sorted[i]->lane;
            rows = 0;
            memset(ends_ns, 0, sizeof(ends_ns));
        }
        row = sorted[i]->kind == MPATH_TRACE_CAME ? 0 : take_row(ends_ns, sorted[i]);
        for (; rows <= row; rows++) {
            write_lane_row(writer, lane, rows);
        }
        write_chunk(writer, sorted[i], FIRST_LANE_ROW + lane * LANE_ROWS + row);
    }
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * MPATH_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void write_about(const mpath_trace_about_t *about, size_t num_calls, size_t num_chunks, FILE *out)
{
    size_t all_calls = atomic_load(&calls_added), all_chunks = atomic_load(&chunks_added);

    fprintf(out,
            "{\"displayTimeUnit\": \"ns\",\n\"otherData\": {\"format\": \"mpath-trace\", \"version\": 1, \"mpath\": ");
    mpath_json_string(out, about->version);
    fprintf(out, ", \"rank\": %d, \"ranks\": %d, \"host\": ", about->rank, about->num_ranks);
    mpath_json_string(out, about->host);
    fprintf(out, ", \"pid\": %d,\n  \"clock\": {\"monotonic_ns\": %llu, \"realtime_ns\": %llu", (int)getpid(),
            (unsigned long long)clock_ns(CLOCK_MONOTONIC), (unsigned long long)clock_ns(CLOCK_REALTIME));
    if (about->has_offset) {
        fprintf(out, ", \"offset_ns\": %lld, \"error_ns\": %llu", (long long)about->offset_ns,
                (unsigned long long)about->error_ns);
    }
    fprintf(out,
            "},\n  \"recorded\": {\"calls\": %zu, \"chunks\": %zu}, \"dropped\": {\"calls\": %zu, \"chunks\": %zu}},\n"
            "\"traceEvents\": [\n",
            num_calls, num_chunks, all_calls - num_calls, all_chunks - num_chunks);
}

static void write_rows(trace_writer_t *writer, const mpath_trace_about_t *about)
{
    char name[2 * MPATH_RECORD_NAME_MAX];

    snprintf(name, sizeof(name), "rank %d (%s)", about->rank, about->host);
    write_name(writer, "process_name", 0, name);
    write_order(writer, "process_sort_index", 0, (unsigned)about->rank);
    for (uint32_t i = 0; i < COMMUNICATORS; i++) {
        if (communicators[i].is_named) {
            snprintf(name, sizeof(name), "calls on %s", communicators[i].name);
            write_name(writer, "thread_name", i, name);
            write_order(writer, "thread_sort_index", i, i);
        }
    }
}

mpath_status_t mpath_trace_write(const mpath_trace_about_t *about, FILE *out)
{
    size_t num_calls = atomic_load(&calls_added), num_chunks = atomic_load(&chunks_added);
    trace_writer_t writer = {.out = out, .rank = about->rank, .before = ""};
    const mpath_trace_chunk_t **sorted;

    if (!rings_are_on()) {
        return MPATH_ERR_PARAM;
    }
    num_calls  = num_calls < max_calls ? num_calls : max_calls;
    num_chunks = num_chunks < max_chunks ? num_chunks : max_chunks;
    sorted     = malloc((num_chunks + 1) * sizeof(*sorted));
    if (sorted == NULL) {
        mpath_error("no memory to put the chunks of a trace in order; it is not written");
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < num_chunks; i++) {
        sorted[i] = &chunks[i];
    }
    qsort(sorted, num_chunks, sizeof(*sorted), compare_chunks);
    write_about(about, num_calls, num_chunks, out);
    write_rows(&writer, about);
    for (size_t i = 0; i < num_calls; i++) {
        write_call(&writer, &calls[i]);
    }
    write_chunks(&writer, sorted, num_chunks);
    fprintf(out, "\n]}\n");
    free(sorted);
    return MPATH_OK;
}
