/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A probe of a machine's GPUs: what copies really reach, each figure the best of a few short tries (a second or two in
 * all on eight GPUs), by `mpath_info --probe`. The result is kept in a file of the cache (util/cache.h) named after the
 * GPUs and the driver, "gpus-<16 hexadecimal digits>.txt". Jobs that use the same GPUs read it; without one, the ranks
 * of the first one measure a part of it together, each with its own GPU (node/rates.h).
 *
 * Rates are bytes per second, one direction; 0: not measured.
 */
#ifndef MPATH_TOPO_DISCOVER_GPU_PROBE_H
#define MPATH_TOPO_DISCOVER_GPU_PROBE_H

#include "topo/discover/gpus.h"

typedef struct mpath_gpu_probe {
    int num_gpus; /* as in the survey, in its order */
    /* copy engines */
    uint64_t up_bps[MPATH_MAX_GPUS], down_bps[MPATH_MAX_GPUS]; /* device to host, host to device, alone */
    uint64_t both_bps[MPATH_MAX_GPUS];                         /* both at once, each; one GPU at a time */
    /*
     * What copies from the host bring a GPU while those from the next GPU come in: what both carry together, less what
     * the latter carry alone; 1: nothing.
     */
    uint64_t beside_bps[MPATH_MAX_GPUS];
    uint64_t copy_bps[MPATH_MAX_GPUS][MPATH_MAX_GPUS]; /* from, to; one pair at a time; MPATH_GPU_LINK_NONE: 0 */
    uint64_t each_way_bps[MPATH_MAX_GPUS];             /* with the next GPU, both ways at once, each */
    uint64_t ring_bps;                                 /* each to the next, all at once, the slowest */
    uint64_t host_bps; /* all device to host and host to device at once, all bytes of the slower direction together */
    /* kernels that write to the next GPU */
    uint64_t kernel_bps[MPATH_MAX_GPUS];
    /* from the call to the host's seeing that 4 KiB are on the next GPU; median */
    uint32_t copy_latency_ns, kernel_latency_ns;
} mpath_gpu_probe_t;

/*
 * Measures. The driver has to run; contexts are made on all GPUs. Errors are logged. `bytes`: of a copy between GPUs,
 * those to the host are a quarter of it; 0: as many as make the start of a copy unimportant.
 */
mpath_status_t mpath_gpu_probe_run(const mpath_gpu_survey_t *survey, uint64_t bytes, mpath_gpu_probe_t *probe_p);

/*
 * Of two copies that are to go on at once and to end together, the bytes of each: the faster one by as much more, and
 * none more than it has now. In pages.
 */
void mpath_gpu_probe_even(uint64_t first_bps, uint64_t second_bps, uint64_t *first_bytes, uint64_t *second_bytes);

/*
 * What a copy of `added_bytes` adds to one of `bytes`, which has alone_bps alone and beside_bps with it, when both end
 * together; 1: nothing.
 */
uint64_t mpath_gpu_probe_added(uint64_t alone_bps, uint64_t beside_bps, uint64_t bytes, uint64_t added_bytes);

/* Name of the file of the cache. `name` has MPATH_GPU_PROBE_NAME bytes. */
#define MPATH_GPU_PROBE_NAME 32
void mpath_gpu_probe_name(const mpath_gpu_survey_t *survey, char *name);

/* Keeps it; errors are logged. */
mpath_status_t mpath_gpu_probe_save(const mpath_gpu_survey_t *survey, const mpath_gpu_probe_t *probe);
/* The same with a name, or an absolute path, that somebody has chosen; NULL or "": the one above. */
mpath_status_t mpath_gpu_probe_save_as(const char *file, const mpath_gpu_survey_t *survey,
                                       const mpath_gpu_probe_t *probe);
/*
 * What was kept for these GPUs and this driver. MPATH_ERR_UNSUPPORTED, silent: nothing; MPATH_ERR_PARAM, logged: the
 * file has an error, and is not used.
 */
mpath_status_t mpath_gpu_probe_load(const mpath_gpu_survey_t *survey, mpath_gpu_probe_t *probe_p);
mpath_status_t mpath_gpu_probe_load_from(const char *file, const mpath_gpu_survey_t *survey,
                                         mpath_gpu_probe_t *probe_p);
/* The same from memory; `name` stands for the file in messages. */
mpath_status_t mpath_gpu_probe_parse(const char *name, const char *text, const mpath_gpu_survey_t *survey,
                                     mpath_gpu_probe_t *probe_p);

/*
 * The figures of a probe for GPUs in another order, or fewer of them: `to` has num_gpus set and everything else zeroed;
 * to_of[g] is the number of g in `from`, -1 where it has none. What is about all GPUs stays only if none is missing.
 */
void mpath_gpu_probe_pick(const mpath_gpu_probe_t *from, const int *to_of, mpath_gpu_probe_t *to);

/*
 * Why GPUs behind a switch cannot be as slow as that, a static text; NULL: they may be. `gpus`: what their links
 * promise.
 */
const char *mpath_gpu_probe_doubt(const mpath_gpu_probe_t *probe, const mpath_node_gpus_t *gpus);

/*
 * Puts measured rates into what the survey gave: PCIe, ports or links, and the host's ceiling for staged bytes into the
 * machine. Links that NVML does not tell, but copies show, become ports of a switch.
 */
void mpath_gpu_probe_apply(const mpath_gpu_probe_t *probe, mpath_machine_t *machine, mpath_node_gpus_t *gpus);

#endif
