/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of discovery. Each takes where it reads from as an argument, so that tests can show it another machine. */
#ifndef MPATH_TOPO_DISCOVER_MACHINE_INTERNAL_H
#define MPATH_TOPO_DISCOVER_MACHINE_INTERNAL_H

#include "topo/beside.h"
#include "topo/discover/machine.h"

/* A network interface as the network stack sees it. */
typedef struct mpath_interface {
    char name[MPATH_NIC_NAME_MAX];
    uint8_t up;        /* has a carrier */
    uint8_t addressed; /* has an IPv4 or a global IPv6 address */
    uint8_t loopback;
} mpath_interface_t;

/* 1: port is active; 0: it is not; -1: this process cannot use the device. */
typedef int (*mpath_port_state_t)(const char *device, int port);

/* Where discovery looks. */
typedef struct mpath_machine_source {
    const char *sysfs; /* "/sys" */
    const mpath_interface_t *interfaces;
    int num_interfaces;
    mpath_port_state_t port_state; /* NULL: as sysfs says */
} mpath_machine_source_t;

/* NICs found, chosen by the caller; malloc'ed. `rail` is not set yet. */
typedef struct mpath_nic_list {
    mpath_nic_t *nics;
    int count;
} mpath_nic_list_t;

/* The interfaces of this network namespace; malloc'ed. */
mpath_status_t mpath_interfaces_list(mpath_interface_t **interfaces_p, int *count_p);

/* InfiniBand and RoCE ports, named "DEVICE:PORT", in name order. */
mpath_status_t mpath_sysfs_list_ports(const mpath_machine_source_t *source, mpath_nic_list_t *list_p);

/* Network interfaces in name order: all, or those that are fit to be a rail unasked. */
mpath_status_t mpath_sysfs_list_interfaces(const mpath_machine_source_t *source, int all, mpath_nic_list_t *list_p);

/* The slot of a NIC, an interface or a port, as sysfs tells; empty where it does not. */
void mpath_sysfs_slot(const char *sysfs, const char *nic, mpath_slot_t *slot);

/* Chooses NICs and fills machine->nics and num_nics. */
mpath_status_t mpath_machine_choose(const mpath_machine_source_t *source, const char *rails, mpath_machine_t *machine);

/* See mpath_port_state_t; from libibverbs, or NULL when it is not built in. */
mpath_port_state_t mpath_verbs_port_state(void);

#endif
