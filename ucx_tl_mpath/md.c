/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory domain and the component it belongs to.
 *
 * Rails: the NICs that the topology names, or those that the user lists, and for each the first of the wanted transports
 * of UCX that drives it. Memory domains in which nothing is found are closed again.
 *
 * Keys of registered memory: those of the memory domains behind all rails in one,
 *
 *     region (64 bits, for accesses by messages), rails that follow (16 bits), for each in order: length (8 bits), key
 *
 * as many as fit into what UCP can carry. A rail without a key does its puts and gets by messages.
 *
 * Memory is registered with the memory domains of those rails that do remote access by themselves, and in the table of
 * regions for puts and gets that are messages and that the process of the peer serves. With messages only, memory can be
 * invalidated: it is taken out of the table. UCP needs that to read memory remotely where an endpoint may fail, and
 * sends the data as active messages otherwise.
 *
 * This library fits the minor release of UCX that it was compiled against and no other, so the first thing it does is to
 * ask which one it got into; another one is left alone, with one line.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif
#include "ucx_tl_mpath/md.h"
#include "ucx_tl_mpath/iface.h"

#include "topo/discover/machine.h"
#include "util/log.h"

#include <dlfcn.h>
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

/* Fills the table of rails and opens the memory domains behind them. */
static ucs_status_t md_find_rails(uct_mpath_md_t *md, const uct_mpath_md_config_t *config)
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

static void md_close_children(uct_mpath_md_t *md)
{
    while (md->num_children > 0) {
        uct_md_close(md->children[--md->num_children].md);
    }
    md->num_rails = 0;
}

#define HEAD_BYTES (sizeof(uint64_t) + sizeof(uint16_t))
#define MAX_PACKED_BYTES 240 /* UCP keeps the length in a byte */

/* Keys are unpacked without a memory domain, so the process remembers what its rails are made of. */
static uct_component_h rail_components[UCT_MPATH_MAX_RAILS];

static void rkey_init(uct_mpath_md_t *md)
{
    size_t bytes = HEAD_BYTES;
    const uct_mpath_child_md_t *child;
    uct_mpath_rail_t *rail;
    unsigned i;

    for (i = 0; i < md->num_rails; ++i) {
        rail = &md->rails[i];
        if (rail->rma_transport[0] == '\0') {
            continue;
        }
        child                         = &md->children[rail->rma_child];
        rail_components[rail->number] = child->component;
        if (child->rkey_bytes == 0 || child->rkey_bytes > UINT8_MAX ||
            bytes + 1 + child->rkey_bytes > MAX_PACKED_BYTES) {
            continue;
        }
        rail->has_rkey = 1;
        bytes += 1 + child->rkey_bytes;
    }
    md->rkey_bytes = bytes;
}

/* buffer: md->rkey_bytes */
static ucs_status_t rkey_pack(const uct_mpath_md_t *md, uct_mem_h memh, void *buffer)
{
    const uct_mpath_memh_t *own = memh;
    uint8_t *to                 = (uint8_t *)buffer + HEAD_BYTES;
    uint16_t rails              = 0;
    const uct_mpath_rail_t *rail;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < md->num_rails; ++i) {
        rail = &md->rails[i];
        if (!rail->has_rkey) {
            continue;
        }
        status = uct_md_mkey_pack(md->children[rail->rma_child].md, uct_mpath_child_memh(memh, rail->rma_child),
                                  to + 1);
        if (status != UCS_OK) {
            return status;
        }
        rails |= (uint16_t)(1u << rail->number);
        *to = (uint8_t)md->children[rail->rma_child].rkey_bytes;
        to += 1 + *to;
    }
    memcpy(buffer, &own->region, sizeof(own->region));
    memcpy((uint8_t *)buffer + sizeof(own->region), &rails, sizeof(rails));
    return UCS_OK;
}

static void release(uct_mpath_rkey_t *rkey)
{
    uint64_t rest;
    int number;

    for (rest = rkey->rails; rest != 0; rest &= rest - 1) {
        number = __builtin_ctzll(rest);
        uct_rkey_release(rkey->component[number], &rkey->child[number]);
    }
    free(rkey);
}

static ucs_status_t rkey_unpack(const void *buffer, uct_rkey_t *rkey_p, void **handle_p)
{
    const uint8_t *from = (const uint8_t *)buffer + HEAD_BYTES;
    uct_mpath_rkey_t *rkey;
    ucs_status_t status;
    uint16_t rails;
    int number;

    *rkey_p   = 0;
    *handle_p = NULL;
    rkey      = calloc(1, sizeof(*rkey));
    if (rkey == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memcpy(&rkey->region, buffer, sizeof(rkey->region));
    memcpy(&rails, (const uint8_t *)buffer + sizeof(rkey->region), sizeof(rails));
    for (; rails != 0; rails &= (uint16_t)(rails - 1), from += 1 + *from) {
        number = __builtin_ctz(rails);
        if (rail_components[number] == NULL) {
            continue; /* the peer has a rail that is not here */
        }
        status = uct_rkey_unpack(rail_components[number], from + 1, &rkey->child[number]);
        if (status != UCS_OK) {
            release(rkey);
            return status;
        }
        rkey->component[number] = rail_components[number];
        rkey->rails |= UCS_BIT(number);
    }
    *rkey_p   = (uct_rkey_t)rkey;
    *handle_p = rkey;
    return UCS_OK;
}

static void rkey_release(void *handle)
{
    if (handle != NULL) {
        release(handle);
    }
}

static const char *const access_names[] = {
    [UCT_MPATH_ACCESS_ALL] = "all", [UCT_MPATH_ACCESS_AFFINE] = "affine", [UCT_MPATH_ACCESS_LAST] = NULL};

ucs_config_field_t uct_mpath_md_config_table[] = {
    {"", "", NULL, ucs_offsetof(uct_mpath_md_config_t, super), UCS_CONFIG_TYPE_TABLE(uct_md_config_table)},

    {"RAILS", "",
     "Comma-separated devices to use as rails (\"rail0,rail1\", \"mlx5_0:1,mlx5_1:1\"). The position in the\n"
     "list is the number of the rail, so it has to be the same on all nodes. Empty: every usable NIC, as\n"
     "coll/mpath finds them, in the order of the names.",
     ucs_offsetof(uct_mpath_md_config_t, rails), UCS_CONFIG_TYPE_STRING},

    {"RAIL_RATES", "",
     "Rate of the rails in bytes per second before any was measured: one value for all (\"25m\"), values of\n"
     "named devices (\"rail0=25m,rail1=6250k\") or both. Empty: as the system reports it.",
     ucs_offsetof(uct_mpath_md_config_t, rail_rates), UCS_CONFIG_TYPE_STRING},

    {"ACCESS", "all",
     "\"all\": a process drives all rails; \"affine\": only the one beside it, as parameter coll_mpath_access, and\n"
     "the others through processes of its node (UCX_MPATH_RELAYS).",
     ucs_offsetof(uct_mpath_md_config_t, access), UCS_CONFIG_TYPE_ENUM(access_names)},

    {"RAIL_TLS", "ud_mlx5,ud_verbs,tcp,posix",
     "Transports that may drive a rail; each device gets the first of these that it has.",
     ucs_offsetof(uct_mpath_md_config_t, rail_tls), UCS_CONFIG_TYPE_STRING_ARRAY},

    {"RMA_TLS", "rc_mlx5,rc_verbs",
     "Transports by which a rail may do puts and gets in the peer's memory without its process, beside the one of its\n"
     "messages; each device gets the first of these that it has. Empty: puts and gets are messages.",
     ucs_offsetof(uct_mpath_md_config_t, rma_tls), UCS_CONFIG_TYPE_STRING_ARRAY},

    {NULL}};

#if HAVE_DECL_UCT_MD_FLAG_INVALIDATE_RMA
#define FLAG_INVALIDATE UCT_MD_FLAG_INVALIDATE_RMA
#else
#define FLAG_INVALIDATE UCT_MD_FLAG_INVALIDATE
#endif

static uint64_t md_flags(const uct_mpath_md_t *md)
{
    return UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_RKEY | (md->registers ? UCT_MD_FLAG_NEED_MEMH : FLAG_INVALIDATE);
}

#if HAVE_UCT_MD_QUERY_V2
static ucs_status_t md_query(uct_md_h tl_md, uct_md_attr_v2_t *attr)
{
    const uct_mpath_md_t *md = ucs_derived_of(tl_md, uct_mpath_md_t);

#if HAVE_DECL_UCT_MD_BASE_MD_QUERY
    uct_md_base_md_query(attr);
#else
    attr->flags            = 0;
    attr->max_alloc        = 0;
    attr->alloc_mem_types  = 0;
    attr->detect_mem_types = 0;
    attr->dmabuf_mem_types = 0;
    memset(&attr->local_cpus, 0xff, sizeof(attr->local_cpus));
#endif
    attr->flags |= md_flags(md);
    attr->max_reg                = ULONG_MAX;
    attr->reg_mem_types          = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->reg_nonblock_mem_types = 0;
    attr->access_mem_types       = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cache_mem_types        = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->rkey_packed_size       = md->rkey_bytes;
    attr->reg_cost               = ucs_linear_func_make(0, 0);
    return UCS_OK;
}
#else
static ucs_status_t md_query(uct_md_h tl_md, uct_md_attr_t *attr)
{
    const uct_mpath_md_t *md = ucs_derived_of(tl_md, uct_mpath_md_t);

    memset(&attr->cap, 0, sizeof(attr->cap));
    attr->cap.flags            = md_flags(md);
    attr->cap.max_reg          = ULONG_MAX;
    attr->cap.reg_mem_types    = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cap.access_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->rkey_packed_size     = md->rkey_bytes;
    attr->reg_cost             = ucs_linear_func_make(0, 0);
    memset(&attr->local_cpus, 0xff, sizeof(attr->local_cpus));
    return UCS_OK;
}
#endif

static void deregister_first(uct_mpath_md_t *md, uct_mpath_memh_t *memh, unsigned count)
{
    while (count-- > 0) {
        if (memh->child[count] != UCT_MEM_HANDLE_NULL) {
            uct_md_mem_dereg(md->children[count].md, memh->child[count]);
        }
    }
    free(memh);
}

static ucs_status_t md_register(uct_mpath_md_t *md, void *address, size_t length, unsigned flags, uct_mem_h *memh_p)
{
    uct_mpath_memh_t *memh;
    ucs_status_t status;
    unsigned child;

    memh = calloc(1, sizeof(*memh));
    if (memh == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    for (child = 0; child < md->num_children; ++child) {
        if (!md->children[child].registers) {
            continue;
        }
        status = uct_md_mem_reg(md->children[child].md, address, length, flags, &memh->child[child]);
        if (status != UCS_OK) {
            goto err_deregister;
        }
    }
    if (mpath_regions_add(&md->regions, address, length, &memh->region) != MPATH_OK) {
        status = UCS_ERR_NO_MEMORY;
        goto err_deregister;
    }
    *memh_p = memh;
    return UCS_OK;

err_deregister:
    deregister_first(md, memh, child);
    return status;
}

#if HAVE_UCT_MEM_REG_PARAMS
static ucs_status_t md_mem_reg(uct_md_h tl_md, void *address, size_t length, const uct_md_mem_reg_params_t *params,
                               uct_mem_h *memh_p)
{
    uint64_t flags = (params->field_mask & UCT_MD_MEM_REG_FIELD_FLAGS) ? params->flags : 0;

    return md_register(ucs_derived_of(tl_md, uct_mpath_md_t), address, length, (unsigned)flags, memh_p);
}
#else
static ucs_status_t md_mem_reg(uct_md_h tl_md, void *address, size_t length, unsigned flags, uct_mem_h *memh_p)
{
    return md_register(ucs_derived_of(tl_md, uct_mpath_md_t), address, length, flags, memh_p);
}
#endif

static ucs_status_t md_mem_dereg(uct_md_h tl_md, const uct_md_mem_dereg_params_t *params)
{
    uct_mpath_md_t *md = ucs_derived_of(tl_md, uct_mpath_md_t);
    uct_mpath_memh_t *memh;

    UCT_MD_MEM_DEREG_CHECK_PARAMS(params, !md->registers);
    memh = params->memh;
    mpath_regions_remove(&md->regions, memh->region);
    deregister_first(md, memh, md->num_children);
    if (UCT_MD_MEM_DEREG_FIELD_VALUE(params, flags, FIELD_FLAGS, 0) & UCT_MD_MEM_DEREG_FLAG_INVALIDATE) {
        uct_invoke_completion(params->comp, UCS_OK);
    }
    return UCS_OK;
}

#if HAVE_UCT_MKEY_PACK_RANGE
static ucs_status_t md_mkey_pack(uct_md_h tl_md, uct_mem_h memh, void *address, size_t length,
                                 const uct_md_mkey_pack_params_t *params, void *buffer)
{
    (void)address;
    (void)length;
#else
static ucs_status_t md_mkey_pack(uct_md_h tl_md, uct_mem_h memh, const uct_md_mkey_pack_params_t *params, void *buffer)
{
#endif
    (void)params;
    return rkey_pack(ucs_derived_of(tl_md, uct_mpath_md_t), memh, buffer);
}

static void md_close(uct_md_h tl_md)
{
    uct_mpath_md_t *md = ucs_derived_of(tl_md, uct_mpath_md_t);

    md_close_children(md);
    mpath_regions_release(&md->regions);
    free(md);
}

static uct_md_ops_t md_ops = {
    .close      = md_close,
    .query      = md_query,
    .mem_alloc  = (uct_md_mem_alloc_func_t)ucs_empty_function_return_unsupported,
    .mem_free   = (uct_md_mem_free_func_t)ucs_empty_function_return_unsupported,
    .mem_advise = (uct_md_mem_advise_func_t)ucs_empty_function_return_unsupported,
    .mem_reg    = md_mem_reg,
    .mem_dereg  = md_mem_dereg,
    .mem_query  = (uct_md_mem_query_func_t)ucs_empty_function_return_unsupported,
    .mkey_pack  = md_mkey_pack,
#if HAVE_UCT_MD_OPS_T_MEM_ATTACH
    .mem_attach = (uct_md_mem_attach_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_MD_OPS_T_IS_SOCKADDR_ACCESSIBLE
    .is_sockaddr_accessible = (uct_md_is_sockaddr_accessible_func_t)ucs_empty_function_return_zero_int,
#endif
#if HAVE_UCT_MD_OPS_T_MEM_ELEM_PACK
    .mem_elem_pack = (uct_md_mem_elem_pack_func_t)ucs_empty_function_return_unsupported,
#endif
#if HAVE_UCT_MD_OPS_T_MEM_ELEM_RELEASE
    .mem_elem_release = (uct_md_mem_elem_release_func_t)ucs_empty_function,
#endif
    .detect_memory_type = (uct_md_detect_memory_type_func_t)ucs_empty_function_return_unsupported,
};

static ucs_status_t md_open(uct_component_t *component, const char *md_name, const uct_md_config_t *config,
                            uct_md_h *md_p)
{
    uct_mpath_md_t *md = calloc(1, sizeof(*md));
    ucs_status_t status;
    unsigned child;

    (void)md_name;
    if (md == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    md->super.ops       = &md_ops;
    md->super.component = component;
    if (mpath_regions_init(&md->regions) != MPATH_OK) {
        status = UCS_ERR_NO_MEMORY;
        goto err_free;
    }
    status = md_find_rails(md, ucs_derived_of(config, uct_mpath_md_config_t));
    if (status != UCS_OK) {
        goto err_release;
    }
    for (child = 0; child < md->num_children; ++child) {
        md->registers |= md->children[child].registers;
    }
    rkey_init(md);
    *md_p = &md->super;
    return UCS_OK;

err_release:
    mpath_regions_release(&md->regions);
err_free:
    free(md);
    return status;
}

#if HAVE_UCT_RKEY_UNPACK_PARAMS
static ucs_status_t component_rkey_unpack(uct_component_t *mpath_component, const void *rkey_buffer,
                                          const uct_rkey_unpack_params_t *params, uct_rkey_t *rkey_p, void **handle_p)
{
    (void)params;
#else
static ucs_status_t component_rkey_unpack(uct_component_t *mpath_component, const void *rkey_buffer, uct_rkey_t *rkey_p,
                                          void **handle_p)
{
#endif
    (void)mpath_component;
    return rkey_unpack(rkey_buffer, rkey_p, handle_p);
}

static ucs_status_t component_rkey_release(uct_component_t *mpath_component, uct_rkey_t rkey, void *handle)
{
    (void)mpath_component;
    (void)rkey;
    rkey_release(handle);
    return UCS_OK;
}

static ucs_status_t query_devices(uct_md_h tl_md, uct_tl_device_resource_t **devices_p, unsigned *num_devices_p)
{
    const uct_mpath_md_t *md = ucs_derived_of(tl_md, uct_mpath_md_t);

    if (md->num_rails == 0) {
        *devices_p     = NULL;
        *num_devices_p = 0;
        return UCS_OK;
    }
    return uct_single_device_resource(tl_md, "rails", UCT_DEVICE_TYPE_NET, UCS_SYS_DEVICE_ID_UNKNOWN, devices_p,
                                      num_devices_p);
}

static uct_component_t mpath_component = {
    .name               = "mpath",
    .query_md_resources = uct_md_query_single_md_resource,
    .md_open            = md_open,
    .cm_open            = (uct_component_cm_open_func_t)ucs_empty_function_return_unsupported,
    .rkey_unpack        = component_rkey_unpack,
    .rkey_ptr           = (uct_component_rkey_ptr_func_t)ucs_empty_function_return_unsupported,
    .rkey_release       = component_rkey_release,
#if HAVE_UCT_COMPONENT_T_RKEY_COMPARE
    .rkey_compare = uct_base_rkey_compare,
#endif
    .md_config =
        {
            .name   = "mpath memory domain",
            .prefix = "MPATH_",
            .table  = uct_mpath_md_config_table,
            .size   = sizeof(uct_mpath_md_config_t),
        },
    .cm_config   = UCS_CONFIG_EMPTY_GLOBAL_LIST_ENTRY,
    .tl_list     = UCT_COMPONENT_TL_LIST_INITIALIZER(&mpath_component),
    .md_vfs_init = (uct_component_md_vfs_init_func_t)ucs_empty_function,
};

static UCT_TL_DEFINE_ENTRY(&mpath_component, mpath, query_devices, uct_mpath_iface_t, "MPATH_",
                           uct_mpath_iface_config_table, uct_mpath_iface_config_t)

    static int registered;

/* UCT cannot be asked for its version; UCP, which comes from the same build, can. */
static int right_release(void)
{
    void (*get_version)(unsigned *, unsigned *, unsigned *) = NULL;
    unsigned major, minor, patch;
    void *ucp = NULL;

    *(void **)&get_version = dlsym(RTLD_DEFAULT, "ucp_get_version");
    if (get_version == NULL && (ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL)) != NULL) {
        *(void **)&get_version = dlsym(ucp, "ucp_get_version");
    }
    if (get_version == NULL) {
        fprintf(stderr, "mpath: this process has UCT without UCP, whose version is not known; no transport mpath\n");
        return 0;
    }
    get_version(&major, &minor, &patch);
    if (major != UCT_VERNO_MAJOR || minor != UCT_VERNO_MINOR) {
        fprintf(stderr, "mpath: the transport is built for UCX %d.%d and this is UCX %u.%u; no transport mpath\n",
                UCT_VERNO_MAJOR, UCT_VERNO_MINOR, major, minor);
        return 0;
    }
    return 1;
}

static void __attribute__((constructor)) join(void)
{
    if (right_release()) {
        registered = 1;
        uct_component_register(&mpath_component);
        uct_tl_register(&mpath_component, &UCT_TL_NAME(mpath));
    }
}

static void __attribute__((destructor)) leave(void)
{
    if (registered) {
        uct_tl_unregister(&UCT_TL_NAME(mpath));
        uct_component_unregister(&mpath_component);
    }
}
