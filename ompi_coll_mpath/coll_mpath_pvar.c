/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Performance variables coll_mpath_*: sums over the communicators of this process, for MPI_T. Counted when a call ends,
 * so that they outlive the communicators. Of the generic class, because Open MPI lets a counter begin at zero with
 * every new handle: a program that reads them once at its end would learn nothing.
 */
#include "coll_mpath.h"

#include "gpu/usage.h"

#include "opal/mca/base/mca_base_pvar.h"

#include <stdatomic.h>

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
};

static atomic_ullong pvar_sums[PVAR_COUNT];

static int pvar_read(const struct mca_base_pvar_t *pvar, void *value, void *object)
{
    mpath_gpu_usage_t usage;

    (void)object;
    mpath_gpu_usage(&usage); /* counted where it happens, not per call */
    atomic_store(&pvar_sums[PVAR_KERNEL_LAUNCHES], usage.launches);
    atomic_store(&pvar_sums[PVAR_KERNEL_CTAS], usage.ctas);
    atomic_store(&pvar_sums[PVAR_DEVICE_BYTES], usage.memory_bytes);
    *(unsigned long long *)value = atomic_load((atomic_ullong *)pvar->ctx);
    return OPAL_SUCCESS;
}

int mca_coll_mpath_pvars_register(void)
{
    int i, rc;

    for (i = 0; i < PVAR_COUNT; i++) {
        rc = mca_base_component_pvar_register(
            &mca_coll_mpath_component.super.collm_version, pvar_table[i].name, pvar_table[i].help, OPAL_INFO_LVL_4,
            MCA_BASE_PVAR_CLASS_GENERIC, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
            MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, pvar_read, NULL, NULL, &pvar_sums[i]);
        if (0 > rc) {
            return rc;
        }
    }
    return OMPI_SUCCESS;
}

/* Most of them stay as they are in a call, and an addition that other threads may see takes as long as a small call does. */
static inline void pvar_add(int pvar, uint64_t more)
{
    if (0 != more) {
        atomic_fetch_add_explicit(&pvar_sums[pvar], more, memory_order_relaxed);
    }
}

static void pvars_add(const mpath_coll_counters_t *now, mpath_coll_counters_t *old)
{
    pvar_add(PVAR_CALLS, now->calls - old->calls);
    pvar_add(PVAR_DECLINED, now->declined - old->declined);
    pvar_add(PVAR_PLANS, now->plans - old->plans);
    pvar_add(PVAR_PLAN_HITS, now->plan_hits - old->plan_hits);
    pvar_add(PVAR_AGREE_NS, now->agree_ns - old->agree_ns);
    pvar_add(PVAR_PLAN_NS, now->plan_ns - old->plan_ns);
    pvar_add(PVAR_MOVE_NS, now->move_ns - old->move_ns);
    pvar_add(PVAR_RELAYED_BYTES, now->moved.forwarded_bytes - old->moved.forwarded_bytes +
                                     now->relay.moved.forwarded_bytes - old->relay.moved.forwarded_bytes);
    pvar_add(PVAR_KERNEL_BYTES, now->gpu.kernel_bytes - old->gpu.kernel_bytes);
    pvar_add(PVAR_ENGINE_BYTES,
             now->gpu.engine_bytes - old->gpu.engine_bytes + now->relay.moved.sent_bytes - old->relay.moved.sent_bytes);
    pvar_add(PVAR_STAGED_BYTES, now->gpu.staged_bytes - old->gpu.staged_bytes + now->relay.moved.staged_bytes -
                                    old->relay.moved.staged_bytes);
    pvar_add(PVAR_EAGER_CALLS, now->gpu.eager - old->gpu.eager);
    pvar_add(PVAR_YIELDS, now->relay.moved.yields - old->relay.moved.yields);
    pvar_add(PVAR_RECEIVE_YIELDS, now->relay.moved.receive_yields - old->relay.moved.receive_yields);
    *old = *now;
}

void mca_coll_mpath_pvars_started(void)
{
    atomic_fetch_add(&pvar_sums[PVAR_STARTED], 1);
}

void mca_coll_mpath_pvars_slice(void)
{
    atomic_fetch_add(&pvar_sums[PVAR_SLICES], 1);
}

void mca_coll_mpath_pvars_add(mca_coll_mpath_module_t *module)
{
    mpath_coll_counters_t now;

    mpath_coll_counters(module->coll, &now);
    pvars_add(&now, &module->counted);
}

void mca_coll_mpath_pvars_add_passed(mca_coll_mpath_module_t *module)
{
    pvar_add(PVAR_DECLINED, 1);
    module->counted.declined++;
}

void mca_coll_mpath_pvars_add_symmetric(mca_coll_mpath_module_t *module)
{
    mpath_coll_counters_t now;

    mca_coll_mpath_pvars_add(module);
    mpath_symmetric_counters(module->symmetric, &now);
    pvars_add(&now, &module->symmetric_counted);
}

void mca_coll_mpath_pvars_add_device(mca_coll_mpath_module_t *module)
{
    mpath_coll_counters_t now;

    mpath_symmetric_gpu_counters(module->symmetric_gpu, &now);
    pvars_add(&now, &module->device_counted);
}
