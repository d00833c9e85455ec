/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath's own format, read strictly: an element or attribute it does not know is a mistake of the writer. */
#include "topo/beside.h"
#include "topo/file/xml_internal.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define FORMAT_VERSION 1
#define MAX_FILE_NODES 65536
#define MAX_FILE_RANKS (1 << 20)
#define MAX_NUMA 1024
#define MAX_DOMAINS 65536

/* Every attribute of the node is in the NULL-terminated list. Errors are logged. */
static mpath_status_t check_attributes(const char *name, const xmlNode *node, const char *const *known)
{
    const xmlAttr *attribute;
    int i;

    for (attribute = node->properties; attribute != NULL; attribute = attribute->next) {
        for (i = 0; (known[i] != NULL) && (strcmp(known[i], (const char *)attribute->name) != 0); i++) {
        }
        if (known[i] == NULL) {
            mpath_xml_error(name, node, "%s has no attribute '%.40s'", (const char *)node->name,
                            (const char *)attribute->name);
            return MPATH_ERR_PARAM;
        }
    }
    return MPATH_OK;
}

/* The index of an attribute's value in a NULL-terminated list; the first is the default. Errors are logged. */
static mpath_status_t read_choice(const char *name, xmlNode *node, const char *attribute, const char *const *values,
                                  int *index_p)
{
    mpath_status_t status;
    char text[32], list[128] = "";
    int i;

    status = mpath_xml_text(name, node, attribute, values[0], text, sizeof(text));
    if (status != MPATH_OK) {
        return status;
    }
    for (i = 0; values[i] != NULL; i++) {
        if (strcmp(values[i], text) == 0) {
            *index_p = i;
            return MPATH_OK;
        }
    }
    for (i = 0; values[i] != NULL; i++) {
        strncat(list, (i == 0) ? "" : (values[i + 1] != NULL) ? ", " : " or ", sizeof(list) - strlen(list) - 1);
        strncat(list, values[i], sizeof(list) - strlen(list) - 1);
    }
    mpath_xml_error(name, node, "%s %s '%s' must be %s", (const char *)node->name, attribute, text, list);
    return MPATH_ERR_PARAM;
}

static mpath_status_t check_nic_unique(const char *name, const xmlNode *node, const mpath_machine_t *machine,
                                       const mpath_nic_t *nic)
{
    int i;

    for (i = 0; i < machine->num_nics; i++) {
        if (machine->nics[i].rail == nic->rail) {
            mpath_xml_error(name, node, "nic rail '%d' is taken by nic '%s' of this node", nic->rail,
                            machine->nics[i].name);
            return MPATH_ERR_PARAM;
        }
    }
    return MPATH_OK;
}

static mpath_status_t read_nic(const char *name, xmlNode *node, mpath_machine_t *machine)
{
    static const char *const known[] = {"name", "rail", "rate-bps", "numa", "up", NULL};
    int64_t rail = machine->num_nics, rate_bps = 0, numa = -1, up = 1;
    mpath_nic_t nic = {0};
    mpath_status_t status;

    if (machine->num_nics == MPATH_MAX_NICS) {
        mpath_xml_error(name, node, "more than %d nics on a node", MPATH_MAX_NICS);
        return MPATH_ERR_PARAM;
    }
    if (((status = check_attributes(name, node, known)) != MPATH_OK) ||
        ((status = mpath_xml_text(name, node, "name", NULL, nic.name, sizeof(nic.name))) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "rail", 0, 0, MPATH_MAX_RAILS - 1, &rail)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "rate-bps", 1, 1, MPATH_MAX_RATE_BPS, &rate_bps)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "numa", 0, -1, MAX_NUMA - 1, &numa)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "up", 0, 0, 1, &up)) != MPATH_OK)) {
        return status;
    }
    nic.rail     = (int16_t)rail;
    nic.rate_bps = (uint64_t)rate_bps;
    nic.numa     = (int16_t)numa;
    nic.up       = (uint8_t)up;
    status       = check_nic_unique(name, node, machine, &nic);
    if (status == MPATH_OK) {
        machine->nics[machine->num_nics++] = nic;
    }
    return status;
}

/* The GPUs of a node: <gpu> and <nvlink>, and what the node says of them all. */

/* "0 2": numbers of NICs, as a mask. */
static mpath_status_t read_nics(const char *name, xmlNode *node, const mpath_machine_t *machine, uint64_t *nics_p)
{
    char text[256], *next = text, *end;
    mpath_status_t status;
    uint64_t nics = 0;
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
        nics |= 1ull << nic;
        next = end;
    }
    *nics_p = nics;
    return MPATH_OK;
}

static int tells_nics(xmlNode *node)
{
    char *text = mpath_xml_attribute(node, "nics");
    int tells  = text != NULL;

    xmlFree(text);
    return tells;
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
    if (((status = check_attributes(name, node, known)) != MPATH_OK) ||
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

    if (((status = check_attributes(name, node, known)) != MPATH_OK) ||
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

static mpath_status_t read_gpus_head(const char *name, xmlNode *node, mpath_node_gpus_t *gpus)
{
    int64_t domain = -1, uplink = 0;
    mpath_status_t status;
    int link;

    if (((status = read_choice(name, node, "gpu-link", mpath_gpu_link_names, &link)) != MPATH_OK) ||
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
/* What a node says of its GPUs; its NICs have been read. */
static mpath_status_t read_gpus(const char *name, xmlNode *node, const mpath_machine_t *machine,
                                mpath_node_gpus_t *gpus)
{
    mpath_status_t status = read_gpus_head(name, node, gpus);
    uint32_t unsaid       = 0; /* GPUs of which the file does not say what is beside them: as in a job */
    xmlNode *child;

    for (child = mpath_xml_element(node->children); (child != NULL) && (status == MPATH_OK);
         child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "gpu")) {
            status = read_gpu(name, child, machine, gpus);
            unsaid |= ((status == MPATH_OK) && !tells_nics(child)) ? 1u << (gpus->num_gpus - 1) : 0;
        }
    }
    for (; unsaid != 0; unsaid &= unsaid - 1) {
        int gpu = __builtin_ctz(unsaid);

        gpus->gpus[gpu].nics = mpath_beside_nics(machine, NULL, -1, gpu, gpus->num_gpus);
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

static mpath_status_t read_node(const char *name, xmlNode *node, mpath_machine_t *machine, mpath_node_gpus_t *gpus)
{
    static const char *const known[] = {"host",       "numa", "host-memory-bps", "gpu-link", "nvlink-domain",
                                        "uplink-bps", NULL};
    int64_t numa = 1, host_memory_bps = 0;
    mpath_status_t status;
    xmlNode *child;

    if (((status = check_attributes(name, node, known)) != MPATH_OK) ||
        ((status = mpath_xml_text(name, node, "host", "", machine->host, sizeof(machine->host))) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "numa", 0, 1, MAX_NUMA, &numa)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "host-memory-bps", 1, 1, MPATH_MAX_RATE_BPS, &host_memory_bps)) !=
         MPATH_OK)) {
        return status;
    }
    machine->num_numa        = (int32_t)numa;
    machine->host_memory_bps = (uint64_t)host_memory_bps;
    for (child = mpath_xml_element(node->children); child != NULL; child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "nic")) {
            status = read_nic(name, child, machine);
            if (status != MPATH_OK) {
                return status;
            }
        } else if (!mpath_xml_is(child, "gpu") && !mpath_xml_is(child, "nvlink")) {
            mpath_xml_error(name, child, "element '%.40s' inside node must be nic, gpu or nvlink",
                            (const char *)child->name);
            return MPATH_ERR_PARAM;
        }
    }
    return read_gpus(name, node, machine, gpus);
}

#define NIC_UNSAID (-2)

static mpath_status_t read_rank(const char *name, xmlNode *node, const mpath_topo_file_t *file, mpath_place_t *place)
{
    static const char *const known[] = {"node", "nic", "gpu", NULL};
    int64_t index = 0, nic = NIC_UNSAID, gpu = -1;
    mpath_status_t status;
    int num_gpus;

    if (((status = check_attributes(name, node, known)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "node", 1, 0, file->num_nodes - 1, &index)) != MPATH_OK)) {
        return status;
    }
    num_gpus = file->gpus[index].num_gpus; /* of a node without any a GPU's number says nothing */
    if (((status = mpath_xml_number(name, node, "nic", 0, -1, file->machines[index].num_nics - 1, &nic)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "gpu", 0, -1, (num_gpus > 0) ? num_gpus - 1 : INT16_MAX, &gpu)) !=
         MPATH_OK)) {
        return status;
    }
    *place = (mpath_place_t){.node = (int32_t)index, .nic = (int8_t)nic, .gpu = (int16_t)gpu};
    return MPATH_OK;
}

/* Counts the children of both kinds; any other is an error. */
static mpath_status_t count_children(const char *name, xmlNode *root, int *nodes_p, int *ranks_p)
{
    int nodes = 0, ranks = 0;
    xmlNode *child;

    for (child = mpath_xml_element(root->children); child != NULL; child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "node")) {
            nodes++;
        } else if (mpath_xml_is(child, "rank")) {
            ranks++;
        } else {
            mpath_xml_error(name, child, "element '%.40s' inside mpath must be node or rank",
                            (const char *)child->name);
            return MPATH_ERR_PARAM;
        }
        if ((nodes > MAX_FILE_NODES) || (ranks > MAX_FILE_RANKS)) {
            mpath_xml_error(name, child, "more than %d nodes or %d ranks", MAX_FILE_NODES, MAX_FILE_RANKS);
            return MPATH_ERR_PARAM;
        }
    }
    if (nodes == 0) {
        mpath_xml_error(name, root, "mpath without a node");
        return MPATH_ERR_PARAM;
    }
    *nodes_p = nodes;
    *ranks_p = ranks;
    return MPATH_OK;
}

static mpath_status_t read_head(const char *name, xmlNode *root, mpath_topo_params_t *params)
{
    static const char *const known[]   = {"version", "access", "fabric", "emulated", NULL};
    static const char *const access[]  = {"all", "affine", NULL};
    static const char *const fabrics[] = {"rails", "spine", NULL};
    int access_index, fabric_index, emulated_index;
    mpath_status_t status;
    int64_t version;

    if (((status = check_attributes(name, root, known)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, root, "version", 1, FORMAT_VERSION, FORMAT_VERSION, &version)) != MPATH_OK) ||
        ((status = read_choice(name, root, "access", access, &access_index)) != MPATH_OK) ||
        ((status = read_choice(name, root, "fabric", fabrics, &fabric_index)) != MPATH_OK) ||
        ((status = read_choice(name, root, "emulated", mpath_emulation_names, &emulated_index)) != MPATH_OK)) {
        return status;
    }
    params->access   = (access_index == 0) ? MPATH_REACH_ALL : MPATH_REACH_AFFINE;
    params->fabric   = (fabric_index == 0) ? 0 : MPATH_FABRIC_SPINE;
    params->emulated = (mpath_emulation_t)emulated_index;
    return MPATH_OK;
}

/* The host name of each node is its own: ports are known by it. */
static mpath_status_t check_emulated_node(const char *name, xmlNode *node, const mpath_topo_file_t *file, int index)
{
    int i;

    for (i = 0; i < index; i++) {
        if (strcmp(file->machines[i].host, file->machines[index].host) == 0) {
            mpath_xml_error(name, node,
                            "node host '%s' is taken by node %d, and the nodes of an emulated cluster are "
                            "known by theirs",
                            file->machines[index].host, i);
            return MPATH_ERR_PARAM;
        }
    }
    return MPATH_OK;
}

static mpath_status_t check_emulated_rank(const char *name, xmlNode *node, const mpath_topo_file_t *file,
                                          const mpath_place_t *place)
{
    if ((file->params.emulated == MPATH_EMULATED_COPIES) &&
        ((place->gpu < 0) || (file->gpus[place->node].num_gpus == 0))) {
        mpath_xml_error(name, node, "rank without a gpu of its node, which emulated '%s' needs",
                        mpath_emulation_names[file->params.emulated]);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

/* Nodes first, wherever they stand: ranks refer to them. */
static mpath_status_t read_children(const char *name, xmlNode *root, mpath_topo_file_t *file)
{
    mpath_status_t status;
    xmlNode *child;
    int i = 0;

    for (child = mpath_xml_element(root->children); child != NULL; child = mpath_xml_element(child->next)) {
        if (!mpath_xml_is(child, "node")) {
            continue;
        }
        status = read_node(name, child, &file->machines[i], &file->gpus[i]);
        if ((status == MPATH_OK) && (file->params.emulated != MPATH_EMULATED_NO)) {
            status = check_emulated_node(name, child, file, i);
        }
        if (status != MPATH_OK) {
            return status;
        }
        i++;
    }
    i = 0;
    for (child = mpath_xml_element(root->children); child != NULL; child = mpath_xml_element(child->next)) {
        if (!mpath_xml_is(child, "rank")) {
            continue;
        }
        status = read_rank(name, child, file, &file->places[i]);
        if (status == MPATH_OK) {
            status = check_emulated_rank(name, child, file, &file->places[i++]);
        }
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

/* Ranks of which the file does not say their NIC have it as a job deals them. */
static mpath_status_t deal_nics(mpath_topo_file_t *file)
{
    mpath_place_t *dealt = malloc(((size_t)file->num_ranks + 1) * sizeof(*dealt));
    mpath_status_t status;
    int i;

    if (dealt == NULL) {
        mpath_error("topology: no memory for %d ranks; the file is not used", file->num_ranks);
        return MPATH_ERR_NO_MEMORY;
    }
    for (i = 0; i < file->num_ranks; i++) {
        dealt[i]     = file->places[i];
        dealt[i].nic = (dealt[i].nic == NIC_UNSAID) ? -1 : dealt[i].nic;
    }
    status = mpath_beside_deal(file->machines, file->gpus, file->num_nodes, dealt, file->num_ranks);
    for (i = 0; i < file->num_ranks; i++) {
        file->places[i].nic = (file->places[i].nic == NIC_UNSAID) ? dealt[i].nic : file->places[i].nic;
    }
    free(dealt);
    return status;
}

static int has_gpus(const mpath_topo_file_t *file)
{
    int i;

    for (i = 0; i < file->num_nodes; i++) {
        if ((file->gpus[i].num_gpus > 0) || (file->gpus[i].uplink_bps > 0)) {
            return 1;
        }
    }
    return 0;
}

mpath_status_t mpath_xml_read_mpath(const char *name, xmlNode *root, mpath_topo_file_t *file)
{
    mpath_status_t status;

    status             = read_head(name, root, &file->params);
    file->tells_access = 1;
    if (status != MPATH_OK) {
        return status;
    }
    status = count_children(name, root, &file->num_nodes, &file->num_ranks);
    if (status != MPATH_OK) {
        return status;
    }
    if ((file->params.emulated != MPATH_EMULATED_NO) && (file->num_ranks == 0)) {
        mpath_xml_error(name, root, "mpath emulated '%s' without a rank: which ranks form a node is to be said",
                        mpath_emulation_names[file->params.emulated]);
        return MPATH_ERR_PARAM;
    }
    file->machines = calloc((size_t)file->num_nodes, sizeof(*file->machines));
    file->gpus     = calloc((size_t)file->num_nodes, sizeof(*file->gpus));
    file->places   = calloc((size_t)file->num_ranks + 1, sizeof(*file->places));
    if ((file->machines == NULL) || (file->gpus == NULL) || (file->places == NULL)) {
        mpath_error("topology file %s: no memory for %d nodes and %d ranks; the file is not used", name,
                    file->num_nodes, file->num_ranks);
        return MPATH_ERR_NO_MEMORY;
    }
    status = read_children(name, root, file);
    if (status == MPATH_OK) {
        status = deal_nics(file);
    }
    if ((status == MPATH_OK) && !has_gpus(file)) {
        free(file->gpus);
        file->gpus = NULL;
    }
    return status;
}
