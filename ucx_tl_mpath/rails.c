/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the rails: the NICs that the topology names, or those that the user lists, and for each the first of the wanted
 * transports of UCX that drives it. Memory domains in which nothing is found are closed again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif
#include "ucx_tl_mpath/md.h"

#include "topo/discover/machine.h"
#include "util/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A device that shall be a rail, before a transport is found for it. */
typedef struct wanted {
    char device[UCT_DEVICE_NAME_MAX];
    int number;
    uint64_t rate_bps;
    int rank, rma_rank; /* of the transports that were found: position in the lists of transports; -1: none */
} wanted_t;

typedef struct search {
    wanted_t wanted[UCT_MPATH_MAX_RAILS];
    unsigned num_wanted;
    const ucs_config_names_array_t *transports, *rma_transports;
} search_t;

/* Components that hold no transport between nodes; some are slow to open. */
static int skip_component(const char *name)
{
    static const char *const skipped[] = {"mpath",  "cuda", "rocm", "ze_",   "gdr",
                                          "rdmacm", "cma",  "knem", "xpmem", "self"};
    size_t i;

    for (i = 0; i < sizeof(skipped) / sizeof(skipped[0]); ++i) {
        if (strncmp(name, skipped[i], strlen(skipped[i])) == 0) {
            return 1;
        }
    }
    return 0;
}

static uint64_t known_rate_bps(const mpath_machine_t *machine, const char *device)
{
    int nic;

    for (nic = 0; nic < machine->num_nics; ++nic) {
        if (strcmp(machine->nics[nic].name, device) == 0) {
            return machine->nics[nic].rate_bps;
        }
    }
    return 0;
}

static void want(search_t *search, const char *device, size_t length, int number, uint64_t rate_bps)
{
    wanted_t *wanted;

    if (length == 0 || search->num_wanted == UCT_MPATH_MAX_RAILS || number >= UCT_MPATH_MAX_RAILS) {
        return;
    }
    wanted = &search->wanted[search->num_wanted++];
    ucs_snprintf_zero(wanted->device, sizeof(wanted->device), "%.*s", (int)length, device);
    wanted->number   = number;
    wanted->rate_bps = rate_bps;
    wanted->rank     = -1;
    wanted->rma_rank = -1;
}

/* The machine is the same for all contexts of a process, and hwloc takes its time: the system is asked once. */
static void this_machine(const char *rail_rates, mpath_machine_t *machine_p)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static mpath_machine_t found;
    static int done;

    pthread_mutex_lock(&lock);
    if (!done) {
        memset(&found, 0, sizeof(found));
        mpath_machine_discover(NULL, NULL, &found);
        done = 1;
    }
    *machine_p = found;
    pthread_mutex_unlock(&lock);
    mpath_log_set_level(MPATH_LOG_WARN); /* a wrong value is the user's to know */
    mpath_machine_apply_rates(rail_rates, machine_p);
    mpath_log_set_level(MPATH_LOG_ERROR);
}

/* By which launchers number the processes of a node. */
static int local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
                                        "SLURM_LOCALID"};
    const char *value;
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        value = secure_getenv(names[i]);
        if (value != NULL) {
            return atoi(value) > 0 ? atoi(value) : 0;
        }
    }
    return 0;
}

/* Of the rails only the one beside this process. */
static void keep_nearest(search_t *search, const mpath_machine_t *machine)
{
    mpath_machine_t rails = *machine;
    unsigned w;
    int nic;

    rails.num_nics = 0;
    for (w = 0; w < search->num_wanted && w < MPATH_MAX_NICS; ++w) {
        memset(&rails.nics[w], 0, sizeof(rails.nics[w]));
        rails.nics[w].numa = -1;
        rails.nics[w].up   = 1;
        for (nic = 0; nic < machine->num_nics; ++nic) {
            if (strcmp(machine->nics[nic].name, search->wanted[w].device) == 0) {
                rails.nics[w] = machine->nics[nic];
            }
        }
        ++rails.num_nics;
    }
    nic = mpath_machine_nearest_nic(&rails, local_rank());
    if (nic >= 0) {
        search->wanted[0]  = search->wanted[nic];
        search->num_wanted = 1;
    }
}

static void list_all(search_t *search, const char *name, const mpath_machine_t *machine)
{
    char device[UCT_DEVICE_NAME_MAX];
    int nic, number = 0;
    size_t length;

    if (name == NULL || name[0] == '\0') {
        for (nic = 0; nic < machine->num_nics; ++nic) {
            if (machine->nics[nic].up) {
                want(search, machine->nics[nic].name, strlen(machine->nics[nic].name), machine->nics[nic].rail,
                     machine->nics[nic].rate_bps);
            }
        }
        return;
    }
    while (*name != '\0') {
        length = strcspn(name, ",");
        ucs_snprintf_zero(device, sizeof(device), "%.*s", (int)length, name);
        want(search, name, length, number++, known_rate_bps(machine, device));
        name += length + (name[length] == ',');
    }
}

/* Returns how many NICs the node has for all of its processes. */
static unsigned list_wanted(search_t *search, const uct_mpath_md_config_t *config)
{
    mpath_machine_t machine;
    unsigned all;

    this_machine(config->rail_rates, &machine);
    list_all(search, config->rails, &machine);
    all = search->num_wanted;
    if (config->access == UCT_MPATH_ACCESS_AFFINE) {
        keep_nearest(search, &machine);
    }
    return all;
}

static int transport_rank(const ucs_config_names_array_t *transports, const char *transport)
{
    unsigned i;

    for (i = 0; i < transports->count; ++i) {
        if (strcmp(transports->names[i], transport) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static int is_better(int rank, int than)
{
    return rank >= 0 && (than < 0 || rank < than);
}

/* Nonzero when a rail was found in this memory domain. */
static int match_resources(uct_mpath_md_t *md, search_t *search, const uct_tl_resource_desc_t *resources,
                           unsigned count)
{
    int rank, rma_rank, found = 0;
    unsigned i, w;

    for (i = 0; i < count; ++i) {
        rank     = transport_rank(search->transports, resources[i].tl_name);
        rma_rank = transport_rank(search->rma_transports, resources[i].tl_name);
        for (w = 0; w < search->num_wanted; ++w) {
            if (strcmp(search->wanted[w].device, resources[i].dev_name) != 0) {
                continue;
            }
            if (is_better(rank, search->wanted[w].rank)) {
                search->wanted[w].rank = rank;
                md->rails[w].child     = md->num_children;
                ucs_snprintf_zero(md->rails[w].transport, sizeof(md->rails[w].transport), "%s", resources[i].tl_name);
                found = 1;
            }
            if (is_better(rma_rank, search->wanted[w].rma_rank)) {
                search->wanted[w].rma_rank = rma_rank;
                md->rails[w].rma_child     = md->num_children;
                ucs_snprintf_zero(md->rails[w].rma_transport, sizeof(md->rails[w].rma_transport), "%s",
                                  resources[i].tl_name);
                found = 1;
            }
        }
    }
    return found;
}

static void search_md(uct_mpath_md_t *md, search_t *search, uct_component_h component, const char *name)
{
    uct_mpath_child_md_t *child = &md->children[md->num_children];
    uct_tl_resource_desc_t *resources;
    uct_md_config_t *config;
    uct_md_attr_t attr;
    unsigned count;
    int found;

    if (md->num_children == UCT_MPATH_MAX_RAILS || uct_md_config_read(component, NULL, NULL, &config) != UCS_OK) {
        return;
    }
    if (uct_md_open(component, name, config, &child->md) != UCS_OK) {
        uct_config_release(config);
        return;
    }
    uct_config_release(config);
    if (uct_md_query(child->md, &attr) != UCS_OK ||
        uct_md_query_tl_resources(child->md, &resources, &count) != UCS_OK) {
        uct_md_close(child->md);
        return;
    }
    found = match_resources(md, search, resources, count);
    uct_release_tl_resource_list(resources);
    if (!found) {
        uct_md_close(child->md);
        return;
    }
    child->component  = component;
    child->need_memh  = (attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0;
    child->registers  = 0;
    child->rkey_bytes = (attr.cap.flags & UCT_MD_FLAG_NEED_RKEY) ? attr.rkey_packed_size : 0;
    ++md->num_children;
}

static void search_component(uct_mpath_md_t *md, search_t *search, uct_component_h component)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                                               UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    unsigned i;

    if (uct_component_query(component, &attr) != UCS_OK || skip_component(attr.name) || attr.md_resource_count == 0) {
        return;
    }
    attr.field_mask   = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = calloc(attr.md_resource_count, sizeof(*attr.md_resources));
    if (attr.md_resources == NULL) {
        return;
    }
    if (uct_component_query(component, &attr) == UCS_OK) {
        for (i = 0; i < attr.md_resource_count; ++i) {
            search_md(md, search, component, attr.md_resources[i].md_name);
        }
    }
    free(attr.md_resources);
}

static int by_number(const void *a, const void *b)
{
    return ((const uct_mpath_rail_t *)a)->number - ((const uct_mpath_rail_t *)b)->number;
}

ucs_status_t uct_mpath_md_find_rails(uct_mpath_md_t *md, const uct_mpath_md_config_t *config)
{
    search_t search = {.transports = &config->rail_tls, .rma_transports = &config->rma_tls};
    uct_component_h *components;
    uct_mpath_child_md_t *child;
    unsigned count, i, all;
    ucs_status_t status;

    mpath_log_set_level(MPATH_LOG_ERROR); /* what is wrong with a rail is said below, in UCX's own log */
    all = list_wanted(&search, config);
    if (search.num_wanted == 0) {
        return UCS_OK;
    }
    status = uct_query_components(&components, &count);
    if (status != UCS_OK) {
        return status;
    }
    for (i = 0; i < count; ++i) {
        search_component(md, &search, components[i]);
    }
    uct_release_component_list(components);
    for (i = 0; i < search.num_wanted; ++i) {
        if (search.wanted[i].rank < 0) {
            if (config->rails != NULL && config->rails[0] != '\0') {
                ucs_warn("mpath: no transport of UCX_MPATH_RAIL_TLS drives device %s of UCX_MPATH_RAILS; left out",
                         search.wanted[i].device);
            }
            continue;
        }
        md->rails[md->num_rails] = md->rails[i];
        memcpy(md->rails[md->num_rails].device, search.wanted[i].device, sizeof(search.wanted[i].device));
        md->rails[md->num_rails].number   = search.wanted[i].number;
        md->rails[md->num_rails].rate_bps = search.wanted[i].rate_bps;
        if (search.wanted[i].rma_rank >= 0) {
            child            = &md->children[md->rails[i].rma_child];
            child->registers = child->need_memh || child->rkey_bytes > 0;
        }
        ++md->num_rails;
    }
    md->num_left_out = all - md->num_rails;
    qsort(md->rails, md->num_rails, sizeof(md->rails[0]), by_number);
    return UCS_OK;
}

void uct_mpath_md_close_children(uct_mpath_md_t *md)
{
    while (md->num_children > 0) {
        uct_md_close(md->children[--md->num_children].md);
    }
    md->num_rails = 0;
}
