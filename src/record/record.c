/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters of calls: those of living communicators, and the sums of what is gone. */
#include "record/record.h"

#include "util/log.h"
#include "util/number.h"
#include "util/time.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS (MPATH_RECORD_COLLECTIVES * MPATH_RECORD_MEMORIES)
#define ROW_WORDS (sizeof(mpath_record_row_t) / sizeof(mpath_count_t))

_Static_assert(sizeof(mpath_record_row_t) % sizeof(mpath_count_t) == 0, "a row is counters and nothing else");

static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;
static mpath_record_t *record_list;
/* What has ended: of all communicators, and of those whose rank 0 this process was. */
static mpath_record_row_t record_ended[2][MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES];
static mpath_count_t record_began_ns;
static char record_host[MPATH_RECORD_NAME_MAX];

void mpath_record_set_host(const char *name)
{
    pthread_mutex_lock(&record_lock);
    if (record_host[0] == '\0') {
        snprintf(record_host, sizeof(record_host), "%s", name);
    }
    pthread_mutex_unlock(&record_lock);
}

void mpath_record_host(char name[MPATH_RECORD_NAME_MAX])
{
    pthread_mutex_lock(&record_lock);
    snprintf(name, MPATH_RECORD_NAME_MAX, "%s", record_host);
    pthread_mutex_unlock(&record_lock);
    if (name[0] == '\0' && gethostname(name, MPATH_RECORD_NAME_MAX) != 0) {
        snprintf(name, MPATH_RECORD_NAME_MAX, "?");
    }
    name[MPATH_RECORD_NAME_MAX - 1] = '\0';
}

mpath_record_t *mpath_record_open(const char *name, int rank)
{
    mpath_record_t *record = calloc(1, sizeof(*record));

    if (record == NULL) {
        mpath_warn("no memory to count the calls on %s; they are not counted", name);
        return NULL;
    }
    record->is_first = rank == 0;
    record->slot     = &record->own_slot;
    snprintf(record->name, sizeof(record->name), "%s", name[0] != '\0' ? name : "a communicator");
    pthread_mutex_lock(&record_lock);
    record->communicator = mpath_trace_communicator(record->name);
    record->next         = record_list;
    record_list          = record;
    if (mpath_count_get(&record_began_ns) == 0) {
        mpath_count_set(&record_began_ns, mpath_time_ns());
    }
    pthread_mutex_unlock(&record_lock);
    return record;
}

static void rows_add(mpath_record_row_t *sum, const mpath_record_row_t *rows)
{
    mpath_count_t *to         = (mpath_count_t *)(void *)sum;
    const mpath_count_t *from = (const mpath_count_t *)(const void *)rows;

    for (size_t word = 0; word < ROWS * ROW_WORDS; word++) {
        mpath_count_add(&to[word], mpath_count_get(&from[word]));
    }
}

void mpath_record_close(mpath_record_t *record)
{
    mpath_record_t **link = &record_list;

    if (record == NULL) {
        return;
    }
    mpath_record_leave_team(record);
    pthread_mutex_lock(&record_lock);
    while (*link != record) {
        link = &(*link)->next;
    }
    *link = record->next;
    rows_add(record_ended[0][0], record->rows[0]);
    if (record->is_first) {
        rows_add(record_ended[1][0], record->rows[0]);
    }
    pthread_mutex_unlock(&record_lock);
    free(record);
}

void mpath_record_sum(int first_only, mpath_record_row_t rows[MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES])
{
    memset(rows, 0, ROWS * sizeof(**rows));
    pthread_mutex_lock(&record_lock);
    rows_add(rows[0], record_ended[first_only ? 1 : 0][0]);
    for (const mpath_record_t *record = record_list; record != NULL; record = record->next) {
        if (record->is_first || !first_only) {
            rows_add(rows[0], record->rows[0]);
        }
    }
    pthread_mutex_unlock(&record_lock);
}

uint64_t mpath_record_began_ns(void)
{
    return mpath_count_get(&record_began_ns);
}

static void count_carried(mpath_record_row_t *row, const mpath_record_call_t *call)
{
    mpath_count_add(&row->carried, 1);
    mpath_count_add(&row->carried_bytes, call->bytes);
    mpath_count_add(&row->algorithms[call->algorithm], 1);
    if (call->static_ns > 0 && call->mpath_ns > 0 && call->taken_ns > 0 && !call->sets_up) {
        mpath_count_add(&row->predicted, 1);
        mpath_count_add(&row->static_ns, call->static_ns);
        mpath_count_add(&row->mpath_ns, call->mpath_ns);
        mpath_count_add(&row->taken_ns, call->taken_ns);
    }
}

/* Most calls are left for the reason of the one before. */
static void count_left(mpath_record_t *record, mpath_record_row_t *row, const char *why)
{
    if (why != record->last_why || why == NULL) {
        record->last_why    = why;
        record->last_reason = mpath_reason_find(why);
    }
    mpath_count_add(&row->left, 1);
    mpath_count_add(&row->left_bytes, record->call.bytes);
    mpath_count_add(&row->reasons[record->last_reason], 1);
}

/* Whose calls are not under way. */
static void record_move(mpath_record_t *record, mpath_page_slot_t *to)
{
    const mpath_page_slot_t *from = record->slot;

    mpath_count_set(&to->calls, mpath_count_get(&from->calls));
    mpath_count_set(&to->began_ns, mpath_count_get(&from->began_ns));
    atomic_store(&to->collective, atomic_load(&from->collective));
    atomic_store(&to->end, atomic_load(&from->end));
    atomic_store(&to->phase, MPATH_RECORD_IDLE);
    record->slot = to;
}

void mpath_record_enter_team(mpath_record_t *record, uint64_t team, int rank, int size)
{
    mpath_page_slot_t *slot;

    if (record == NULL) {
        return;
    }
    mpath_trace_set_team(record->communicator, team);
    slot = mpath_page_slot_take(record->name, rank, size);
    if (slot != NULL) {
        record_move(record, slot);
        atomic_store_explicit(&slot->team, team, memory_order_relaxed);
    }
}

void mpath_record_leave_team(mpath_record_t *record)
{
    mpath_page_slot_t *slot = record != NULL ? record->slot : NULL;

    if (slot != NULL && slot != &record->own_slot) {
        record_move(record, &record->own_slot);
        mpath_page_slot_give(slot);
    }
}

void mpath_record_trace_phase(const mpath_record_t *record, uint64_t now_ns)
{
    const mpath_page_slot_t *slot = record->slot;
    unsigned phase                = atomic_load_explicit(&slot->phase, memory_order_relaxed);
    mpath_trace_call_t event      = {.began_ns     = mpath_count_get(&slot->since_ns),
                                     .ended_ns     = now_ns,
                                     .communicator = record->communicator,
                                     .call         = record->call.number,
                                     .phase        = (uint8_t)phase};

    if (phase != MPATH_RECORD_IDLE) {
        mpath_trace_add_call(&event);
    }
}

void mpath_record_trace_gpu(const mpath_record_t *record, uint32_t call, int lane, uint64_t bytes, uint64_t began_ns)
{
    mpath_trace_chunk_t event = {.began_ns = began_ns,
                                 .ended_ns = mpath_time_ns(),
                                 .bytes    = bytes,
                                 .call     = call,
                                 .lane     = (uint8_t)lane,
                                 .kind     = lane == MPATH_TRACE_GPU_KERNEL ? MPATH_TRACE_KERNEL : MPATH_TRACE_COPY};

    if (record != NULL) {
        event.team = mpath_trace_team(record->communicator);
        event.call = record->call.number > 0 ? record->call.number : call;
        mpath_trace_add_chunk(&event);
    }
}

/* The last phase, and the call as a whole, which goes on in the previous function where it is left. */
static void trace_end(mpath_record_t *record, unsigned collective, mpath_record_end_t end, const char *why)
{
    const mpath_record_call_t *call = &record->call;
    uint64_t now_ns                 = mpath_time_ns();
    mpath_trace_call_t event        = {.began_ns      = mpath_count_get(&record->slot->began_ns),
                                       .ended_ns      = now_ns,
                                       .bytes         = call->bytes,
                                       .static_ns     = call->static_ns,
                                       .mpath_ns      = call->mpath_ns,
                                       .relayed_bytes = call->relayed_bytes,
                                       .why           = end == MPATH_RECORD_LEFT ? why : NULL,
                                       .communicator  = record->communicator,
                                       .call          = call->number,
                                       .repeats       = call->repeats,
                                       .phase         = MPATH_RECORD_IDLE,
                                       .collective    = (uint8_t)collective,
                                       .memory        = (uint8_t)call->memory,
                                       .algorithm     = (uint8_t)call->algorithm,
                                       .failed        = end == MPATH_RECORD_FAILED};

    if (atomic_load_explicit(&record->slot->phase, memory_order_relaxed) == MPATH_RECORD_IDLE) {
        return;
    }
    mpath_record_trace_phase(record, now_ns);
    if (end == MPATH_RECORD_LEFT && record->left_ns == 0) {
        record->left    = event;
        record->left_ns = now_ns;
    } else { /* the latter: a call of the function that carries one */
        mpath_trace_add_call(&event);
    }
}

void mpath_record_over(mpath_record_t *record)
{
    mpath_trace_call_t previous;

    if (record == NULL || record->left_ns == 0) {
        return;
    }
    record->left.ended_ns = mpath_time_ns();
    previous              = record->left;
    previous.began_ns     = record->left_ns;
    previous.phase        = MPATH_RECORD_PREVIOUS;
    record->left_ns       = 0;
    mpath_trace_add_call(&previous);
    mpath_trace_add_call(&record->left);
}

int mpath_record_says(const mpath_record_t *record)
{
    return record->is_first && atomic_load_explicit(&mpath_log_threshold, memory_order_relaxed) >= MPATH_LOG_DEBUG;
}

/* ", KEY 1.27 ms", or nothing. */
static void say_number(char *text, size_t size, const char *key, uint64_t value, double scale, const char *unit)
{
    size_t length = strlen(text);
    char number[MPATH_NUMBER_SHOWN];

    if (value > 0) {
        mpath_number_show((double)value / scale, unit, number);
        snprintf(text + length, size - length, ", %s %s", key, number);
    }
}

/* One line for the call. */
static void say_end(const mpath_record_t *record, unsigned collective, mpath_record_end_t end, const char *why)
{
    const mpath_record_call_t *call = &record->call;
    char text[384]                  = "", bytes[MPATH_NUMBER_SHOWN], what[128];

    mpath_number_show((double)call->bytes, "B", bytes);
    snprintf(what, sizeof(what), "call %u, %s of %s on %s memory", call->number,
             mpath_record_collective_name(collective), bytes, mpath_record_memory_name(call->memory));
    say_number(text, sizeof(text), "predicted", call->mpath_ns, 1e9, "s");
    say_number(text, sizeof(text), "static routes", call->static_ns, 1e9, "s");
    say_number(text, sizeof(text), "took", call->taken_ns, 1e9, "s");
    say_number(text, sizeof(text), "relayed here", call->relayed_bytes, 1, "B");
    if (call->hottest_bytes > 0) {
        mpath_number_show((double)call->hottest_bytes, "B", bytes);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ", %u routes%s", call->routes,
                 call->algorithm == MPATH_RECORD_PAIRS ? " of this rank" : "");
        if (call->hottest != MPATH_RECORD_HOTTEST_UNKNOWN) {
            snprintf(text + strlen(text), sizeof(text) - strlen(text), ", hottest rank %d with %s", (int)call->hottest,
                     bytes);
        } else {
            snprintf(text + strlen(text), sizeof(text) - strlen(text),
                     ", hottest rank (not known, as pairs of nodes plan by themselves) with %s", bytes);
        }
    }
    if (call->repeats > 0) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ", repeated %u times", call->repeats);
    }
    if (end == MPATH_RECORD_CARRIED) {
        mpath_debug("%s: mpath carried the call: %s: %s%s", record->name, what,
                    mpath_record_algorithm_name(call->algorithm), text);
    } else if (end == MPATH_RECORD_LEFT) {
        mpath_debug("%s: the previous function runs: %s: %s%s", record->name, why != NULL ? why : "", what, text);
    } else {
        mpath_debug("%s: the call failed: %s%s", record->name, what, text);
    }
}

void mpath_record_end(mpath_record_t *record, unsigned collective, mpath_record_end_t end, const char *why)
{
    mpath_record_row_t *row;

    if (record == NULL) {
        return;
    }
    row = &record->rows[collective][record->call.memory];
    switch (end) {
    case MPATH_RECORD_CARRIED:
        count_carried(row, &record->call);
        break;
    case MPATH_RECORD_LEFT:
        count_left(record, row, why);
        break;
    default:
        mpath_count_add(&row->failed, 1);
        break;
    }
    if (record->call.repeats > 0) {
        mpath_count_add(&row->repeated, record->call.repeats);
    }
    if (mpath_trace_is_on()) {
        trace_end(record, collective, end, why);
    }
    if (mpath_record_says(record)) {
        say_end(record, collective, end, why);
    }
    record->call = (mpath_record_call_t){.bytes = 0};
    if (atomic_load_explicit(&record->slot->phase, memory_order_relaxed) != MPATH_RECORD_IDLE) {
        atomic_store_explicit(&record->slot->end, end, memory_order_relaxed);
        atomic_store_explicit(&record->slot->phase, MPATH_RECORD_IDLE, memory_order_relaxed);
    }
}
