/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The component and how it joins UCX. This library fits the minor release of UCX that it was compiled against and no
 * other, so the first thing it does is to ask which one it got into; another one is left alone, with one line.
 */
#include "ucx_tl_mpath/iface.h"

#include <dlfcn.h>

#if HAVE_UCT_RKEY_UNPACK_PARAMS
static ucs_status_t rkey_unpack(uct_component_t *component, const void *rkey_buffer,
                                const uct_rkey_unpack_params_t *params, uct_rkey_t *rkey_p, void **handle_p)
{
    (void)params;
#else
static ucs_status_t rkey_unpack(uct_component_t *component, const void *rkey_buffer, uct_rkey_t *rkey_p,
                                void **handle_p)
{
#endif
    (void)component;
    return uct_mpath_rkey_unpack(rkey_buffer, rkey_p, handle_p);
}

static ucs_status_t rkey_release(uct_component_t *component, uct_rkey_t rkey, void *handle)
{
    (void)component;
    (void)rkey;
    uct_mpath_rkey_release(handle);
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

static uct_component_t component = {
    .name               = "mpath",
    .query_md_resources = uct_md_query_single_md_resource,
    .md_open            = uct_mpath_md_open,
    .cm_open            = (uct_component_cm_open_func_t)ucs_empty_function_return_unsupported,
    .rkey_unpack        = rkey_unpack,
    .rkey_ptr           = (uct_component_rkey_ptr_func_t)ucs_empty_function_return_unsupported,
    .rkey_release       = rkey_release,
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
    .tl_list     = UCT_COMPONENT_TL_LIST_INITIALIZER(&component),
    .md_vfs_init = (uct_component_md_vfs_init_func_t)ucs_empty_function,
};

static UCT_TL_DEFINE_ENTRY(&component, mpath, query_devices, uct_mpath_iface_t, "MPATH_", uct_mpath_iface_config_table,
                           uct_mpath_iface_config_t)

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
        uct_component_register(&component);
        uct_tl_register(&component, &UCT_TL_NAME(mpath));
    }
}

static void __attribute__((destructor)) leave(void)
{
    if (registered) {
        uct_tl_unregister(&UCT_TL_NAME(mpath));
        uct_component_unregister(&component);
    }
}
