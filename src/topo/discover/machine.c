/* SPDX-License-Identifier: BSD-3-Clause */
/* Discovery of this machine: chooses its NICs, asks hwloc about NUMA nodes and where the process is bound. */
#include "topo/discover/machine.h"
#include "topo/discover/machine_internal.h"
#include "util/log.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- choice of NICs ---------------------------------------------------------------------------------------------- */

static void machine_add_nic(mpath_machine_t *machine, const mpath_nic_t *nic, int rail)
{
    machine->nics[machine->num_nics]        = *nic;
    machine->nics[machine->num_nics++].rail = (int16_t)rail;
}

/* "mlx5_0" stands for "mlx5_0:1". */
static const mpath_nic_t *list_find(const mpath_nic_list_t *list, const char *name, size_t length)
{
    size_t stem;
    int i;

    for (i = 0; i < list->count; i++) {
        stem = strlen(list->nics[i].name);
        if ((stem == length) && (memcmp(list->nics[i].name, name, length) == 0)) {
            return &list->nics[i];
        }
        if ((stem == length + 2) && (memcmp(list->nics[i].name, name, length) == 0) &&
            (strcmp(list->nics[i].name + length, ":1") == 0)) {
            return &list->nics[i];
        }
    }
    return NULL;
}

/* One name of the list of rails. */
static void machine_choose_name(const mpath_nic_list_t *ports, const mpath_nic_list_t *interfaces, const char *name,
                                size_t length, int rail, mpath_machine_t *machine)
{
    const mpath_nic_t *nic = list_find(ports, name, length);
    int i;

    if (nic == NULL) {
        nic = list_find(interfaces, name, length);
    }
    if (nic == NULL) {
        mpath_warn("parameter rails: %s has no NIC '%.*s'; rail %d is left out here", machine->host, (int)length, name,
                   rail);
        return;
    }
    for (i = 0; i < machine->num_nics; i++) {
        if (strcmp(machine->nics[i].name, nic->name) == 0) {
            mpath_warn("parameter rails: NIC '%.*s' is listed twice; rail %d is left out", (int)length, name, rail);
            return;
        }
    }
    machine_add_nic(machine, nic, rail);
}

static void machine_choose_named(const mpath_nic_list_t *ports, const mpath_nic_list_t *interfaces, const char *rails,
                                 mpath_machine_t *machine)
{
    const char *name = rails;
    size_t length;
    int rail;

    for (rail = 0;; rail++, name += length + 1) {
        length = strcspn(name, ",");
        if (rail == MPATH_MAX_NICS) {
            mpath_warn("parameter rails: more than %d names; those from '%.*s' on are left out", MPATH_MAX_NICS,
                       (int)length, name);
            return;
        }
        machine_choose_name(ports, interfaces, name, length, rail, machine);
        if (name[length] == '\0') {
            return;
        }
    }
}

static void machine_choose_list(const mpath_nic_list_t *list, mpath_machine_t *machine)
{
    int i;

    for (i = 0; i < list->count; i++) {
        if (i == MPATH_MAX_NICS) {
            mpath_warn("%s has %d NICs; those from '%s' on are left out, parameter rails chooses others", machine->host,
                       list->count, list->nics[i].name);
            return;
        }
        machine_add_nic(machine, &list->nics[i], i);
    }
}

static int list_has_active(const mpath_nic_list_t *list)
{
    int i;

    for (i = 0; i < list->count; i++) {
        if (list->nics[i].up) {
            return 1;
        }
    }
    return 0;
}

static void limit_to_slots(const char *sysfs, mpath_machine_t *machine)
{
    mpath_slot_t slots[MPATH_MAX_NICS];

    for (int nic = 0; nic < machine->num_nics; nic++) {
        mpath_sysfs_slot(sysfs, machine->nics[nic].name, &slots[nic]);
    }
    mpath_slots_limit(machine, slots);
}

mpath_status_t mpath_machine_choose(const mpath_machine_source_t *source, const char *rails, mpath_machine_t *machine)
{
    int named = (rails != NULL) && (rails[0] != '\0');
    mpath_nic_list_t ports, interfaces;
    mpath_status_t status;

    machine->num_nics = 0;
    status            = mpath_sysfs_list_ports(source, &ports);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_sysfs_list_interfaces(source, named, &interfaces);
    if (status != MPATH_OK) {
        goto err_free_ports;
    }
    if (named) {
        machine_choose_named(&ports, &interfaces, rails, machine);
    } else {
        machine_choose_list(list_has_active(&ports) ? &ports : &interfaces, machine);
    }
    limit_to_slots(source->sysfs, machine);
    free(interfaces.nics);
err_free_ports:
    free(ports.nics);
    return status;
}

/* --- NUMA nodes -------------------------------------------------------------------------------------------------- */

static mpath_status_t numa_load(hwloc_topology_t *topology_p)
{
    hwloc_topology_t topology;

    if (hwloc_topology_init(&topology) != 0) {
        goto err;
    }
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        goto err;
    }
    *topology_p = topology;
    return MPATH_OK;

err:
    mpath_warn("hwloc cannot read this machine; taking it for one NUMA node");
    return MPATH_ERR_IO;
}

uint64_t mpath_machine_copy_bps(int num_numa, int num_cores)
{
    uint64_t by_cores = (uint64_t)num_cores * 4000000000ull, by_memory = (uint64_t)num_numa * 80000000000ull;
    uint64_t least = (by_cores < by_memory) ? by_cores : by_memory;

    return (least < MPATH_MAX_RATE_BPS) ? least : MPATH_MAX_RATE_BPS;
}

static void machine_count_numa(mpath_machine_t *machine)
{
    hwloc_topology_t topology;
    int count, cores = 1;

    machine->num_numa = 1;
    if (numa_load(&topology) == MPATH_OK) {
        count             = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
        machine->num_numa = (count > 0) ? count : 1;
        count             = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        cores             = (count > 0) ? count : 1;
        hwloc_topology_destroy(topology);
    }
    machine->host_memory_bps = mpath_machine_copy_bps(machine->num_numa, cores);
}

/* The NUMA node that holds all processors this process is bound to; -1 when there is no such one. */
static int numa_bound(void)
{
    hwloc_topology_t topology;
    hwloc_obj_t object = NULL;
    hwloc_bitmap_t set;
    int numa = -1;

    if (numa_load(&topology) != MPATH_OK) {
        return -1;
    }
    set = hwloc_bitmap_alloc();
    if ((set != NULL) && (hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_PROCESS) == 0)) {
        while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != NULL) {
            if ((object->cpuset != NULL) && hwloc_bitmap_isincluded(set, object->cpuset)) {
                numa = (int)object->os_index;
                break;
            }
        }
    }
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
    return numa;
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

void mpath_machine_host(char *host)
{
    if (gethostname(host, MPATH_HOST_NAME_MAX) != 0) {
        strcpy(host, "localhost");
    }
    host[MPATH_HOST_NAME_MAX - 1] = '\0';
}

mpath_status_t mpath_machine_discover(const char *rails, const char *rail_rates, mpath_machine_t *machine)
{
    mpath_machine_source_t source = {.sysfs = "/sys", .port_state = mpath_verbs_port_state()};
    mpath_interface_t *interfaces;
    mpath_machine_t found;
    mpath_status_t status;

    memset(&found, 0, sizeof(found));
    mpath_machine_host(found.host);
    status = mpath_interfaces_list(&interfaces, &source.num_interfaces);
    if (status != MPATH_OK) {
        return status;
    }
    source.interfaces = interfaces;
    status            = mpath_machine_choose(&source, rails, &found);
    free(interfaces);
    if (status != MPATH_OK) {
        return status;
    }
    mpath_machine_apply_rates(rail_rates, &found);
    machine_count_numa(&found);
    *machine = found;
    return MPATH_OK;
}

int mpath_machine_find_nic(const mpath_machine_t *machine, const char *name, int number)
{
    if ((number < machine->num_nics) && (strcmp(machine->nics[number].name, name) == 0)) {
        return number;
    }
    for (int nic = 0; nic < machine->num_nics; nic++) {
        if (strcmp(machine->nics[nic].name, name) == 0) {
            return nic;
        }
    }
    return -1;
}

int mpath_machine_nearest_nic(const mpath_machine_t *machine, int local_rank)
{
    int up[MPATH_MAX_NICS], near[MPATH_MAX_NICS];
    int i, numa, num_up = 0, num_near = 0;

    numa = (machine->num_numa > 1) ? numa_bound() : -1;
    for (i = 0; i < machine->num_nics; i++) {
        if (machine->nics[i].up) {
            up[num_up++] = i;
            if ((numa >= 0) && (machine->nics[i].numa == numa)) {
                near[num_near++] = i;
            }
        }
    }
    if ((num_up == 0) || (local_rank < 0)) {
        return (num_up == 0) ? -1 : up[0];
    }
    return (num_near > 0) ? near[local_rank % num_near] : up[local_rank % num_up];
}
