/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory registration, with the memory domains of those rails that do remote access by themselves, and in the table of
 * regions for puts and gets that are messages and that the peer's process serves.
 *
 * With messages only, memory can be invalidated: it is taken out of the table. UCP needs that to read memory remotely
 * where an endpoint may fail, and sends the data as active messages otherwise.
 */
#include "ucx_tl_mpath/md.h"

#include <stdlib.h>
#include <string.h>

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
    return uct_mpath_rkey_pack(ucs_derived_of(tl_md, uct_mpath_md_t), memh, buffer);
}

static void md_close(uct_md_h tl_md)
{
    uct_mpath_md_t *md = ucs_derived_of(tl_md, uct_mpath_md_t);

    uct_mpath_md_close_children(md);
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

ucs_status_t uct_mpath_md_open(uct_component_t *component, const char *md_name, const uct_md_config_t *config,
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
    status = uct_mpath_md_find_rails(md, ucs_derived_of(config, uct_mpath_md_config_t));
    if (status != UCS_OK) {
        goto err_release;
    }
    for (child = 0; child < md->num_children; ++child) {
        md->registers |= md->children[child].registers;
    }
    uct_mpath_rkey_init(md);
    *md_p = &md->super;
    return UCS_OK;

err_release:
    mpath_regions_release(&md->regions);
err_free:
    free(md);
    return status;
}
