/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Performance variables coll_mpath_*: sums over the communicators of this process, for MPI_T: of what has ended, and of what the
 * teams have counted so far, which are asked when somebody reads, so that calls do no more than count. Of the generic class,
 * because Open MPI lets a counter begin at zero with every new handle: a program that reads them once at its end would learn
 * nothing.
 */
#include "coll_mpath.h"

#include "device/usage.h"
#include "record/summary.h"

#include "opal/mca/base/mca_base_pvar.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
    PVAR_CALLS,
    PVAR_DECLINED,
    PVAR_PLANS,
    PVAR_PLAN_HITS,
    PVAR_AGREE_NS,
    PVAR_PLAN_NS,
    PVAR_MOVE_NS,
    PVAR_RELAYED_BYTES,
    PVAR_KERNEL_BYTES,
    PVAR_ENGINE_BYTES,
    PVAR_STAGED_BYTES,
    PVAR_EAGER_CALLS,
    PVAR_YIELDS,
    PVAR_RECEIVE_YIELDS,
    PVAR_STARTED,
    PVAR_SLICES,
    PVAR_KERNEL_LAUNCHES,
    PVAR_KERNEL_CTAS,
    PVAR_DEVICE_BYTES,
    PVAR_LEFT, /* of the records, as all behind it: none is added to; left_KEY for each key of a reason */
    PVAR_FAILED = PVAR_LEFT + MPATH_REASON_KEYS,
    PVAR_REPEATED,
    PVAR_PREDICTED_CALLS,
    PVAR_PREDICTED_STATIC_NS,
    PVAR_PREDICTED_MPATH_NS,
    PVAR_PREDICTED_TAKEN_NS,
    PVAR_COUNT
};

static const struct {
    const char *name, *help;
} pvar_table[PVAR_COUNT] = {
    [PVAR_CALLS]         = {"calls", "Collective calls that mpath carried"},
    [PVAR_DECLINED]      = {"declined", "Collective calls that mpath left to the function that it replaces"},
    [PVAR_PLANS]         = {"plans", "Plans computed"},
    [PVAR_PLAN_HITS]     = {"plan_hits", "Calls that found their plan in the cache"},
    [PVAR_AGREE_NS]      = {"agree_ns", "Nanoseconds spent on the agreement about sizes"},
    [PVAR_PLAN_NS]       = {"plan_ns", "Nanoseconds spent on planning"},
    [PVAR_MOVE_NS]       = {"move_ns", "Nanoseconds spent on moving data"},
    [PVAR_RELAYED_BYTES] = {"relayed_bytes", "Bytes that this process forwarded for others"},
    [PVAR_KERNEL_BYTES]  = {"kernel_bytes", "Bytes that multiprocessors of this process's GPUs wrote to other GPUs"},
    [PVAR_ENGINE_BYTES]  = {"engine_bytes", "Bytes that copy engines of this process's GPUs wrote to other GPUs"},
    [PVAR_STAGED_BYTES]  = {"staged_bytes", "Bytes that this process sent through host memory, from or for a GPU"},
    [PVAR_EAGER_CALLS]   = {"eager_calls", "Collective calls whose kernels were started before the ranks had agreed"},
    [PVAR_YIELDS] = {"yields", "Times that a chunk of device memory waited since the NIC ahead was busy with bytes "
                               "of its own GPUs in another communicator"},
    [PVAR_RECEIVE_YIELDS]  = {"receive_yields", "The same for the NIC at the other end of a rail"},
    [PVAR_STARTED]         = {"started", "Starts of non-blocking and persistent collectives"},
    [PVAR_SLICES]          = {"slices", "Times that the progress engine has let a non-blocking collective go on"},
    [PVAR_KERNEL_LAUNCHES] = {"kernel_launches", "Kernels that mpath has started on GPUs in this process"},
    [PVAR_KERNEL_CTAS]  = {"kernel_ctas", "CTAs of these kernels, each of which takes its share of a multiprocessor"},
    [PVAR_DEVICE_BYTES] = {"device_bytes", "Bytes of device memory that mpath has allocated in this process and holds"},
    [PVAR_FAILED]       = {"failed", "Collective calls that ended in an error of mpath"},
    [PVAR_REPEATED]     = {"repeated", "Repetitions of calls whose rails had failed"},
    [PVAR_PREDICTED_CALLS]     = {"predicted_calls", "Carried calls for which times were predicted"},
    [PVAR_PREDICTED_STATIC_NS] = {"predicted_static_ns", "Nanoseconds predicted for these on static routes"},
    [PVAR_PREDICTED_MPATH_NS]  = {"predicted_mpath_ns", "Nanoseconds predicted for what carried them"},
    [PVAR_PREDICTED_TAKEN_NS]  = {"predicted_taken_ns", "Nanoseconds that they took from the end of the agreement on"},
};

static atomic_ullong pvar_sums[PVAR_COUNT]; /* of what has ended, and of what is added where it happens */
static pthread_mutex_t pvar_lock = PTHREAD_MUTEX_INITIALIZER;
static mca_coll_mpath_module_t *pvar_modules; /* that have a team */

/* By rail, in an order that stays the same while the program runs. */
enum { RAIL_SENT_BYTES, RAIL_RECEIVED_BYTES, RAIL_FAILURES, RAIL_NUMBER, RAIL_COUNT };

static const struct {
    const char *name, *help;
} rail_table[RAIL_COUNT] = {
    [RAIL_SENT_BYTES]     = {"rail_sent_bytes", "Bytes that this process has sent, by rail"},
    [RAIL_RECEIVED_BYTES] = {"rail_received_bytes", "Bytes that have come to this process, by rail"},
    [RAIL_FAILURES]       = {"rail_failures", "Times that a communicator has left a NIC of this node out, by rail"},
    [RAIL_NUMBER]         = {"rail_number", "Numbers of the rails, in the order of the other variables by rail"}};

static int rail_keys[RAIL_COUNT]; /* what the variables lead to */

static int rail_read(const struct mca_base_pvar_t *pvar, void *value, void *object)
{
    const mpath_page_t *page   = mpath_page();
    unsigned long long *values = value;
    int which                  = (int)((const int *)pvar->ctx - rail_keys), i;

    (void)object;
    for (i = 0; i < MPATH_MAX_NICS; i++) {
        const mpath_page_rail_t *rail = &page->rails[i];
        bool is_there                 = 0 != atomic_load(&rail->is_used);

        values[i] = (RAIL_SENT_BYTES == which)       ? atomic_load(&rail->sent_bytes)
                    : (RAIL_RECEIVED_BYTES == which) ? atomic_load(&rail->received_bytes)
                    : (RAIL_FAILURES == which)       ? atomic_load(&rail->failures)
                    : is_there                       ? (unsigned long long)rail->number
                                                     : ~0ull;
    }
    return OPAL_SUCCESS;
}

static int rail_notify(struct mca_base_pvar_t *pvar, mca_base_pvar_event_t event, void *object, int *count)
{
    (void)pvar;
    (void)object;
    if (MCA_BASE_PVAR_HANDLE_BIND == event) {
        *count = MPATH_MAX_NICS;
    }
    return OPAL_SUCCESS;
}

/* All rows in one. */
static void pvars_sum_records(void)
{
    mpath_record_row_t rows[MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES];
    unsigned long long sums[PVAR_COUNT] = {0};
    int collective, memory, i;

    mpath_record_sum(0, rows);
    for (collective = 0; collective < MPATH_RECORD_COLLECTIVES; collective++) {
        for (memory = 0; memory < MPATH_RECORD_MEMORIES; memory++) {
            const mpath_record_row_t *row = &rows[collective][memory];

            for (i = 0; i < MPATH_REASONS; i++) {
                sums[PVAR_LEFT + mpath_reason_key_of(i)] += mpath_count_get(&row->reasons[i]);
            }
            sums[PVAR_FAILED] += mpath_count_get(&row->failed);
            sums[PVAR_REPEATED] += mpath_count_get(&row->repeated);
            sums[PVAR_PREDICTED_CALLS] += mpath_count_get(&row->predicted);
            sums[PVAR_PREDICTED_STATIC_NS] += mpath_count_get(&row->static_ns);
            sums[PVAR_PREDICTED_MPATH_NS] += mpath_count_get(&row->mpath_ns);
            sums[PVAR_PREDICTED_TAKEN_NS] += mpath_count_get(&row->taken_ns);
        }
    }
    for (i = PVAR_LEFT; i < PVAR_COUNT; i++) {
        atomic_store(&pvar_sums[i], sums[i]);
    }
}

static void pvars_add_counters(const mpath_coll_counters_t *counters, unsigned long long sums[PVAR_COUNT])
{
    sums[PVAR_CALLS] += counters->calls;
    sums[PVAR_DECLINED] += counters->declined;
    sums[PVAR_PLANS] += counters->plans;
    sums[PVAR_PLAN_HITS] += counters->plan_hits;
    sums[PVAR_AGREE_NS] += counters->agree_ns;
    sums[PVAR_PLAN_NS] += counters->plan_ns;
    sums[PVAR_MOVE_NS] += counters->move_ns;
    sums[PVAR_RELAYED_BYTES] += counters->moved.forwarded_bytes + counters->relay.moved.forwarded_bytes;
    sums[PVAR_KERNEL_BYTES] += counters->gpu.kernel_bytes;
    sums[PVAR_ENGINE_BYTES] += counters->gpu.engine_bytes + counters->relay.moved.sent_bytes;
    sums[PVAR_STAGED_BYTES] += counters->gpu.staged_bytes + counters->relay.moved.staged_bytes;
    sums[PVAR_EAGER_CALLS] += counters->gpu.eager;
    sums[PVAR_YIELDS] += counters->relay.moved.yields;
    sums[PVAR_RECEIVE_YIELDS] += counters->relay.moved.receive_yields;
}

/* Those of a module's team; its calls go on meanwhile. */
static void pvars_add_module(const mca_coll_mpath_module_t *module, unsigned long long sums[PVAR_COUNT])
{
    mpath_coll_counters_t counters;

    mpath_coll_counters(module->coll, &counters);
    pvars_add_counters(&counters, sums);
}

static unsigned long long pvar_sum(int pvar)
{
    unsigned long long sums[PVAR_COUNT] = {0}, ended;
    const mca_coll_mpath_module_t *module;

    pthread_mutex_lock(&pvar_lock);
    for (module = pvar_modules; NULL != module; module = module->counts_next) {
        pvars_add_module(module, sums);
    }
    ended = atomic_load(&pvar_sums[pvar]);
    pthread_mutex_unlock(&pvar_lock);
    return ended + sums[pvar];
}

static int pvar_read(const struct mca_base_pvar_t *pvar, void *value, void *object)
{
    int which = (int)((atomic_ullong *)pvar->ctx - pvar_sums);
    mpath_gpu_usage_t usage;

    (void)object;
    if (PVAR_LEFT <= which) {
        pvars_sum_records();
    }
    mpath_gpu_usage(&usage); /* counted where it happens, not per call */
    atomic_store(&pvar_sums[PVAR_KERNEL_LAUNCHES], usage.launches);
    atomic_store(&pvar_sums[PVAR_KERNEL_CTAS], usage.ctas);
    atomic_store(&pvar_sums[PVAR_DEVICE_BYTES], usage.memory_bytes);
    *(unsigned long long *)value = pvar_sum(which);
    return OPAL_SUCCESS;
}

static int pvar_register(int pvar)
{
    const char *name = pvar_table[pvar].name, *help = pvar_table[pvar].help;
    char key_name[64], key_help[128];

    if ((PVAR_LEFT <= pvar) && (PVAR_FAILED > pvar)) {
        snprintf(key_name, sizeof(key_name), "left_%s", mpath_reason_key_name(pvar - PVAR_LEFT));
        snprintf(key_help, sizeof(key_help), "Calls left: %s", mpath_reason_key_text(pvar - PVAR_LEFT));
        name = key_name;
        help = key_help;
    }
    return mca_base_component_pvar_register(
        &mca_coll_mpath_component.super.collm_version, name, help, OPAL_INFO_LVL_4, MCA_BASE_PVAR_CLASS_GENERIC,
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
        MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, pvar_read, NULL, NULL, &pvar_sums[pvar]);
}

int mca_coll_mpath_pvars_register(void)
{
    int i, rc;

    for (i = 0; i < PVAR_COUNT; i++) {
        rc = pvar_register(i);
        if (0 > rc) {
            return rc;
        }
    }
    for (i = 0; i < RAIL_COUNT; i++) {
        rc = mca_base_component_pvar_register(
            &mca_coll_mpath_component.super.collm_version, rail_table[i].name, rail_table[i].help, OPAL_INFO_LVL_4,
            MCA_BASE_PVAR_CLASS_GENERIC, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
            MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, rail_read, NULL, rail_notify, &rail_keys[i]);
        if (0 > rc) {
            return rc;
        }
    }
    return OMPI_SUCCESS;
}

static void pvars_add(const unsigned long long more[PVAR_COUNT])
{
    for (int i = 0; i < PVAR_LEFT; i++) {
        if (more[i] > 0) {
            atomic_fetch_add_explicit(&pvar_sums[i], more[i], memory_order_relaxed);
        }
    }
}

void mca_coll_mpath_pvars_report(struct mpath_report *report)
{
    report->agree_ns      = pvar_sum(PVAR_AGREE_NS);
    report->plan_ns       = pvar_sum(PVAR_PLAN_NS);
    report->move_ns       = pvar_sum(PVAR_MOVE_NS);
    report->relayed_bytes = pvar_sum(PVAR_RELAYED_BYTES);
}

void mca_coll_mpath_pvars_started(void)
{
    atomic_fetch_add(&pvar_sums[PVAR_STARTED], 1);
}

void mca_coll_mpath_pvars_slice(void)
{
    atomic_fetch_add(&pvar_sums[PVAR_SLICES], 1);
}

void mca_coll_mpath_pvars_begin(mca_coll_mpath_module_t *module)
{
    pthread_mutex_lock(&pvar_lock);
    module->counts_next = pvar_modules;
    pvar_modules        = module;
    pthread_mutex_unlock(&pvar_lock);
}

void mca_coll_mpath_pvars_end(mca_coll_mpath_module_t *module)
{
    unsigned long long sums[PVAR_COUNT] = {0};
    mca_coll_mpath_module_t **link      = &pvar_modules;

    pthread_mutex_lock(&pvar_lock);
    while (module != *link) {
        link = &(*link)->counts_next;
    }
    *link = module->counts_next;
    pvars_add_module(module, sums);
    pvars_add(sums);
    pthread_mutex_unlock(&pvar_lock);
}

void mca_coll_mpath_pvars_add_symmetric(mca_coll_mpath_module_t *module)
{
    unsigned long long now[PVAR_COUNT] = {0}, before[PVAR_COUNT] = {0};
    mpath_coll_counters_t counters;
    int i;

    if (NULL == module->symmetric) {
        return;
    }
    mpath_symmetric_counters(module->symmetric, &counters);
    pvars_add_counters(&counters, now);
    pvars_add_counters(&module->symmetric_counted, before);
    for (i = 0; i < PVAR_LEFT; i++) {
        now[i] -= before[i];
    }
    pvars_add(now);
    module->symmetric_counted = counters;
}
