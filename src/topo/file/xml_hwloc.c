/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hwloc's XML (lstopo --of xml, hwloc 2 and 3; format: doc/hwloc.doxy, "Importing and exporting topologies from/to XML
 * files"). What is taken: InfiniBand devices with their ports, or network interfaces where there are none, in name
 * order; their NUMA node; and the rate of the PCI link, because the file has none of the NIC: parameter rail_rates
 * corrects it.
 */
#include "topo/beside.h"
#include "topo/discover/machine.h"
#include "topo/file/xml_internal.h"
#include "util/log.h"
#include "util/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HWLOC_NICS 256
#define MAX_PORTS 8
#define MAX_NUMA 1024
#define MAX_CORES 65536

enum { OSDEV_NETWORK, OSDEV_OPENFABRICS, OSDEV_KINDS };

/* The type of a device: in hwloc 2 a number, in hwloc 3 a set of bits, of which a device has several. */
static const struct {
    int64_t number, bit;
} osdev_types[OSDEV_KINDS] = {[OSDEV_NETWORK] = {2, 16}, [OSDEV_OPENFABRICS] = {3, 32}};

typedef struct hwloc_nic {
    mpath_nic_t nic;
    mpath_slot_t slot;
} hwloc_nic_t;

typedef struct hwloc_reader {
    const char *name;
    int version; /* major */
    int num_numa, num_cores;
    struct {
        hwloc_nic_t *nics;
        int count;
    } lists[OSDEV_KINDS];
} hwloc_reader_t;

/* What objects inherit from those they are in. */
typedef struct hwloc_context {
    int numa;
    uint64_t rate_bps;
    mpath_slot_t slot;
} hwloc_context_t;

static int attribute_equals(xmlNode *node, const char *attribute, const char *expected)
{
    char *text = mpath_xml_attribute(node, attribute);
    int equal  = (text != NULL) && (strcmp(text, expected) == 0);

    xmlFree(text);
    return equal;
}

/* The bit of a set with a single one, of the form 0x%08x; -1 for any other. */
static int nodeset_single(const char *text)
{
    unsigned long bits;
    char *end;

    if ((strncmp(text, "0x", 2) != 0) || (strlen(text) > 10)) {
        return -1;
    }
    bits = strtoul(text, &end, 16);
    if ((*end != '\0') || (bits == 0) || ((bits & (bits - 1)) != 0)) {
        return -1;
    }
    return __builtin_ctzl(bits);
}

static void context_update(xmlNode *object, hwloc_context_t *context)
{
    char *text = mpath_xml_attribute(object, "nodeset");
    int64_t milli;

    if (text != NULL) {
        context->numa = nodeset_single(text);
        xmlFree(text);
    }
    text = mpath_xml_attribute(object, "pci_link_speed"); /* GB/s */
    if (text != NULL) {
        if ((mpath_number_parse_milli(text, &milli) == MPATH_OK) && (milli > 0) &&
            (milli <= MPATH_MAX_RATE_BPS / 1000000)) {
            context->rate_bps = (uint64_t)milli * 1000000;
            context->slot.bps = context->rate_bps;
        }
        xmlFree(text);
    }
    text = mpath_xml_attribute(object, "pci_busid");
    if (text != NULL) {
        mpath_slot_card(text, context->slot.card);
        xmlFree(text);
    }
}

/* An error when one of the NICs has this name. */
static mpath_status_t check_name(const char *name, const xmlNode *node, const mpath_nic_t *nics, int count,
                                 const char *nic_name)
{
    int i;

    for (i = 0; i < count; i++) {
        if (strcmp(nics[i].name, nic_name) == 0) {
            mpath_xml_error(name, node, "%s name '%s' is used twice on this node", (const char *)node->name, nic_name);
            return MPATH_ERR_PARAM;
        }
    }
    return MPATH_OK;
}

static mpath_status_t list_add(hwloc_reader_t *reader, xmlNode *object, int kind, const char *name, int up,
                               const hwloc_context_t *context)
{
    int count = reader->lists[kind].count, i;
    mpath_status_t status;
    hwloc_nic_t *entry;
    mpath_nic_t *nic;

    if (reader->lists[kind].nics == NULL) {
        reader->lists[kind].nics = calloc(MAX_HWLOC_NICS, sizeof(*entry));
        if (reader->lists[kind].nics == NULL) {
            mpath_error("topology file %s: no memory; the file is not used", reader->name);
            return MPATH_ERR_NO_MEMORY;
        }
    }
    if (count == MAX_HWLOC_NICS) {
        mpath_xml_error(reader->name, object, "more than %d NICs", MAX_HWLOC_NICS);
        return MPATH_ERR_PARAM;
    }
    for (i = 0; i < count; i++) {
        status = check_name(reader->name, object, &reader->lists[kind].nics[i].nic, 1, name);
        if (status != MPATH_OK) {
            return status;
        }
    }
    entry       = &reader->lists[kind].nics[reader->lists[kind].count++];
    entry->slot = context->slot;
    nic         = &entry->nic;
    snprintf(nic->name, sizeof(nic->name), "%s", name);
    nic->rate_bps = context->rate_bps;
    nic->numa     = (int16_t)context->numa;
    nic->up       = (uint8_t)up;
    return MPATH_OK;
}

/* The state of a port in <info name="Port1State" value="4"/>: 1 active, 0 not, -1 no such port. */
static int port_state(xmlNode *object, int port)
{
    char wanted[32];
    xmlNode *child;

    snprintf(wanted, sizeof(wanted), "Port%dState", port);
    for (child = mpath_xml_element(object->children); child != NULL; child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "info") && attribute_equals(child, "name", wanted)) {
            return attribute_equals(child, "value", "4");
        }
    }
    return -1;
}

static mpath_status_t add_port(hwloc_reader_t *reader, xmlNode *object, const char *device, int port, int up,
                               const hwloc_context_t *context)
{
    char name[MPATH_NIC_NAME_MAX];

    if (mpath_port_name(device, port, name) != MPATH_OK) {
        mpath_xml_error(reader->name, object, "object name '%s:%d' has more than %d bytes", device, port,
                        MPATH_NIC_NAME_MAX - 1);
        return MPATH_ERR_PARAM;
    }
    return list_add(reader, object, OSDEV_OPENFABRICS, name, up, context);
}

static mpath_status_t read_openfabrics(hwloc_reader_t *reader, xmlNode *object, const char *device,
                                       const hwloc_context_t *context)
{
    mpath_status_t status = MPATH_OK;
    int port, state, found = 0;

    for (port = 1; (port <= MAX_PORTS) && (status == MPATH_OK); port++) {
        state = port_state(object, port);
        if (state >= 0) {
            status = add_port(reader, object, device, port, state, context);
            found  = 1;
        }
    }
    return found ? status : add_port(reader, object, device, 1, 1, context);
}

static int osdev_is(const hwloc_reader_t *reader, int64_t type, int kind)
{
    return (reader->version >= 3) ? ((type & osdev_types[kind].bit) != 0) : (type == osdev_types[kind].number);
}

static mpath_status_t read_osdev(hwloc_reader_t *reader, xmlNode *object, const hwloc_context_t *context)
{
    char name[MPATH_NIC_NAME_MAX];
    mpath_status_t status;
    int64_t type = 0;

    status = mpath_xml_number(reader->name, object, "osdev_type", 0, 0, INT32_MAX, &type);
    if (status != MPATH_OK) {
        return status;
    }
    if (!osdev_is(reader, type, OSDEV_NETWORK) && !osdev_is(reader, type, OSDEV_OPENFABRICS)) {
        return MPATH_OK;
    }
    status = mpath_xml_text(reader->name, object, "name", NULL, name, sizeof(name));
    if (status != MPATH_OK) {
        return status;
    }
    if (osdev_is(reader, type, OSDEV_OPENFABRICS)) { /* one that is a network as well has an interface beside it */
        return read_openfabrics(reader, object, name, context);
    }
    return list_add(reader, object, OSDEV_NETWORK, name, 1, context);
}

/* Depth is limited by libxml2 (256). */
static mpath_status_t read_object(hwloc_reader_t *reader, xmlNode *object, hwloc_context_t context)
{
    mpath_status_t status;
    xmlNode *child;

    context_update(object, &context);
    if (attribute_equals(object, "type", "NUMANode")) {
        reader->num_numa += (reader->num_numa < MAX_NUMA);
    } else if (attribute_equals(object, "type", "Core")) {
        reader->num_cores += (reader->num_cores < MAX_CORES);
    } else if (attribute_equals(object, "type", "OSDev")) {
        status = read_osdev(reader, object, &context);
        if (status != MPATH_OK) {
            return status;
        }
    }
    for (child = mpath_xml_element(object->children); child != NULL; child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "object")) {
            status = read_object(reader, child, context);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

static int nic_compare(const void *a, const void *b)
{
    return mpath_name_compare(((const hwloc_nic_t *)a)->nic.name, ((const hwloc_nic_t *)b)->nic.name);
}

static mpath_status_t fill_machine(hwloc_reader_t *reader, xmlNode *root, mpath_machine_t *machine)
{
    int kind  = (reader->lists[OSDEV_OPENFABRICS].count > 0) ? OSDEV_OPENFABRICS : OSDEV_NETWORK;
    int count = reader->lists[kind].count, i;
    mpath_slot_t slots[MPATH_MAX_NICS];
    hwloc_nic_t *nics = reader->lists[kind].nics;

    if (count == 0) {
        mpath_xml_error(reader->name, root, "topology without a NIC: lstopo --whole-io file.xml includes them");
        return MPATH_ERR_PARAM;
    }
    if (count > MPATH_MAX_NICS) {
        mpath_xml_error(reader->name, root, "%d NICs are more than %d", count, MPATH_MAX_NICS);
        return MPATH_ERR_PARAM;
    }
    qsort(nics, (size_t)count, sizeof(*nics), nic_compare);
    for (i = 0; i < count; i++) {
        machine->nics[i]      = nics[i].nic;
        machine->nics[i].rail = (int16_t)i;
        slots[i]              = nics[i].slot;
    }
    machine->num_nics = count;
    mpath_slots_limit(machine, slots);
    machine->num_numa        = (reader->num_numa > 0) ? reader->num_numa : 1;
    machine->host_memory_bps = mpath_machine_copy_bps(machine->num_numa,
                                                      (reader->num_cores > 0) ? reader->num_cores : 1);
    return MPATH_OK;
}

mpath_status_t mpath_xml_read_hwloc(const char *name, xmlNode *root, mpath_topo_file_t *file)
{
    const hwloc_context_t context = {.numa = -1, .rate_bps = MPATH_DEFAULT_RATE_BPS};
    hwloc_reader_t reader         = {.name = name, .version = 1};
    char *version                 = mpath_xml_attribute(root, "version");
    mpath_status_t status         = MPATH_OK;
    xmlNode *child;
    int i;

    if (version != NULL) {
        reader.version = ((version[0] >= '1') && (version[0] <= '9')) ? version[0] - '0' : 1;
        xmlFree(version);
    }
    file->machines = calloc(1, sizeof(*file->machines));
    if (file->machines == NULL) {
        mpath_error("topology file %s: no memory; the file is not used", name);
        return MPATH_ERR_NO_MEMORY;
    }
    file->num_nodes = 1;
    for (child = mpath_xml_element(root->children); (child != NULL) && (status == MPATH_OK);
         child = mpath_xml_element(child->next)) {
        if (mpath_xml_is(child, "object")) {
            status = read_object(&reader, child, context);
        }
    }
    if (status == MPATH_OK) {
        status = fill_machine(&reader, root, &file->machines[0]);
    }
    for (i = 0; i < OSDEV_KINDS; i++) {
        free(reader.lists[i].nics);
    }
    return status;
}
