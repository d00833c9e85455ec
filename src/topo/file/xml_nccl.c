/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's topology XML (NCCL_TOPO_DUMP_FILE, and the files that clouds hand out as NCCL_TOPO_FILE; written by
 * src/graph/xml.cc of NCCL): <system><cpu numaid host_hash><pci>...<nic><net name dev speed port>. What is taken: the
 * NICs with name, speed (Mbit/s), slot and NUMA node, of which `dev` numbers the rails; and the GPUs.
 *
 * The processes of a job add what each sees, so a file may have a NIC more than once, and, where an NVLink domain is
 * larger than a host, several hosts, which their hashes tell apart.
 */
#include "topo/beside.h"
#include "topo/discover/machine.h"
#include "topo/file/xml_internal.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BPS_PER_MBIT 125000
#define MAX_NUMA 1024
#define MAX_HOSTS 1024
#define HASH_MAX 64
#define CORES_PER_NUMA 16 /* the file does not tell */
#define MAX_LINKS 64
#define MAX_C2C_MBPS 10000000
#define BPS_PER_MBPS 1000000ull
#define MAX_FUSED_NAME (MPATH_MAX_NICS * MPATH_NIC_NAME_MAX)

typedef struct nccl_gpu {
    xmlNode *node;
    int64_t dev;
    int numa;
} nccl_gpu_t;

/* What a file of NCCL says of one host: NICs and GPUs in order of dev, with their elements. */
typedef struct nccl_host {
    char hash[HASH_MAX];
    mpath_machine_t machine;
    int64_t devs[MPATH_MAX_NICS]; /* by NIC, as all below */
    xmlNode *nets[MPATH_MAX_NICS];
    mpath_slot_t slots[MPATH_MAX_NICS];
    int num_gpus;
    nccl_gpu_t gpus[MPATH_MAX_GPUS];
} nccl_host_t;

typedef struct nccl_reader {
    const char *name;
    int num_hosts, capacity;
    nccl_host_t *hosts;
} nccl_reader_t;

/* Where in the file an element is. */
typedef struct nccl_context {
    int host; /* -1: below no CPU */
    int numa;
} nccl_context_t;

/*
 * GPUs of NCCL's topology XML: <pci busid link_speed link_width><gpu dev sm><nvlink target count tclass/><c2c bw
 * count/>. Rates of NVLinks follow NCCL's constants by the GPU's generation (NVIDIA/nccl src/graph/topo.h, topo.cc), a
 * c2c link to the processor has its own, in MB/s. The target of a link is told by its PCI class: 0x068000 an NVSwitch,
 * 0x03.... another GPU; links to CPUs are skipped. GPUs on one PCI device are parts of it and share its links.
 */

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

/* Of a PCI device's link, one direction; 0 where the file does not tell, unless `untold`: then what is usual. */
static mpath_status_t read_pcie(const char *name, xmlNode *pci, int untold, uint64_t *rate_bps_p)
{
    int64_t width = 0;
    mpath_status_t status;
    int generation;
    char *speed;

    status = mpath_xml_number(name, pci, "link_width", 0, 0, 32, &width);
    if (status != MPATH_OK) {
        return status;
    }
    speed       = mpath_xml_attribute(pci, "link_speed");
    generation  = mpath_pcie_generation(speed);
    *rate_bps_p = ((generation > 0) || untold) ? mpath_pcie_bps(generation, (int)width) : 0;
    xmlFree(speed);
    return MPATH_OK;
}

static mpath_status_t add_gpu(const char *name, xmlNode *node, int numa, nccl_host_t *host)
{
    int64_t dev = host->num_gpus;
    mpath_status_t status;
    int at;

    if (host->num_gpus == MPATH_MAX_GPUS) {
        mpath_xml_error(name, node, "more than %d gpus", MPATH_MAX_GPUS);
        return MPATH_ERR_PARAM;
    }
    status = mpath_xml_number(name, node, "dev", 0, 0, INT32_MAX, &dev);
    if (status != MPATH_OK) {
        return status;
    }
    for (at = host->num_gpus; (at > 0) && (host->gpus[at - 1].dev > dev); at--) {
        host->gpus[at] = host->gpus[at - 1];
    }
    host->gpus[at] = (nccl_gpu_t){.node = node, .dev = dev, .numa = numa};
    host->num_gpus++;
    return MPATH_OK;
}

static int is_below(const xmlNode *node, const xmlNode *ancestor)
{
    while ((node != NULL) && (node != ancestor)) {
        node = node->parent;
    }
    return node != NULL;
}

static uint64_t nics_beside(const nccl_host_t *host, int g)
{
    int bridges[MPATH_MAX_NICS] = {0}, nic;
    const xmlNode *above;

    for (above = host->gpus[g].node->parent; above != NULL; above = above->parent) {
        for (nic = 0; mpath_xml_is(above, "pci") && (nic < host->machine.num_nics); nic++) {
            bridges[nic] += is_below(host->nets[nic], above);
        }
    }
    return mpath_beside_nics(&host->machine, bridges, host->gpus[g].numa, g, host->num_gpus);
}

/* GPUs on the PCI device of this one, itself included. */
static int parts_of(const nccl_host_t *host, int g)
{
    int parts = 0;

    for (int k = 0; k < host->num_gpus; k++) {
        parts += host->gpus[k].node->parent == host->gpus[g].node->parent;
    }
    return parts;
}

static mpath_status_t read_c2c(const char *name, xmlNode *node, uint64_t *rate_bps_p)
{
    int64_t mbps = 0, count = 1;
    mpath_status_t status;

    if (((status = mpath_xml_number(name, node, "bw", 1, 1, MAX_C2C_MBPS, &mbps)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "count", 0, 1, MAX_LINKS, &count)) != MPATH_OK)) {
        return status;
    }
    *rate_bps_p += (uint64_t)mbps * (uint64_t)count * BPS_PER_MBPS;
    if (*rate_bps_p > MPATH_MAX_RATE_BPS) {
        mpath_xml_error(name, node, "the c2c links of a gpu are more than %lld bytes/s", MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

/* Its link to the host: that to the processor where it has one, else PCIe. */
static mpath_status_t read_host_link(const char *name, const nccl_host_t *host, int g, mpath_gpu_t *gpu)
{
    xmlNode *node    = host->gpus[g].node, *child;
    uint64_t c2c_bps = 0, rate_bps = mpath_pcie_bps(0, 0);
    mpath_status_t status = MPATH_OK;

    if (mpath_xml_is(node->parent, "pci")) {
        status   = read_pcie(name, node->parent, 1, &rate_bps);
        rate_bps = rate_bps / (uint64_t)parts_of(host, g);
    }
    for (child = mpath_xml_element(node->children); (child != NULL) && (status == MPATH_OK);
         child = mpath_xml_element(child->next)) {
        status = mpath_xml_is(child, "c2c") ? read_c2c(name, child, &c2c_bps) : MPATH_OK;
    }
    gpu->pcie_up_bps = gpu->pcie_down_bps = (c2c_bps > 0) ? c2c_bps : rate_bps;
    return status;
}

static int is_at(const nccl_host_t *host, int g, const char *target)
{
    char *busid = mpath_xml_attribute(host->gpus[g].node->parent, "busid");
    int match   = (busid != NULL) && (strcasecmp(busid, target) == 0);

    xmlFree(busid);
    return match;
}

static mpath_status_t add_rate(const char *name, xmlNode *node, int g, uint64_t rate_bps, uint64_t *sum_bps)
{
    *sum_bps += rate_bps;
    if (*sum_bps > MPATH_MAX_RATE_BPS) {
        mpath_xml_error(name, node, "the nvlinks of gpu %d are more than %lld bytes/s", g, MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

static mpath_status_t read_nvlink(const char *name, const nccl_host_t *host, xmlNode *node, int g, uint64_t link_bps,
                                  mpath_node_gpus_t *gpus)
{
    char class[32], target[64];
    mpath_status_t status;
    int64_t count = 1;
    int peer;

    if (((status = mpath_xml_text(name, node, "tclass", "", class, sizeof(class))) != MPATH_OK) ||
        ((status = mpath_xml_text(name, node, "target", "", target, sizeof(target))) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "count", 0, 1, MAX_LINKS, &count)) != MPATH_OK)) {
        return status;
    }
    link_bps *= (uint64_t)count;
    if (strcmp(class, "0x068000") == 0) {
        return add_rate(name, node, g, link_bps, &gpus->gpus[g].egress_bps);
    }
    /* To a GPU that the job does not have: NCCL leaves such out of the file. */
    for (peer = 0; (strncmp(class, "0x03", 4) == 0) && (peer < host->num_gpus) && (status == MPATH_OK); peer++) {
        if ((peer != g) && is_at(host, peer, target)) {
            status = add_rate(name, node, g, link_bps / (uint64_t)parts_of(host, peer), &gpus->nvlink_bps[g][peer]);
        }
    }
    return status;
}

static mpath_status_t read_gpu(const char *name, const nccl_host_t *host, int g, mpath_node_gpus_t *gpus)
{
    mpath_gpu_t *gpu = &gpus->gpus[g];
    xmlNode *node    = host->gpus[g].node, *child;
    int64_t sm       = 80;
    mpath_status_t status;

    if (((status = read_host_link(name, host, g, gpu)) != MPATH_OK) ||
        ((status = mpath_xml_number(name, node, "sm", 0, 0, INT16_MAX, &sm)) != MPATH_OK)) {
        return status;
    }
    gpu->nics = nics_beside(host, g);
    for (child = mpath_xml_element(node->children); (child != NULL) && (status == MPATH_OK);
         child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "nvlink")) {
            status = read_nvlink(name, host, child, g, nvlink_rate(sm), gpus);
        }
    }
    gpu->ingress_bps = gpu->egress_bps;
    return status;
}

static int is_linked(const mpath_node_gpus_t *gpus, int g)
{
    int linked = 0;

    for (int k = 0; k < gpus->num_gpus; k++) {
        linked |= gpus->nvlink_bps[g][k] > 0;
    }
    return linked;
}

/* The host has all its NICs. */
static mpath_status_t read_gpus(const char *name, const nccl_host_t *host, mpath_node_gpus_t *gpus)
{
    int g, mesh = 0, on_switch = 0;
    mpath_status_t status = MPATH_OK;

    gpus->num_gpus = host->num_gpus;
    gpus->domain   = -1;
    for (g = 0; (g < gpus->num_gpus) && (status == MPATH_OK); g++) {
        status = read_gpu(name, host, g, gpus);
        on_switch |= gpus->gpus[g].egress_bps > 0;
        mesh |= is_linked(gpus, g);
    }
    if (gpus->num_gpus > 0) {
        gpus->link = on_switch ? MPATH_GPU_LINK_SWITCH : mesh ? MPATH_GPU_LINK_MESH : MPATH_GPU_LINK_PCIE;
    }
    if ((gpus->num_gpus > 1) && (gpus->link == MPATH_GPU_LINK_PCIE) && (status == MPATH_OK)) {
        mpath_info_by(
            mpath_log_speaks(),
            "topology file %s: none of its %d GPUs has an NVLink, so they are taken to reach each other by PCIe; "
            "files that clouds hand out leave NVLinks to NCCL, NCCL_TOPO_DUMP_FILE has them",
            name, gpus->num_gpus);
    }
    return status;
}

/* --- hosts ------------------------------------------------------------------------------------------------------- */

static mpath_status_t find_host(nccl_reader_t *reader, xmlNode *node, const char *hash, int *host_p)
{
    nccl_host_t *hosts;
    int host;

    for (host = 0; (host < reader->num_hosts) && (strcmp(reader->hosts[host].hash, hash) != 0); host++) {
    }
    if (host == MAX_HOSTS) {
        mpath_xml_error(reader->name, node, "more than %d hosts", MAX_HOSTS);
        return MPATH_ERR_PARAM;
    }
    if (host == reader->capacity) {
        reader->capacity = (host == 0) ? 1 : 2 * host;
        hosts            = realloc(reader->hosts, (size_t)reader->capacity * sizeof(*hosts));
        if (hosts == NULL) {
            mpath_error("topology file %s: no memory for %d hosts; the file is not used", reader->name,
                        reader->capacity);
            return MPATH_ERR_NO_MEMORY;
        }
        reader->hosts = hosts;
    }
    if (host == reader->num_hosts) {
        memset(&reader->hosts[host], 0, sizeof(reader->hosts[host]));
        memcpy(reader->hosts[host].hash, hash, strlen(hash));
        reader->hosts[host].machine.num_numa = 1;
        reader->num_hosts++;
    }
    *host_p = host;
    return MPATH_OK;
}

static mpath_status_t read_cpu(nccl_reader_t *reader, xmlNode *node, nccl_context_t *context)
{
    char hash[HASH_MAX];
    mpath_machine_t *machine;
    mpath_status_t status;
    int64_t numaid = -1;

    if (((status = mpath_xml_text(reader->name, node, "host_hash", "", hash, sizeof(hash))) != MPATH_OK) ||
        ((status = mpath_xml_number(reader->name, node, "numaid", 0, -1, MAX_NUMA - 1, &numaid)) != MPATH_OK) ||
        ((status = find_host(reader, node, hash, &context->host)) != MPATH_OK)) {
        return status;
    }
    machine       = &reader->hosts[context->host].machine;
    context->numa = (int)numaid;
    if (numaid >= machine->num_numa) {
        machine->num_numa = (int32_t)numaid + 1;
    }
    return MPATH_OK;
}

/* --- NICs -------------------------------------------------------------------------------------------------------- */

/* UCX calls port 1 of mlx5_0 "mlx5_0:1"; a port of 0 is a network interface. */
static mpath_status_t net_name(const nccl_reader_t *reader, xmlNode *node, const char *text, size_t length, int port,
                               mpath_nic_t *nic)
{
    char name[MPATH_NIC_NAME_MAX] = "";

    memset(nic->name, 0, sizeof(nic->name)); /* all of it: machines are compared as memory */
    if (length == 0) {
        mpath_xml_error(reader->name, node, "net name with an empty part: names of NICs have one '+' between them");
        return MPATH_ERR_PARAM;
    }
    if (length < sizeof(name)) {
        memcpy(name, text, length);
        if (port == 0) {
            memcpy(nic->name, name, sizeof(nic->name));
            return MPATH_OK;
        }
        if (mpath_port_name(name, port, nic->name) == MPATH_OK) {
            return MPATH_OK;
        }
    }
    mpath_xml_error(reader->name, node, "net name '%.*s:%d' has more than %d bytes", (int)length, text, port,
                    MPATH_NIC_NAME_MAX - 1);
    return MPATH_ERR_PARAM;
}

/* The PCI device that a NIC is on: the slot. */
static mpath_status_t read_slot(const nccl_reader_t *reader, xmlNode *node, mpath_slot_t *slot)
{
    char busid[64];
    mpath_status_t status;

    memset(slot, 0, sizeof(*slot));
    while ((node != NULL) && !mpath_xml_is(node, "pci") && !mpath_xml_is(node, "cpu")) {
        node = node->parent;
    }
    if ((node == NULL) || !mpath_xml_is(node, "pci")) {
        return MPATH_OK;
    }
    status = mpath_xml_text(reader->name, node, "busid", "", busid, sizeof(busid));
    if (status == MPATH_OK) {
        mpath_slot_card(busid, slot->card);
        status = read_pcie(reader->name, node, 0, &slot->bps);
    }
    return status;
}

/* A process of each CPU tells of a NIC that has none. */
static mpath_status_t merge_nic(const nccl_reader_t *reader, xmlNode *node, mpath_nic_t *known, const mpath_nic_t *nic)
{
    if (known->rate_bps != nic->rate_bps) {
        mpath_xml_error(reader->name, node, "net name '%s' is used twice on this node, with another speed", nic->name);
        return MPATH_ERR_PARAM;
    }
    known->numa = (known->numa == nic->numa) ? nic->numa : -1;
    return MPATH_OK;
}

static mpath_status_t add_nic(const nccl_reader_t *reader, xmlNode *node, nccl_host_t *host, const mpath_nic_t *nic,
                              int64_t dev, const mpath_slot_t *slot)
{
    mpath_machine_t *machine = &host->machine;
    int at;

    for (at = 0; at < machine->num_nics; at++) {
        if (strcmp(machine->nics[at].name, nic->name) == 0) {
            return merge_nic(reader, node, &machine->nics[at], nic);
        }
    }
    if (machine->num_nics == MPATH_MAX_NICS) {
        mpath_xml_error(reader->name, node, "more than %d nets", MPATH_MAX_NICS);
        return MPATH_ERR_PARAM;
    }
    /* Insert in order of dev. */
    for (at = machine->num_nics; (at > 0) && (host->devs[at - 1] > dev); at--) {
        machine->nics[at] = machine->nics[at - 1];
        host->devs[at]    = host->devs[at - 1];
        host->nets[at]    = host->nets[at - 1];
        host->slots[at]   = host->slots[at - 1];
    }
    machine->nics[at] = *nic;
    host->devs[at]    = dev;
    host->nets[at]    = node;
    host->slots[at]   = *slot;
    machine->num_nics++;
    return MPATH_OK;
}

/* "mlx5_0+mlx5_1": NCCL makes one of several NICs, and tells the speed of them all. */
static mpath_status_t read_net(nccl_reader_t *reader, xmlNode *node, const nccl_context_t *context)
{
    nccl_host_t *host = &reader->hosts[context->host];
    int64_t speed = 0, dev = host->machine.num_nics, port = 0;
    char name[MAX_FUSED_NAME], *part;
    mpath_nic_t nic = {0};
    mpath_slot_t slot;
    mpath_status_t status;
    uint64_t parts = 1;
    size_t length;

    if (((status = mpath_xml_text(reader->name, node, "name", NULL, name, sizeof(name))) != MPATH_OK) ||
        ((status = mpath_xml_number(reader->name, node, "port", 0, 0, 99, &port)) != MPATH_OK) ||
        ((status = mpath_xml_number(reader->name, node, "speed", 1, 1, MPATH_MAX_RATE_BPS / BPS_PER_MBIT, &speed)) !=
         MPATH_OK) ||
        ((status = mpath_xml_number(reader->name, node, "dev", 0, 0, INT32_MAX, &dev)) != MPATH_OK) ||
        ((status = read_slot(reader, node, &slot)) != MPATH_OK)) {
        return status;
    }
    for (part = name; (part = strchr(part, '+')) != NULL; part++) {
        parts++;
    }
    nic.rate_bps = (uint64_t)speed * BPS_PER_MBIT / parts;
    nic.numa     = (int16_t)context->numa;
    nic.up       = 1;
    for (part = name; parts > 0; part += length + 1, parts--) {
        length = strcspn(part, "+");
        if (((status = net_name(reader, node, part, length, (int)port, &nic)) != MPATH_OK) ||
            ((status = add_nic(reader, node, host, &nic, dev, &slot)) != MPATH_OK)) {
            return status;
        }
    }
    return MPATH_OK;
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

/* Depth is limited by libxml2 (256). */
static mpath_status_t read_below(nccl_reader_t *reader, xmlNode *parent, nccl_context_t around)
{
    mpath_status_t status = MPATH_OK;
    nccl_context_t context;
    xmlNode *child;

    for (child = mpath_xml_element(parent->children); child != NULL; child = mpath_xml_element(child->next)) {
        context = around;
        if (mpath_xml_is(child, "cpu")) {
            status = read_cpu(reader, child, &context);
        } else if ((context.host < 0) && (mpath_xml_is(child, "net") || mpath_xml_is(child, "gpu"))) {
            status = find_host(reader, child, "", &context.host);
        }
        if ((status == MPATH_OK) && mpath_xml_is(child, "net")) {
            status = read_net(reader, child, &context);
        } else if ((status == MPATH_OK) && mpath_xml_is(child, "gpu")) {
            status = add_gpu(reader->name, child, context.numa, &reader->hosts[context.host]);
        }
        if (status == MPATH_OK) {
            status = read_below(reader, child, context);
        }
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

static mpath_status_t finish_host(const nccl_reader_t *reader, xmlNode *root, nccl_host_t *host)
{
    mpath_machine_t *machine = &host->machine;

    if (machine->num_nics == 0) {
        mpath_xml_error(reader->name, root,
                        "%s%s without a net: NCCL adds them at run time, NCCL_TOPO_DUMP_FILE has them",
                        (host->hash[0] != '\0') ? "host " : "system", host->hash);
        return MPATH_ERR_PARAM;
    }
    for (int i = 0; i < machine->num_nics; i++) {
        machine->nics[i].rail = (int16_t)i;
    }
    mpath_slots_limit(machine, host->slots);
    machine->host_memory_bps = mpath_machine_copy_bps(machine->num_numa, machine->num_numa * CORES_PER_NUMA);
    return MPATH_OK;
}

static mpath_status_t fill_file(const nccl_reader_t *reader, xmlNode *root, mpath_topo_file_t *file)
{
    mpath_status_t status;
    int host, has_gpus = 0;

    file->machines = calloc((size_t)reader->num_hosts + 1, sizeof(*file->machines));
    file->gpus     = calloc((size_t)reader->num_hosts + 1, sizeof(*file->gpus));
    if ((file->machines == NULL) || (file->gpus == NULL)) {
        mpath_error("topology file %s: no memory; the file is not used", reader->name);
        return MPATH_ERR_NO_MEMORY;
    }
    for (host = 0; host < reader->num_hosts; host++) {
        status = finish_host(reader, root, &reader->hosts[host]);
        if (status == MPATH_OK) {
            status = read_gpus(reader->name, &reader->hosts[host], &file->gpus[host]);
        }
        if (status != MPATH_OK) {
            return status;
        }
        file->machines[host] = reader->hosts[host].machine;
        has_gpus |= file->gpus[host].num_gpus > 0;
        if ((reader->num_hosts > 1) && (file->gpus[host].link == MPATH_GPU_LINK_SWITCH)) {
            file->gpus[host].domain = 0; /* a job tells of other hosts where their GPUs share its NVLinks */
        }
    }
    if (!has_gpus) {
        free(file->gpus);
        file->gpus = NULL;
    }
    file->num_nodes = reader->num_hosts;
    return MPATH_OK;
}

mpath_status_t mpath_xml_read_nccl(const char *name, xmlNode *root, mpath_topo_file_t *file)
{
    nccl_reader_t reader  = {.name = name};
    mpath_status_t status = read_below(&reader, root, (nccl_context_t){.host = -1, .numa = -1});
    int host;

    if ((status == MPATH_OK) && (reader.num_hosts == 0)) { /* so that it is said what is missing */
        status = find_host(&reader, root, "", &host);
    }
    if (status == MPATH_OK) {
        status = fill_file(&reader, root, file);
    }
    free(reader.hosts);
    return status;
}
