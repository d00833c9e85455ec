/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's topology XML (NCCL_TOPO_DUMP_FILE, and the files that clouds hand out as NCCL_TOPO_FILE; written by
 * src/graph/xml.cc of NCCL): <system><cpu numaid><pci>...<nic><net name dev speed port>. What is taken: the NICs with
 * name, speed (Mbit/s) and NUMA node, of which `dev` numbers the rails; and the GPUs (xml_nccl_gpus.c).
 */
#include "topo/machine_internal.h"
#include "topo/xml_internal.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define BPS_PER_MBIT 125000
#define MAX_NUMA 1024
#define CORES_PER_NUMA 16 /* the file does not tell */

typedef struct nccl_reader {
    const char *name;
    mpath_machine_t *machine;
    int64_t devs[MPATH_MAX_NICS];
    xmlNode *nets[MPATH_MAX_NICS];
} nccl_reader_t;

/* UCX calls port 1 of mlx5_0 "mlx5_0:1"; a port of 0 is a network interface. */
static mpath_status_t nccl_net_name(nccl_reader_t *reader, xmlNode *node, mpath_nic_t *nic)
{
    char name[MPATH_NIC_NAME_MAX];
    mpath_status_t status;
    int64_t port = 0;

    if (((status = mpath_xml_text(reader->name, node, "name", NULL, name, sizeof(name))) != MPATH_OK) ||
        ((status = mpath_xml_number(reader->name, node, "port", 0, 0, 99, &port)) != MPATH_OK)) {
        return status;
    }
    if (port == 0) {
        memcpy(nic->name, name, sizeof(nic->name));
    } else if (mpath_port_name(name, (int)port, nic->name) != MPATH_OK) {
        mpath_xml_error(reader->name, node, "net name '%s:%d' has more than %d bytes", name, (int)port,
                        MPATH_NIC_NAME_MAX - 1);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

static mpath_status_t nccl_read_net(nccl_reader_t *reader, xmlNode *node, int numa)
{
    mpath_machine_t *machine = reader->machine;
    int64_t speed = 0, dev = machine->num_nics;
    mpath_nic_t nic = {0};
    mpath_status_t status;
    int at;

    if (machine->num_nics == MPATH_MAX_NICS) {
        mpath_xml_error(reader->name, node, "more than %d nets", MPATH_MAX_NICS);
        return MPATH_ERR_PARAM;
    }
    if (((status = nccl_net_name(reader, node, &nic)) != MPATH_OK) ||
        ((status = mpath_xml_number(reader->name, node, "speed", 1, 1, MPATH_MAX_RATE_BPS / BPS_PER_MBIT, &speed)) !=
         MPATH_OK) ||
        ((status = mpath_xml_number(reader->name, node, "dev", 0, 0, INT32_MAX, &dev)) != MPATH_OK)) {
        return status;
    }
    status = mpath_xml_check_name(reader->name, node, machine->nics, machine->num_nics, nic.name);
    if (status != MPATH_OK) {
        return status;
    }
    nic.rate_bps = (uint64_t)speed * BPS_PER_MBIT;
    nic.numa     = (int16_t)numa;
    nic.up       = 1;
    /* Insert in order of dev. */
    for (at = machine->num_nics; (at > 0) && (reader->devs[at - 1] > dev); at--) {
        machine->nics[at] = machine->nics[at - 1];
        reader->devs[at]  = reader->devs[at - 1];
        reader->nets[at]  = reader->nets[at - 1];
    }
    machine->nics[at] = nic;
    reader->devs[at]  = dev;
    reader->nets[at]  = node;
    machine->num_nics++;
    return MPATH_OK;
}

/* Depth is limited by libxml2 (256). */
static mpath_status_t nccl_read_below(nccl_reader_t *reader, xmlNode *parent, int numa)
{
    int64_t numaid;
    mpath_status_t status = MPATH_OK;
    xmlNode *child;

    for (child = mpath_xml_element(parent->children); child != NULL; child = mpath_xml_element(child->next)) {
        numaid = numa;
        if (mpath_xml_is(child, "net")) {
            status = nccl_read_net(reader, child, numa);
        } else if (mpath_xml_is(child, "cpu")) {
            status = mpath_xml_number(reader->name, child, "numaid", 0, -1, MAX_NUMA - 1, &numaid);
            if ((status == MPATH_OK) && (numaid >= reader->machine->num_numa)) {
                reader->machine->num_numa = (int32_t)numaid + 1;
            }
        }
        if (status == MPATH_OK) {
            status = nccl_read_below(reader, child, (int)numaid);
        }
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_xml_read_nccl(const char *name, xmlNode *root, mpath_topo_file_t *file)
{
    nccl_reader_t reader = {.name = name};
    mpath_status_t status;
    int i;

    file->machines = calloc(1, sizeof(*file->machines));
    file->gpus     = calloc(1, sizeof(*file->gpus));
    if ((file->machines == NULL) || (file->gpus == NULL)) {
        mpath_error("topology file %s: no memory; the file is not used", name);
        return MPATH_ERR_NO_MEMORY;
    }
    file->num_nodes          = 1;
    reader.machine           = &file->machines[0];
    reader.machine->num_numa = 1;
    status                   = nccl_read_below(&reader, root, -1);
    if (status != MPATH_OK) {
        return status;
    }
    if (reader.machine->num_nics == 0) {
        mpath_xml_error(name, root, "system without a net: NCCL adds them at run time, NCCL_TOPO_DUMP_FILE has them");
        return MPATH_ERR_PARAM;
    }
    for (i = 0; i < reader.machine->num_nics; i++) {
        reader.machine->nics[i].rail = (int16_t)i;
    }
    reader.machine->host_memory_bps = mpath_machine_copy_bps(reader.machine->num_numa,
                                                             reader.machine->num_numa * CORES_PER_NUMA);
    status                          = mpath_xml_read_nccl_gpus(name, root, reader.machine, reader.nets, file->gpus);
    if ((status == MPATH_OK) && (file->gpus->num_gpus == 0)) {
        free(file->gpus);
        file->gpus = NULL;
    }
    return status;
}
