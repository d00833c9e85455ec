/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info: the GPUs of this machine, how they are linked and what their copies reach. */
#include "tools/info/gpus.h"

#include "topo/discover/gpu_probe.h"
#include "util/cache.h"
#include "rail/gpu_memory.h"
#include "util/log.h"
#include "util/number.h"

#include <limits.h>
#include <stdio.h>

static mpath_gpu_survey_t survey;
static int measured;

mpath_status_t info_find_gpus(mpath_machine_t *machine, mpath_node_gpus_t *gpus_p)
{
    mpath_gpu_probe_t probe;
    mpath_status_t status = mpath_gpu_driver_start();

    if ((status != MPATH_OK) && (status != MPATH_ERR_UNSUPPORTED)) {
        return status;
    }
    status = mpath_gpu_survey(&survey);
    if (status != MPATH_OK) {
        return status;
    }
    for (int g = 0; g < survey.num_gpus; g++) {
        mpath_gpu_find_nics(&survey.gpus[g], machine);
    }
    mpath_gpu_survey_model(&survey, machine, gpus_p);
    measured = (survey.num_gpus > 0) && (mpath_gpu_probe_load(&survey, &probe) == MPATH_OK);
    if (measured) {
        mpath_gpu_probe_apply(&probe, machine, gpus_p);
    }
    return MPATH_OK;
}

static double gbps(uint64_t rate_bps)
{
    return (double)rate_bps / 1e9;
}

static void show_rate(const char *before, uint64_t rate_bps)
{
    char text[MPATH_NUMBER_SHOWN];

    mpath_number_show((double)rate_bps, "B/s", text);
    printf("%s%s", before, text);
}

static void show_links(const mpath_gpu_facts_t *facts)
{
    int p, printed = 0;

    if (facts->links_to_switch > 0) {
        printf("%d to a switch", facts->links_to_switch);
        printed = 1;
    }
    for (p = 0; p < survey.num_gpus; p++) {
        if (facts->links_to[p] > 0) {
            printf("%s%d to gpu%d", printed ? ", " : "", facts->links_to[p], p);
            printed = 1;
        }
    }
    if (facts->links_elsewhere > 0) {
        printf("%s%d to what is not seen from here", printed ? ", " : "", facts->links_elsewhere);
        printed = 1;
    }
    if (!printed) {
        printf("none");
    } else if (facts->link_bps > 0) {
        show_rate(", ", facts->link_bps);
        printf(" each");
    }
}

static void show_gpu(int g, const mpath_node_gpus_t *gpus)
{
    const mpath_gpu_facts_t *facts = &survey.gpus[g];
    const mpath_gpu_t *gpu         = &gpus->gpus[g];
    char uuid[MPATH_GPU_UUID_TEXT];
    int p;

    mpath_gpu_uuid_text(&facts->info.uuid, uuid);
    printf("    gpu%d %s, %s, %s", g, facts->info.name, facts->info.pci, uuid);
    if (facts->info.numa >= 0) {
        printf(", NUMA %d", facts->info.numa);
    }
    printf("\n         %.0f GiB, %d multiprocessors, compute capability %d.%d, %d copy engines, PCIe ",
           (double)facts->info.memory_bytes / (1 << 30), facts->info.multiprocessors, facts->info.capability / 10,
           facts->info.capability % 10, facts->info.copy_engines);
    if ((facts->pcie_generation > 0) && (facts->pcie_width > 0)) {
        printf("%d x%d", facts->pcie_generation, facts->pcie_width);
    } else {
        printf("unknown");
    }
    printf("; NVLinks: ");
    show_links(facts);
    show_rate("\n         to the host ", gpu->pcie_up_bps);
    show_rate(", from it ", gpu->pcie_down_bps);
    if (gpus->link == MPATH_GPU_LINK_SWITCH) {
        show_rate(", each way of its port ", gpu->egress_bps);
    }
    for (p = 0; (p < gpus->num_gpus) && (gpus->link == MPATH_GPU_LINK_MESH); p++) {
        if (gpus->nvlink_bps[g][p] > 0) {
            printf(", to gpu%d", p);
            show_rate(" ", gpus->nvlink_bps[g][p]);
        }
    }
    printf("\n");
}

void info_show_gpus(const mpath_node_gpus_t *gpus)
{
    static const char *const kinds[] = {[MPATH_GPU_LINK_NONE]   = "no peer access: only through host memory",
                                        [MPATH_GPU_LINK_PCIE]   = "peer access over PCIe",
                                        [MPATH_GPU_LINK_MESH]   = "direct NVLinks",
                                        [MPATH_GPU_LINK_SWITCH] = "NVSwitch"};
    char name[MPATH_GPU_PROBE_NAME], path[PATH_MAX];
    int g;

    if (gpus->num_gpus == 0) {
        return;
    }
    printf("    %d GPU%s, CUDA driver %d.%d%s: %s\n", gpus->num_gpus, (gpus->num_gpus == 1) ? "" : "s",
           survey.driver_version / 1000, survey.driver_version % 1000 / 10, survey.has_nvml ? "" : ", no NVML",
           (gpus->num_gpus == 1) ? "alone" : kinds[gpus->link]);
    for (g = 0; g < gpus->num_gpus; g++) {
        show_gpu(g, gpus);
    }
    mpath_gpu_probe_name(&survey, name);
    if (measured && (mpath_cache_path(name, path, sizeof(path)) == MPATH_OK)) {
        printf("    these rates were measured: %s\n", path);
    } else {
        printf("    these rates follow from the links; mpath_info --probe measures them\n");
    }
    printf("    between nodes: through %s\n", mpath_rail_gpu_text(mpath_rail_gpu_find("/sys")));
}

/* --- the probe --------------------------------------------------------------------------------------------------- */

static void show_pairs(const mpath_gpu_probe_t *probe)
{
    int from, to;

    printf("  copy engine, one pair at a time, GB/s\n    from \\ to");
    for (to = 0; to < probe->num_gpus; to++) {
        printf(" %7d", to);
    }
    for (from = 0; from < probe->num_gpus; from++) {
        printf("\n    %9d", from);
        for (to = 0; to < probe->num_gpus; to++) {
            if (probe->copy_bps[from][to] > 0) {
                printf(" %7.1f", gbps(probe->copy_bps[from][to]));
            } else {
                printf(" %7s", "-");
            }
        }
    }
    printf("\n");
}

static void show_probe(const mpath_gpu_probe_t *probe)
{
    int g;

    printf("probe of %d GPU%s\n", probe->num_gpus, (probe->num_gpus == 1) ? "" : "s");
    printf(
        "  GB/s   to host  from host  each way at once  from host beside the next  each way with the next  kernel to "
        "the next\n");
    for (g = 0; g < probe->num_gpus; g++) {
        printf("  gpu%-3d %7.1f %10.1f %17.1f %26.1f %23.1f %19.1f\n", g, gbps(probe->up_bps[g]),
               gbps(probe->down_bps[g]), gbps(probe->both_bps[g]), gbps(probe->beside_bps[g]),
               gbps(probe->each_way_bps[g]), gbps(probe->kernel_bps[g]));
    }
    if (probe->num_gpus > 1) {
        show_pairs(probe);
        printf("  ring of all, each %.1f GB/s\n", gbps(probe->ring_bps));
    }
    printf("  all GPUs to and from the host at once, each direction %.1f GB/s together\n", gbps(probe->host_bps));
    if (probe->num_gpus > 1) {
        printf("  4 KiB to the next GPU: copy engine %.1f us", probe->copy_latency_ns / 1e3);
        if (probe->kernel_latency_ns > 0) {
            printf(", kernel %.1f us", probe->kernel_latency_ns / 1e3);
        }
        printf("\n");
    }
}

mpath_status_t info_probe(void)
{
    char name[MPATH_GPU_PROBE_NAME], path[PATH_MAX];
    mpath_status_t status = mpath_gpu_driver_start();
    mpath_gpu_probe_t probe;

    if (status == MPATH_ERR_UNSUPPORTED) {
        mpath_error("probe: no CUDA driver or no GPU here; nothing is measured");
        return status;
    }
    if (status == MPATH_OK) {
        status = mpath_gpu_survey(&survey);
    }
    if (status == MPATH_OK) {
        status = mpath_gpu_probe_run(&survey, 0, &probe);
    }
    if (status != MPATH_OK) {
        return status;
    }
    show_probe(&probe);
    status = mpath_gpu_probe_save(&survey, &probe);
    mpath_gpu_probe_name(&survey, name);
    if ((status == MPATH_OK) && (mpath_cache_path(name, path, sizeof(path)) == MPATH_OK)) {
        printf("kept in %s\n", path);
    }
    return status;
}
