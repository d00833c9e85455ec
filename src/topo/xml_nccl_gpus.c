/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUs of NCCL's topology XML: <pci busid link_speed link_width><gpu dev sm><nvlink target count tclass>. Rates follow
 * NCCL's constants (NVIDIA/nccl src/graph/topo.h, topo.cc): an NVLink by the GPU's generation, PCIe by lanes and speed.
 * The target of a link is told by its PCI class: 0x068000 an NVSwitch, 0x03.... another GPU; links to CPUs are skipped.
 */
#include "topo/xml_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_LINKS 64

typedef struct nccl_gpu {
    xmlNode *node;
    int64_t dev;
} nccl_gpu_t;

typedef struct gpu_reader {
    const char *name;
    const mpath_machine_t *machine;
    xmlNode *const *nets; /* of the machine's NICs */
    nccl_gpu_t found[MPATH_MAX_GPUS];
    mpath_node_gpus_t *gpus;
} gpu_reader_t;

/* Bytes per second of one NVLink, each direction. */
static uint64_t nvlink_rate(int64_t sm)
{
    if (sm >= 100) {
        return 40100000000ull;
    }
    if (sm >= 90) {
        return 20600000000ull;
    }
    if (sm == 86) {
        return 12000000000ull;
    }
    return ((sm >= 60) && (sm < 70)) ? 18000000000ull : 20000000000ull;
}

/* Bytes per second of a PCIe lane, each direction; of "8 GT/s" where the file does not tell. */
static uint64_t lane_rate(const char *link_speed)
{
    static const struct {
        double gt_per_s;
        uint64_t rate_bps;
    } speeds[]   = {{2.5, 187500000}, {5, 375000000},   {8, 750000000},
                    {16, 1500000000}, {32, 3000000000}, {64, 6000000000}};
    double speed = (link_speed != NULL) ? strtod(link_speed, NULL) : 8;
    size_t i;

    for (i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
        if (speed == speeds[i].gt_per_s) {
            return speeds[i].rate_bps;
        }
    }
    return 750000000;
}

/* Finds the GPUs below a node, in order of dev. Depth is limited by libxml2 (256). */
static mpath_status_t find_gpus(gpu_reader_t *reader, xmlNode *parent)
{
    mpath_node_gpus_t *gpus = reader->gpus;
    mpath_status_t status;
    xmlNode *child;
    int64_t dev;
    int at;

    for (child = mpath_xml_element(parent->children); child != NULL; child = mpath_xml_element(child->next)) {
        if (!mpath_xml_is(child, "gpu")) {
            status = find_gpus(reader, child);
            if (status != MPATH_OK) {
                return status;
            }
            continue;
        }
        if (gpus->num_gpus == MPATH_MAX_GPUS) {
            mpath_xml_error(reader->name, child, "more than %d gpus", MPATH_MAX_GPUS);
            return MPATH_ERR_PARAM;
        }
        dev    = gpus->num_gpus;
        status = mpath_xml_number(reader->name, child, "dev", 0, 0, INT32_MAX, &dev);
        if (status != MPATH_OK) {
            return status;
        }
        for (at = gpus->num_gpus; (at > 0) && (reader->found[at - 1].dev > dev); at--) {
            reader->found[at] = reader->found[at - 1];
        }
        reader->found[at] = (nccl_gpu_t){.node = child, .dev = dev};
        gpus->num_gpus++;
    }
    return MPATH_OK;
}

static int is_below(const xmlNode *node, const xmlNode *ancestor)
{
    while ((node != NULL) && (node != ancestor)) {
        node = node->parent;
    }
    return node != NULL;
}

/* The NICs below the nearest PCIe bridge above the GPU that has any, else those of its CPU. */
static uint32_t nics_beside(const gpu_reader_t *reader, const xmlNode *gpu)
{
    const xmlNode *above;
    uint32_t nics = 0;
    int nic;

    for (above = gpu->parent; (above != NULL) && (nics == 0) && !mpath_xml_is(above, "system"); above = above->parent) {
        for (nic = 0; nic < reader->machine->num_nics; nic++) {
            nics |= is_below(reader->nets[nic], above) ? 1u << nic : 0;
        }
    }
    return nics;
}

static mpath_status_t read_pcie(const gpu_reader_t *reader, xmlNode *pci, mpath_gpu_t *gpu)
{
    int64_t width = 0;
    mpath_status_t status;
    char *speed;

    status = mpath_xml_number(reader->name, pci, "link_width", 0, 0, 32, &width);
    if (status != MPATH_OK) {
        return status;
    }
    speed              = mpath_xml_attribute(pci, "link_speed");
    gpu->pcie_up_bps   = lane_rate(speed) * ((width > 0) ? (uint64_t)width : 16);
    gpu->pcie_down_bps = gpu->pcie_up_bps;
    xmlFree(speed);
    return MPATH_OK;
}

/* The GPU whose PCI device has this bus id; -1: none. */
static int gpu_of_busid(const gpu_reader_t *reader, const char *target)
{
    char *busid;
    int g, match;

    for (g = 0; g < reader->gpus->num_gpus; g++) {
        busid = mpath_xml_attribute(reader->found[g].node->parent, "busid");
        match = (busid != NULL) && (strcasecmp(busid, target) == 0);
        xmlFree(busid);
        if (match) {
            return g;
        }
    }
    return -1;
}

static mpath_status_t read_nvlink(gpu_reader_t *reader, xmlNode *node, int g, uint64_t link_bps)
{
    mpath_node_gpus_t *gpus = reader->gpus;
    char class[32], target[64];
    uint64_t *rate_bps;
    mpath_status_t status;
    int64_t count = 1;
    int peer;

    if (((status = mpath_xml_text(reader->name, node, "tclass", "", class, sizeof(class))) != MPATH_OK) ||
        ((status = mpath_xml_text(reader->name, node, "target", "", target, sizeof(target))) != MPATH_OK) ||
        ((status = mpath_xml_number(reader->name, node, "count", 0, 1, MAX_LINKS, &count)) != MPATH_OK)) {
        return status;
    }
    if (strcmp(class, "0x068000") == 0) {
        rate_bps = &gpus->gpus[g].egress_bps;
    } else if (strncmp(class, "0x03", 4) == 0) {
        peer = gpu_of_busid(reader, target);
        if ((peer < 0) || (peer == g)) {
            return MPATH_OK; /* a GPU that the job does not have: NCCL leaves such out of the file */
        }
        rate_bps = &gpus->nvlink_bps[g][peer];
    } else {
        return MPATH_OK;
    }
    *rate_bps += (uint64_t)count * link_bps;
    if (*rate_bps > MPATH_MAX_RATE_BPS) {
        mpath_xml_error(reader->name, node, "the nvlinks of gpu %d are more than %lld bytes/s", g, MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

static mpath_status_t read_gpu(gpu_reader_t *reader, int g)
{
    mpath_gpu_t *gpu = &reader->gpus->gpus[g];
    xmlNode *node    = reader->found[g].node, *child;
    mpath_status_t status;
    int64_t sm = 80;

    if (((status = read_pcie(reader, node->parent, gpu)) != MPATH_OK) ||
        ((status = mpath_xml_number(reader->name, node, "sm", 0, 0, INT16_MAX, &sm)) != MPATH_OK)) {
        return status;
    }
    gpu->nics = nics_beside(reader, node);
    for (child = mpath_xml_element(node->children); child != NULL; child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "nvlink")) {
            status = read_nvlink(reader, child, g, nvlink_rate(sm));
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    gpu->ingress_bps = gpu->egress_bps;
    return MPATH_OK;
}

mpath_status_t mpath_xml_read_nccl_gpus(const char *name, xmlNode *root, const mpath_machine_t *machine,
                                        xmlNode *const *nets, mpath_node_gpus_t *gpus)
{
    gpu_reader_t reader = {.name = name, .machine = machine, .nets = nets, .gpus = gpus};
    mpath_status_t status;
    int g, k, mesh = 0, on_switch = 0;

    gpus->domain = -1;
    status       = find_gpus(&reader, root);
    for (g = 0; (g < gpus->num_gpus) && (status == MPATH_OK); g++) {
        status = read_gpu(&reader, g);
        on_switch |= gpus->gpus[g].egress_bps > 0;
        for (k = 0; k < gpus->num_gpus; k++) {
            mesh |= gpus->nvlink_bps[g][k] > 0;
        }
    }
    if (gpus->num_gpus > 0) {
        gpus->link = on_switch ? MPATH_GPU_LINK_SWITCH : mesh ? MPATH_GPU_LINK_MESH : MPATH_GPU_LINK_PCIE;
    }
    return status;
}
