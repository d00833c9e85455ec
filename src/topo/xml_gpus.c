/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPUs of a node in mpath's own format: <gpu> and <nvlink>, and what the node says of them all. */
#include "topo/xml_internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DOMAINS 65536

const char *const mpath_gpu_link_names[] = {"none", "pcie", "mesh", "switch", NULL};

/* "0 2": numbers of NICs, as a mask. */
static mpath_status_t read_nics(const char *name, xmlNode *node, const mpath_machine_t *machine, uint32_t *nics_p)
{
    char text[128], *next = text, *end;
    mpath_status_t status;
    uint32_t nics = 0;
    long nic;

    status = mpath_xml_text(name, node, "nics", "", text, sizeof(text));
    if (status != MPATH_OK) {
        return status;
    }
    while (*(next += strspn(next, " ")) != '\0') {
        nic = (*next >= '0') && (*next <= '9') ? strtol(next, &end, 10) : -1;
        if ((nic < 0) || (nic >= machine->num_nics) || ((*end != ' ') && (*end != '\0'))) {
            mpath_xml_error(name, node, "gpu nics '%.40s' must be numbers of the node's %d nics with spaces between",
                            text, machine->num_nics);
            return MPATH_ERR_PARAM;
        }
        nics |= 1u << nic;
        next = end;
    }
    *nics_p = nics;
    return MPATH_OK;
}

static mpath_status_t read_gpu(const char *name, xmlNode *node, const mpath_machine_t *machine, mpath_node_gpus_t *gpus)
{
    static const char *const known[] = {"pcie-up-bps", "pcie-down-bps", "egress-bps", "ingress-bps", "nics", NULL};
    int64_t up = 0, down = 0, egress = 0, ingress = 0;
    mpath_status_t status;
    mpath_gpu_t *gpu;

    if (gpus->num_gpus == MPATH_MAX_GPUS) {
        mpath_xml_error(name, node, "more than %d gpus on a node", MPATH_MAX_GPUS);
        return MPATH_ERR_PARAM;
    }
    gpu = &gpus->gpus[gpus->num_gpus];
    if (((status = mpath_xml_check_attributes(name, node, known)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "pcie-up-bps", 1, 1, MPATH_MAX_RATE_BPS, &up)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "pcie-down-bps", 1, 1, MPATH_MAX_RATE_BPS, &down)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "egress-bps", 0, 1, MPATH_MAX_RATE_BPS, &egress)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "ingress-bps", 0, 1, MPATH_MAX_RATE_BPS, &ingress)) != MPATH_OK) ||
        ((status = read_nics(name, node, machine, &gpu->nics)) != MPATH_OK)) {
        return status;
    }
    if ((egress > 0) != (ingress > 0)) {
        mpath_xml_error(name, node, "gpu with only one of egress-bps and ingress-bps");
        return MPATH_ERR_PARAM;
    }
    gpu->pcie_up_bps   = (uint64_t)up;
    gpu->pcie_down_bps = (uint64_t)down;
    gpu->egress_bps    = (uint64_t)egress;
    gpu->ingress_bps   = (uint64_t)ingress;
    gpus->num_gpus++;
    return MPATH_OK;
}

static mpath_status_t read_nvlink(const char *name, xmlNode *node, mpath_node_gpus_t *gpus)
{
    static const char *const known[] = {"from", "to", "bps", NULL};
    int64_t from = 0, to = 0, rate_bps = 0;
    mpath_status_t status;

    if (((status = mpath_xml_check_attributes(name, node, known)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "from", 1, 0, gpus->num_gpus - 1, &from)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "to", 1, 0, gpus->num_gpus - 1, &to)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "bps", 1, 1, MPATH_MAX_RATE_BPS, &rate_bps)) != MPATH_OK)) {
        return status;
    }
    if (from == to) {
        mpath_xml_error(name, node, "nvlink from gpu %d to itself", (int)from);
        return MPATH_ERR_PARAM;
    }
    if (gpus->nvlink_bps[from][to] != 0) {
        mpath_xml_error(name, node, "nvlink from gpu %d to gpu %d is there twice", (int)from, (int)to);
        return MPATH_ERR_PARAM;
    }
    gpus->nvlink_bps[from][to] = (uint64_t)rate_bps;
    return MPATH_OK;
}

static mpath_status_t read_head(const char *name, xmlNode *node, mpath_node_gpus_t *gpus)
{
    int64_t domain = -1, uplink = 0;
    mpath_status_t status;
    int link;

    if (((status = mpath_xml_choice(name, node, "gpu-link", mpath_gpu_link_names, &link)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "nvlink-domain", 0, 0, MAX_DOMAINS - 1, &domain)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "uplink-bps", 0, 1, MPATH_MAX_RATE_BPS, &uplink)) != MPATH_OK)) {
        return status;
    }
    if ((domain >= 0) && (link != MPATH_GPU_LINK_SWITCH)) {
        mpath_xml_error(name, node, "node nvlink-domain needs gpu-link 'switch'");
        return MPATH_ERR_PARAM;
    }
    gpus->link       = link;
    gpus->domain     = (int32_t)domain;
    gpus->uplink_bps = (uint64_t)uplink;
    return MPATH_OK;
}

/* Links after GPUs, wherever they stand: they refer to them. */
mpath_status_t mpath_xml_read_gpus(const char *name, xmlNode *node, const mpath_machine_t *machine,
                                   mpath_node_gpus_t *gpus)
{
    mpath_status_t status = read_head(name, node, gpus);
    xmlNode *child;

    for (child = mpath_xml_element(node->children); (child != NULL) && (status == MPATH_OK);
         child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "gpu")) {
            status = read_gpu(name, child, machine, gpus);
        }
    }
    if ((status == MPATH_OK) && (gpus->num_gpus == 0) && (gpus->link != MPATH_GPU_LINK_NONE)) {
        mpath_xml_error(name, node, "node gpu-link without a gpu");
        return MPATH_ERR_PARAM;
    }
    for (child = mpath_xml_element(node->children); (child != NULL) && (status == MPATH_OK);
         child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "nvlink")) {
            status = read_nvlink(name, child, gpus);
        }
    }
    return status;
}
