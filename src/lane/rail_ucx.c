/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX for one rail: a context that sees a single device, and its worker. Settings that mpath depends on are put into
 * the context's configuration, which goes before the environment: UCX_TLS, UCX_NET_DEVICES and the like are meant for
 * the MPI library's own use of UCX.
 */
#include "lane/rail_gpu.h"
#include "lane/rail_private.h"
#include "util/log.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAIL_LIST_MAX 512
#define RAIL_GPU_TLS ",cuda_copy" /* with it a context knows CUDA memory; cuda_ipc would go past the NIC */
#define RAIL_ALL_DEVICES "all"
#define RAIL_SHARED_MEMORY "memory" /* UCX's name of the device that transports inside a host have */

/* From this minor version of UCX 1 on, settings of a transport are known with the transport's prefix. */
#define RAIL_UCX_MINOR_PREFIXED 17
/* From this minor version on, UCX leaves the GIDs of Soft-RoCE alone. */
#define RAIL_UCX_MINOR_NO_DGID_CHECK 19

static mpath_status_t ucx_set(const rail_t *rail, ucp_config_t *config, const char *name, const char *value)
{
    ucs_status_t status = ucp_config_modify(config, name, value);

    if (status != UCS_OK) {
        mpath_error("rail %s: UCX does not accept %s=%s: %s; the rail is not used", rail->nic, name, value,
                    ucs_status_string(status));
        return MPATH_ERR_UNSUPPORTED;
    }
    return MPATH_OK;
}

static mpath_status_t ucx_set_transport(const rail_t *rail, ucp_config_t *config, const char *prefix, const char *name,
                                        const char *value)
{
    unsigned major, minor, release;
    char full[64];

    ucp_get_version(&major, &minor, &release);
    if ((major == 1) && (minor < RAIL_UCX_MINOR_PREFIXED)) {
        prefix = "";
    }
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    return ucx_set(rail, config, full, value);
}

/*
 * A slow NIC's receive buffers are fixed, which bounds what is on its way on a connection, the same at both ends. With
 * windows that grow by themselves hundreds of milliseconds of data pile up before the NIC; when they go both ways the
 * acknowledgements wait behind them, and the direction whose window happens to be smaller runs dry. The send buffers
 * grow, so that the kernel always has something to send. 256 KiB are 2 ms of the fastest NIC that counts as slow, more
 * than a round trip in a cluster.
 */
#define RAIL_SLOW_BPS 125000000u
#define RAIL_SLOW_RECEIVE_BUFFER "256k"

/*
 * TCP: eager only, since rendezvous halves two-way traffic; never from UCX's own buffers, which need progress to get
 * out (see rail_transfer.c); and connecting may not block the process.
 */
static mpath_status_t ucx_configure_tcp(const rail_t *rail, int gpu_memory, ucp_config_t *config)
{
    /* GPU memory has to go by rendezvous: there each send says what it wants (rail_transfer.c) */
    mpath_status_t status = gpu_memory ? MPATH_OK : ucx_set(rail, config, "RNDV_THRESH", "inf");

    if (status == MPATH_OK) {
        status = ucx_set(rail, config, "ZCOPY_THRESH", "0");
    }
    if (status == MPATH_OK) {
        status = ucx_set_transport(rail, config, "TCP_", "PUT_ENABLE", "n");
    }
    if (status == MPATH_OK) {
        status = ucx_set_transport(rail, config, "TCP_", "CONN_NB", "y");
    }
    if ((status == MPATH_OK) && (rail->rate_bps > 0) && (rail->rate_bps <= RAIL_SLOW_BPS)) {
        status = ucx_set_transport(rail, config, "TCP_", "RCVBUF", RAIL_SLOW_RECEIVE_BUFFER);
    }
    return status;
}

static mpath_status_t ucx_configure_ib(const rail_t *rail, ucp_config_t *config)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    if ((major == 1) && (minor < RAIL_UCX_MINOR_PREFIXED)) {
        /* The setting is in the table of all UD transports, whose own prefix these releases want. */
        return ucx_set(rail, config, "UD_ETH_DGID_CHECK", "n");
    }
    if ((major == 1) && (minor < RAIL_UCX_MINOR_NO_DGID_CHECK)) {
        return ucx_set_transport(rail, config, "UD_VERBS_", "ETH_DGID_CHECK", "n");
    }
    return MPATH_OK;
}

/* Transports in shared memory notice that a process has ended if they are told to. */
static mpath_status_t ucx_configure_shared_memory(const rail_t *rail, ucp_config_t *config)
{
    unsigned major, minor, release;
    mpath_status_t status;

    ucp_get_version(&major, &minor, &release);
    if ((major == 1) && (minor < RAIL_UCX_MINOR_PREFIXED)) {
        return ucx_set(rail, config, "MM_ERROR_HANDLING", "y"); /* by the prefix of the table that both share */
    }
    status = ucx_set(rail, config, "POSIX_ERROR_HANDLING", "y");
    return (status == MPATH_OK) ? ucx_set(rail, config, "SYSV_ERROR_HANDLING", "y") : status;
}

typedef enum device_kind {
    DEVICE_INTERFACE,     /* of the network */
    DEVICE_SHARED_MEMORY, /* between virtual nodes on one host */
    DEVICE_PORT           /* of an InfiniBand or RoCE device */
} device_kind_t;

static device_kind_t kind_of(const rail_t *rail)
{
    if (if_nametoindex(rail->nic) != 0) {
        return DEVICE_INTERFACE;
    }
    return (strcmp(rail->nic, RAIL_SHARED_MEMORY) == 0) ? DEVICE_SHARED_MEMORY : DEVICE_PORT;
}

static mpath_status_t ucx_configure(const rail_t *rail, const char *tls, int gpu_memory, ucp_config_t *config)
{
    switch (kind_of(rail)) {
    case DEVICE_INTERFACE:
        return (strcmp(tls, "tcp") == 0) ? ucx_configure_tcp(rail, gpu_memory, config) : MPATH_OK;
    case DEVICE_SHARED_MEMORY:
        return ucx_configure_shared_memory(rail, config);
    default:
        return ucx_configure_ib(rail, config);
    }
}

/* A device of one class, and none of the other, whatever the transports. */
static mpath_status_t ucx_set_device(const rail_t *rail, ucp_config_t *config, const char *device)
{
    int is_all = strcmp(device, RAIL_ALL_DEVICES) == 0, in_memory = kind_of(rail) == DEVICE_SHARED_MEMORY;
    mpath_status_t status = ucx_set(rail, config, "NET_DEVICES", (is_all || !in_memory) ? device : "");

    return (status == MPATH_OK) ? ucx_set(rail, config, "SHM_DEVICES", (is_all || in_memory) ? device : "") : status;
}

static mpath_status_t ucx_init(const rail_t *rail, const char *device, const char *tls, int gpu_memory,
                               ucp_context_h *context_p)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    char with_memory[RAIL_LIST_MAX];
    mpath_status_t status;
    ucp_config_t *config;
    ucs_status_t ucx;

    snprintf(with_memory, sizeof(with_memory), "%s%s", tls, gpu_memory ? RAIL_GPU_TLS : "");

    ucx = ucp_config_read(NULL, NULL, &config);
    if (ucx != UCS_OK) {
        mpath_error("rail %s: ucp_config_read failed: %s; the rail is not used", rail->nic, ucs_status_string(ucx));
        return MPATH_ERR_IO;
    }
    status = ucx_set_device(rail, config, device);
    if (status == MPATH_OK) {
        status = ucx_set(rail, config, "TLS", with_memory);
    }
    if (status == MPATH_OK) {
        status = ucx_set(rail, config, "SOCKADDR_TLS_PRIORITY", "");
    }
    if (status == MPATH_OK) {
        status = ucx_configure(rail, tls, gpu_memory, config);
    }
    if ((status == MPATH_OK) && gpu_memory) {
        /* It would look for the whole allocation in a cache that sees only the calls of programs linked with CUDA. */
        status = ucx_set(rail, config, "MEMTYPE_REG_WHOLE_ALLOC_TYPES", "");
    }
    if (status == MPATH_OK) {
        ucx    = ucp_init(&params, config, context_p);
        status = (ucx == UCS_OK) ? MPATH_OK : MPATH_ERR_UNSUPPORTED;
    }
    ucp_config_release(config);
    return status;
}

/*
 * Collects "transport/device" of a context's resources, the device's part only where `device` names it;
 * comma-separated. UCP has no query for them, only this text.
 */
static void ucx_list(ucp_context_h context, const char *device, char *list, size_t size)
{
    char *text   = NULL, *line, *rest, *resource, *slash;
    size_t bytes = 0, length;
    FILE *stream = open_memstream(&text, &bytes);

    list[0] = '\0';
    if (stream == NULL) {
        return;
    }
    ucp_context_print_info(context, stream);
    fclose(stream);
    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        resource = strstr(line, "-- ");
        if ((strstr(line, "resource") == NULL) || (resource == NULL)) {
            continue;
        }
        resource += strlen("-- ");
        slash = strchr(resource, '/');
        if ((slash == NULL) || ((device != NULL) && (strcmp(slash + 1, device) != 0))) {
            continue;
        }
        if (device != NULL) {
            *slash = '\0';
        }
        length = strlen(list);
        snprintf(list + length, size - length, "%s%s", (length > 0) ? "," : "", resource);
    }
    free(text);
}

/* The error says what there is instead. */
static void ucx_report_no_device(const rail_t *rail, const char *tls)
{
    char list[RAIL_LIST_MAX] = "";
    ucp_context_h context;

    if (ucx_init(rail, RAIL_ALL_DEVICES, "all", 0, &context) == MPATH_OK) {
        ucx_list(context, NULL, list, sizeof(list));
        ucp_cleanup(context);
    }
    mpath_error("rail %s: UCX has no transport '%s' on a device of this name; the rail is not used; UCX offers: %s",
                rail->nic, tls, (list[0] != '\0') ? list : "nothing");
}

static mpath_status_t ucx_create_worker(rail_t *rail)
{
    ucp_worker_params_t params     = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                      .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                                    UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id    = RAIL_AM_ID,
                                      .flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
                                      .cb    = rail_arrived,
                                      .arg   = rail};
    ucp_worker_attr_t attributes   = {.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE |
                                                    UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucp_am_handler_param_t trial   = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id  = RAIL_TRIAL_AM_ID,
                                      .cb  = rail_trial_arrived,
                                      .arg = rail};
    ucs_status_t status;

    status = ucp_worker_create(rail->context, &params, &rail->worker);
    if (status != UCS_OK) {
        mpath_error("rail %s: ucp_worker_create failed: %s; the rail is not used", rail->nic,
                    ucs_status_string(status));
        rail->worker = NULL;
        return MPATH_ERR_UNSUPPORTED;
    }
    status = ucp_worker_query(rail->worker, &attributes);
    if ((status == UCS_OK) &&
        ((attributes.thread_mode == UCS_THREAD_MODE_SINGLE) || (attributes.max_am_header < sizeof(rail_wire_t)))) {
        status = UCS_ERR_UNSUPPORTED;
    }
    if (status == UCS_OK) {
        status = ucp_worker_set_am_recv_handler(rail->worker, &handler);
    }
    if ((status == UCS_OK) && rail->has_cuda) {
        status = ucp_worker_set_am_recv_handler(rail->worker, &trial);
    }
    if (status != UCS_OK) {
        mpath_error("rail %s: UCX has no usable active messages here: %s; the rail is not used", rail->nic,
                    ucs_status_string(status));
        return MPATH_ERR_UNSUPPORTED;
    }
    return MPATH_OK;
}

/* A context that knows CUDA memory and has the NIC; else the caller makes one without. */
static int ucx_open_for_gpus(rail_t *rail, const char *tls)
{
    ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    char list[RAIL_NAME_MAX];

    if (!mpath_rail_gpu_ucx() || (ucx_init(rail, rail->nic, tls, 1, &rail->context) != MPATH_OK)) {
        return 0;
    }
    ucx_list(rail->context, rail->nic, list, sizeof(list));
    if ((list[0] == '\0') || (ucp_context_query(rail->context, &attributes) != UCS_OK) ||
        !(attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA))) {
        ucp_cleanup(rail->context);
        return 0;
    }
    rail->has_cuda = 1;
    rail->eager    = strcmp(tls, "tcp") == 0;
    return 1;
}

mpath_status_t rail_ucx_open(rail_t *rail, const char *tls, int gpu_memory)
{
    static const char *const default_tls[] = {
        [DEVICE_INTERFACE] = "tcp", [DEVICE_SHARED_MEMORY] = "shm", [DEVICE_PORT] = "ib"};
    char list[RAIL_NAME_MAX];
    mpath_status_t status = MPATH_OK;

    if (tls == NULL) {
        tls = default_tls[kind_of(rail)];
    }
    if (!gpu_memory || !ucx_open_for_gpus(rail, tls)) {
        status = ucx_init(rail, rail->nic, tls, 0, &rail->context);
    }
    if (status != MPATH_OK) {
        rail->context = NULL;
        if (status == MPATH_ERR_UNSUPPORTED) {
            ucx_report_no_device(rail, tls);
        }
        return status;
    }
    ucx_list(rail->context, rail->nic, list, sizeof(list));
    snprintf(rail->description, sizeof(rail->description), "%s on %s", (list[0] != '\0') ? list : tls, rail->nic);
    status = ucx_create_worker(rail);
    if (status != MPATH_OK) {
        rail_ucx_close(rail);
    }
    return status;
}

void rail_ucx_close(rail_t *rail)
{
    if (rail->worker != NULL) {
        ucp_worker_destroy(rail->worker);
        rail->worker = NULL;
    }
    if (rail->context != NULL) {
        rail_memory_drop(rail);
        ucp_cleanup(rail->context);
        rail->context = NULL;
    }
}
