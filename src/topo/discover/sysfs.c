/* SPDX-License-Identifier: BSD-3-Clause */
/* NICs as the kernel shows them: interfaces of this network namespace, and speed, NUMA node and kind in sysfs. */
#include "topo/discover/machine_internal.h"
#include "util/log.h"
#include "util/number.h"

#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BPS_PER_MBIT 125000ull /* 10^6 bits */
#define RELATIVE_MAX 512       /* below sysfs: a folder entry and some fixed text */
#define MAX_PORTS 256          /* of all devices: a bound for broken trees */
#define PORT_ACTIVE 4          /* IBV_PORT_ACTIVE */

static int is_digit(char c)
{
    return (c >= '0') && (c <= '9');
}

int mpath_name_compare(const char *a, const char *b)
{
    size_t run_a, run_b;
    int order;

    while ((*a != '\0') && (*b != '\0')) {
        if (!is_digit(*a) || !is_digit(*b)) {
            if (*a != *b) {
                break;
            }
            a++;
            b++;
            continue;
        }
        for (; *a == '0' && is_digit(a[1]); a++) {
        }
        for (; *b == '0' && is_digit(b[1]); b++) {
        }
        for (run_a = 0; is_digit(a[run_a]); run_a++) {
        }
        for (run_b = 0; is_digit(b[run_b]); run_b++) {
        }
        order = (run_a != run_b) ? ((run_a < run_b) ? -1 : 1) : strncmp(a, b, run_a);
        if (order != 0) {
            return order;
        }
        a += run_a;
        b += run_b;
    }
    return (int)(unsigned char)*a - (int)(unsigned char)*b;
}

static int nic_compare(const void *a, const void *b)
{
    return mpath_name_compare(((const mpath_nic_t *)a)->name, ((const mpath_nic_t *)b)->name);
}

/* --- small files ------------------------------------------------------------------------------------------------- */

/* The first line of SYSFS/RELATIVE; empty when there is none. */
static void sysfs_read(const char *sysfs, const char *relative, char *line, size_t size)
{
    char path[PATH_MAX];
    FILE *file;

    line[0] = '\0';
    snprintf(path, sizeof(path), "%s/%s", sysfs, relative);
    file = fopen(path, "r");
    if (file == NULL) {
        return;
    }
    if (fgets(line, (int)size, file) == NULL) {
        line[0] = '\0'; /* "speed" of a NIC without carrier: EINVAL */
    }
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
}

static int sysfs_exists(const char *sysfs, const char *relative)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", sysfs, relative);
    return access(path, F_OK) == 0;
}

static int16_t sysfs_numa(const char *sysfs, const char *device)
{
    char relative[RELATIVE_MAX], line[32];
    long numa;
    char *end;

    snprintf(relative, sizeof(relative), "%s/device/numa_node", device);
    sysfs_read(sysfs, relative, line, sizeof(line));
    numa = strtol(line, &end, 10);
    return ((end == line) || (numa < 0) || (numa > INT16_MAX)) ? -1 : (int16_t)numa;
}

static uint64_t clamp_rate(uint64_t rate_bps)
{
    return (rate_bps > MPATH_MAX_RATE_BPS) ? MPATH_MAX_RATE_BPS : rate_bps;
}

/* --- network interfaces ------------------------------------------------------------------------------------------ */

static int address_is_global(const struct sockaddr *address)
{
    const struct sockaddr_in6 *six;

    if (address == NULL) {
        return 0;
    }
    if (address->sa_family == AF_INET) {
        return 1;
    }
    six = (const struct sockaddr_in6 *)(const void *)address;
    return (address->sa_family == AF_INET6) && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

mpath_status_t mpath_interfaces_list(mpath_interface_t **interfaces_p, int *count_p)
{
    struct ifaddrs *addresses, *entry;
    mpath_interface_t *interfaces, *i;
    char name[MPATH_NIC_NAME_MAX];
    size_t entries = 0;
    int count      = 0;

    if (getifaddrs(&addresses) != 0) {
        mpath_error("listing the network interfaces: getifaddrs: %s; no NIC is found", strerror(errno));
        return MPATH_ERR_IO;
    }
    for (entry = addresses; entry != NULL; entry = entry->ifa_next) {
        entries++;
    }
    interfaces = calloc(entries + 1, sizeof(*interfaces));
    if (interfaces == NULL) {
        freeifaddrs(addresses);
        mpath_error("listing the network interfaces: no memory; no NIC is found");
        return MPATH_ERR_NO_MEMORY;
    }
    /* An interface has one entry per address; an address may have a label, which stands for the name: "eth0:1". */
    for (entry = addresses; entry != NULL; entry = entry->ifa_next) {
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(entry->ifa_name, ":"), entry->ifa_name);
        for (i = interfaces; (i < interfaces + count) && (strcmp(i->name, name) != 0); i++) {
        }
        if (i == interfaces + count) {
            memcpy(i->name, name, sizeof(i->name));
            count++;
        }
        i->up = ((entry->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING));
        i->addressed |= (uint8_t)address_is_global(entry->ifa_addr);
        i->loopback = ((entry->ifa_flags & IFF_LOOPBACK) != 0);
    }
    freeifaddrs(addresses);
    *interfaces_p = interfaces;
    *count_p      = count;
    return MPATH_OK;
}

/* Bridges, their ports, bonded NICs and tunnels are no rails: other NICs carry their traffic. */
static int interface_is_rail(const char *sysfs, const mpath_interface_t *interface)
{
    static const char *const signs[] = {"bridge", "brport", "master", "tun_flags"};
    char relative[RELATIVE_MAX];
    size_t i;

    if (interface->loopback || !interface->addressed) {
        return 0;
    }
    for (i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        snprintf(relative, sizeof(relative), "class/net/%s/%s", interface->name, signs[i]);
        if (sysfs_exists(sysfs, relative)) {
            return 0;
        }
    }
    return 1;
}

/* A VLAN or the like on a NIC that is a rail itself: it would count the same port twice. */
static int interface_rides_on_rail(const mpath_machine_source_t *source, const mpath_interface_t *interface)
{
    char relative[RELATIVE_MAX];
    int i;

    for (i = 0; i < source->num_interfaces; i++) {
        snprintf(relative, sizeof(relative), "class/net/%s/lower_%s", interface->name, source->interfaces[i].name);
        if ((&source->interfaces[i] != interface) && sysfs_exists(source->sysfs, relative) &&
            interface_is_rail(source->sysfs, &source->interfaces[i])) {
            return 1;
        }
    }
    return 0;
}

static void interface_read(const char *sysfs, const mpath_interface_t *interface, mpath_nic_t *nic)
{
    char relative[RELATIVE_MAX], line[32];
    long mbit;

    memset(nic, 0, sizeof(*nic));
    memcpy(nic->name, interface->name, sizeof(nic->name));
    nic->up = interface->up;
    snprintf(relative, sizeof(relative), "class/net/%s", interface->name);
    nic->numa = sysfs_numa(sysfs, relative);
    snprintf(relative, sizeof(relative), "class/net/%s/speed", interface->name);
    sysfs_read(sysfs, relative, line, sizeof(line));
    mbit = strtol(line, NULL, 10);
    /* Unknown is -1, or UINT32_MAX from older drivers. */
    nic->rate_bps = ((mbit > 0) && (mbit < INT32_MAX)) ? clamp_rate((uint64_t)mbit * BPS_PER_MBIT)
                                                       : MPATH_DEFAULT_RATE_BPS;
}

mpath_status_t mpath_sysfs_list_interfaces(const mpath_machine_source_t *source, int all, mpath_nic_list_t *list_p)
{
    mpath_nic_list_t list = {NULL, 0};
    int i;

    list.nics = calloc((size_t)source->num_interfaces + 1, sizeof(*list.nics));
    if (list.nics == NULL) {
        mpath_error("listing the network interfaces: no memory; no NIC is found");
        return MPATH_ERR_NO_MEMORY;
    }
    for (i = 0; i < source->num_interfaces; i++) {
        if (all || (interface_is_rail(source->sysfs, &source->interfaces[i]) &&
                    !interface_rides_on_rail(source, &source->interfaces[i]))) {
            interface_read(source->sysfs, &source->interfaces[i], &list.nics[list.count++]);
        }
    }
    qsort(list.nics, (size_t)list.count, sizeof(*list.nics), nic_compare);
    *list_p = list;
    return MPATH_OK;
}

/* --- InfiniBand and RoCE ports ----------------------------------------------------------------------------------- */

mpath_status_t mpath_port_name(const char *device, int port, char *name)
{
    int length = snprintf(name, MPATH_NIC_NAME_MAX, "%s:%d", device, port);

    return ((length > 0) && (length < MPATH_NIC_NAME_MAX)) ? MPATH_OK : MPATH_ERR_PARAM;
}

/* The number counts: "5: ACTIVE_DEFER" is a port that has lost its link a moment ago. */
static int port_is_active(const char *sysfs, const char *device, const char *port)
{
    char relative[RELATIVE_MAX], line[64];

    snprintf(relative, sizeof(relative), "class/infiniband/%s/ports/%s/state", device, port);
    sysfs_read(sysfs, relative, line, sizeof(line));
    return strtol(line, NULL, 10) == PORT_ACTIVE;
}

/* Zero when this process cannot use the port. */
static int port_read(const mpath_machine_source_t *source, const char *device, int port, mpath_nic_t *nic)
{
    char relative[RELATIVE_MAX], line[64], number[16];
    int64_t mbit;
    int state;

    memset(nic, 0, sizeof(*nic));
    if (mpath_port_name(device, port, nic->name) != MPATH_OK) {
        return 0;
    }
    snprintf(number, sizeof(number), "%d", port);
    state = port_is_active(source->sysfs, device, number);
    if (source->port_state != NULL) {
        state = source->port_state(device, port);
    }
    if (state < 0) {
        return 0;
    }
    nic->up = (uint8_t)state;
    snprintf(relative, sizeof(relative), "class/infiniband/%s", device);
    nic->numa = sysfs_numa(source->sysfs, relative);
    /* "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)" */
    snprintf(relative, sizeof(relative), "class/infiniband/%s/ports/%d/rate", device, port);
    sysfs_read(source->sysfs, relative, line, sizeof(line));
    nic->rate_bps = MPATH_DEFAULT_RATE_BPS;
    if ((mpath_number_parse_milli(line, &mbit) == MPATH_OK) && (mbit > 0) && (mbit < INT32_MAX)) {
        nic->rate_bps = clamp_rate((uint64_t)mbit * BPS_PER_MBIT);
    }
    return 1;
}

static void device_read(const mpath_machine_source_t *source, const char *device, mpath_nic_list_t *list)
{
    char relative[RELATIVE_MAX];
    int port;

    for (port = 1; list->count < MAX_PORTS; port++) {
        snprintf(relative, sizeof(relative), "class/infiniband/%s/ports/%d", device, port);
        if (!sysfs_exists(source->sysfs, relative)) {
            break;
        }
        list->count += port_read(source, device, port, &list->nics[list->count]);
    }
}

mpath_status_t mpath_sysfs_list_ports(const mpath_machine_source_t *source, mpath_nic_list_t *list_p)
{
    mpath_nic_list_t list = {NULL, 0};
    struct dirent *entry;
    char path[PATH_MAX];
    DIR *folder;

    list.nics = calloc(MAX_PORTS, sizeof(*list.nics));
    if (list.nics == NULL) {
        mpath_error("listing the InfiniBand devices: no memory; none is found");
        return MPATH_ERR_NO_MEMORY;
    }
    snprintf(path, sizeof(path), "%s/class/infiniband", source->sysfs);
    folder = opendir(path);
    if (folder != NULL) { /* it is not there on a machine without such devices */
        while ((entry = readdir(folder)) != NULL) {
            if (entry->d_name[0] != '.') {
                device_read(source, entry->d_name, &list);
            }
        }
        closedir(folder);
    }
    qsort(list.nics, (size_t)list.count, sizeof(*list.nics), nic_compare);
    *list_p = list;
    return MPATH_OK;
}

/* --- slots ------------------------------------------------------------------------------------------------------- */

/* What a PCIe device, or the port above it, was made for: links may rest at less. 0: it does not tell. */
static uint64_t device_bps(const char *device)
{
    char speed[64], width[16];
    int generation;

    sysfs_read(device, "max_link_speed", speed, sizeof(speed));
    sysfs_read(device, "max_link_width", width, sizeof(width));
    generation = mpath_pcie_generation(speed);
    return (generation > 0) ? mpath_pcie_bps(generation, (int)strtol(width, NULL, 10)) : 0;
}

void mpath_sysfs_slot(const char *sysfs, const char *nic, mpath_slot_t *slot)
{
    char link[PATH_MAX], device[PATH_MAX], *name;
    uint64_t above_bps;

    memset(slot, 0, sizeof(*slot));
    snprintf(link, sizeof(link), "%s/class/infiniband/%.*s/device", sysfs, (int)strcspn(nic, ":"), nic);
    if (realpath(link, device) == NULL) {
        snprintf(link, sizeof(link), "%s/class/net/%s/device", sysfs, nic);
        if (realpath(link, device) == NULL) {
            return;
        }
    }
    slot->bps = device_bps(device);
    name      = strrchr(device, '/');
    if ((slot->bps == 0) || (name == NULL)) {
        return;
    }
    mpath_slot_card(name + 1, slot->card);
    *name     = '\0';
    above_bps = device_bps(device);
    slot->bps = ((above_bps > 0) && (above_bps < slot->bps)) ? above_bps : slot->bps;
}

/* --- later ------------------------------------------------------------------------------------------------------- */

int mpath_machine_has_carrier(const char *sysfs, const char *nic)
{
    char relative[RELATIVE_MAX], device[MPATH_NIC_NAME_MAX], line[8];
    size_t stem      = strcspn(nic, ":");
    const char *port = (nic[stem] == ':') ? nic + stem + 1 : "1";

    snprintf(device, sizeof(device), "%.*s", (int)stem, nic);
    snprintf(relative, sizeof(relative), "class/infiniband/%s/ports/%s", device, port);
    if (sysfs_exists(sysfs, relative)) {
        return port_is_active(sysfs, device, port);
    }
    snprintf(relative, sizeof(relative), "class/net/%s/carrier", nic);
    if (!sysfs_exists(sysfs, relative)) {
        return 1;
    }
    sysfs_read(sysfs, relative, line, sizeof(line)); /* of an interface that is down an error */
    return line[0] == '1';
}
