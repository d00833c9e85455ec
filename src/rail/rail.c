/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "rail": opening a NIC, driving it, giving it up. The transfers are in rail/transfer.c, the peers in rail/peer.c.
 */
#include "rail/rail_private.h"

#include "rail/gpu_memory.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/time.h"

#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void rail_ucx_close(rail_t *rail);

/*
 * UCX for one rail: a context that sees a single device, and its worker. Settings that mpath depends on are put into
 * the context's configuration, which goes before the environment: UCX_TLS, UCX_NET_DEVICES and the like are meant for
 * the MPI library's own use of UCX.
 */

#define RAIL_LIST_MAX 512
#define RAIL_GPU_TLS ",cuda_copy" /* with it a context knows CUDA memory; cuda_ipc would go past the NIC */
#define RAIL_ALL_DEVICES "all"
#define RAIL_SHARED_MEMORY "memory" /* UCX's name of the device that transports inside a host have */

/* From this minor version of UCX 1 on, settings of a transport are known with the transport's prefix. */
#define RAIL_UCX_MINOR_PREFIXED 17

/* From this minor version on, UCX leaves the GIDs of Soft-RoCE alone. */
#define RAIL_UCX_MINOR_NO_DGID_CHECK 19

/* Why the rail is not used: for who opens it to say, or logged. */
static void rail_refuse(const rail_t *rail, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void rail_refuse(const rail_t *rail, const char *format, ...)
{
    char text[RAIL_NAME_MAX + RAIL_LIST_MAX + MPATH_RAIL_WHY_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    mpath_log((rail->why != NULL) ? MPATH_LOG_INFO : MPATH_LOG_ERROR, "rail %s: %s; the rail is not used", rail->nic,
              text);
    if (rail->why != NULL) {
        snprintf(rail->why, MPATH_RAIL_WHY_MAX, "%.*s", MPATH_RAIL_WHY_MAX - 1, text);
    }
}

static mpath_status_t ucx_set(const rail_t *rail, ucp_config_t *config, const char *name, const char *value)
{
    ucs_status_t status = ucp_config_modify(config, name, value);

    if (status != UCS_OK) {
        rail_refuse(rail, "UCX does not accept %s=%s: %s", name, value, ucs_status_string(status));
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
 * out (see rail/transfer.c); and connecting may not block the process.
 */
static mpath_status_t ucx_configure_tcp(const rail_t *rail, int gpu_memory, ucp_config_t *config)
{
    /* GPU memory has to go by rendezvous: there each send says what it wants (rail/transfer.c) */
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
        rail_refuse(rail, "ucp_config_read failed: %s", ucs_status_string(ucx));
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
    rail_refuse(rail, "UCX has no transport '%s' on a device of this name, but only %s", tls,
                (list[0] != '\0') ? list : "nothing");
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

    status = rail_socket_create_worker(rail, &params);
    if (status != UCS_OK) {
        rail_refuse(rail, "ucp_worker_create failed: %s", ucs_status_string(status));
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
        rail_refuse(rail, "UCX has no usable active messages here: %s", ucs_status_string(status));
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

/* rail/rail.c; logs. */
static mpath_status_t rail_ucx_open(rail_t *rail, const char *tls, int gpu_memory)
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
    rail->takes_writes = strstr(list, "tcp") != NULL;
    status             = ucx_create_worker(rail);
    if (status != MPATH_OK) {
        rail_ucx_close(rail);
    }
    return status;
}

/* rail/rail.c; logs. */
static void rail_ucx_close(rail_t *rail)
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

#define RAIL_WINDOW_CHUNKS 4
#define RAIL_WINDOW_BYTES (1u << 20)
#define RAIL_POLLS 4 /* of the worker per progress call while they bring something */
#define RAIL_GIVE_UP_NS MPATH_NS_PER_S

unsigned rail_poll(rail_t *rail)
{
    if (rail->closed_early) {
        rail_socket_end_closed(rail);
    }
    return ucp_worker_progress(rail->worker);
}

static int rail_progress(mpath_lane_t *base)
{
    rail_t *rail = (rail_t *)base;
    int polls;

    if (rail->worker == NULL) {
        return MPATH_ERR_UNREACHABLE;
    }
    rail->events = 0;
    rail_deliver_held(rail);
    for (polls = 0; (polls < RAIL_POLLS) && (rail->open_bytes <= rail->max_open_bytes); polls++) {
        if (rail_poll(rail) == 0) {
            break;
        }
    }
    rail_peers_clean(rail);
    if (rail->error != MPATH_OK) {
        return rail->error;
    }
    return rail->events;
}

/*
 * A peer that nothing was sent to is connected to, so that a dead one shows by refusing. Seldom asked: by a caller that
 * has waited a while.
 */
static mpath_status_t rail_peer_status(mpath_lane_t *base, int number)
{
    rail_t *rail = (rail_t *)base;
    mpath_status_t status;
    rail_peer_t *peer;

    if (rail->worker == NULL) {
        return MPATH_ERR_UNREACHABLE;
    }
    status = rail_peer_find(rail, number, &peer);
    if (status == MPATH_OK) {
        status = rail_peer_connect(peer);
    }
    return (status == MPATH_NO_RESOURCE) ? MPATH_OK : status;
}

static mpath_status_t rail_reserve(mpath_lane_t *base, int number, size_t bytes, void **slot_p)
{
    (void)base;
    (void)number;
    (void)bytes;
    (void)slot_p;
    return MPATH_ERR_UNSUPPORTED;
}

static void rail_commit(mpath_lane_t *base, int number, void *slot, const mpath_chunk_t *chunk)
{
    (void)base;
    (void)number;
    (void)slot;
    (void)chunk;
}

static size_t rail_max_chunk(const mpath_lane_t *base)
{
    return ((const rail_t *)base)->max_chunk_bytes;
}

/* Ends the worker: whatever UCX did not let go of before is out of its hands then. */
static void rail_close(rail_t *rail)
{
    int number;

    rail_drop_open(rail);
    rail_ucx_close(rail);
    for (number = 0; number < rail->num_peers; number++) {
        if (rail->peers[number] != NULL) {
            rail->peers[number]->ep     = NULL;
            rail->peers[number]->probe  = NULL;
            rail->peers[number]->status = MPATH_ERR_UNREACHABLE;
        }
    }
    while (rail->active != NULL) {
        rail_op_t *op = rail->active;

        rail_op_unlink(op);
        rail_op_finish(op, MPATH_ERR_UNREACHABLE);
    }
}

/* Progresses until no op is under way, for RAIL_GIVE_UP_NS at most; nonzero when it succeeded. */
static int rail_drain(rail_t *rail)
{
    uint64_t end_ns = mpath_time_ns() + RAIL_GIVE_UP_NS;

    rail->giving_up = 1;
    while ((rail->active != NULL) && (mpath_time_ns() < end_ns)) {
        rail_poll(rail);
    }
    rail->giving_up = 0;
    return rail->active == NULL;
}

static void give_peer_up(rail_peer_t *peer)
{
    if (peer->window_bytes > 0) {
        rail_peer_fail(peer, "given up with chunks under way");
        rail_peer_close(peer);
    }
}

void mpath_rail_abort_peer(mpath_lane_t *base, int number)
{
    rail_t *rail = (rail_t *)base;
    rail_peer_t *peer;

    if ((rail->worker != NULL) && (rail_peer_find(rail, number, &peer) == MPATH_OK)) {
        give_peer_up(peer);
    }
}

/*
 * Ends the connections on which something is under way; peers without stay. A rendezvous that is being fetched cannot
 * be called back: when the sender does not end it in time, the whole rail has to go.
 */
static void rail_abort(mpath_lane_t *base)
{
    rail_t *rail = (rail_t *)base;
    int number;

    if (rail->worker == NULL) {
        return;
    }
    for (number = 0; number < rail->num_peers; number++) {
        if (rail->peers[number] != NULL) {
            give_peer_up(rail->peers[number]);
        }
    }
    if (!rail_drain(rail)) {
        mpath_error("rail %s: UCX does not end the transfers under way within a second; the rail is closed, calls that "
                    "use it fail or do without it until it is opened anew",
                    rail->nic);
        rail_close(rail);
    }
}

#define RAIL_SETTLE_CPU_NS (MPATH_NS_PER_S / 5)
#define RAIL_SETTLE_NS (10 * MPATH_NS_PER_S)

/*
 * A peer may have begun to connect that this rank never sent to: UCX answers it by itself, and up to 1.13 at least it ends
 * the process when a worker is destroyed with the answer still in its queue. So what is queued goes out first; in vain where
 * the peer is gone. Counted in processor time, of which this thread and the peer may get little.
 */
static void rail_settle(rail_t *rail)
{
    ucp_request_param_t params = {.op_attr_mask = 0};
    uint64_t end_ns            = mpath_time_ns() + RAIL_SETTLE_NS;
    uint64_t end_cpu_ns        = mpath_time_cpu_ns() + RAIL_SETTLE_CPU_NS;
    void *request              = ucp_worker_flush_nbx(rail->worker, &params);

    if (!UCS_PTR_IS_PTR(request)) {
        return;
    }
    rail->giving_up = 1;
    while ((ucp_request_check_status(request) == UCS_INPROGRESS) && (mpath_time_cpu_ns() < end_cpu_ns) &&
           (mpath_time_ns() < end_ns)) {
        rail_poll(rail);
    }
    rail->giving_up = 0;
    ucp_request_free(request);
}

static void rail_destroy(mpath_lane_t *base)
{
    rail_t *rail = (rail_t *)base;
    int number;

    if (rail->worker != NULL) {
        rail_settle(rail);
        for (number = 0; number < rail->num_peers; number++) {
            if (rail->peers[number] != NULL) {
                rail->peers[number]->status = MPATH_ERR_UNREACHABLE;
                rail_peer_close(rail->peers[number]);
                rail_peer_probe_end(rail->peers[number]);
            }
        }
        rail_drain(rail);
    }
    if (rail->strangers > 0) {
        mpath_info("rail %s: %llu messages of senders that are none of this job's processes were dropped", rail->nic,
                   (unsigned long long)rail->strangers);
    }
    rail_close(rail);
    rail_transfer_destroy(rail);
    rail_peers_destroy(rail);
    free(rail->address);
    free(rail);
}

static const mpath_lane_ops_t rail_ops = {
    .name        = "rail",
    .kind        = MPATH_LANE_RAIL,
    .send        = rail_send,
    .reserve     = rail_reserve,
    .commit      = rail_commit,
    .progress    = rail_progress,
    .take        = rail_take,
    .release     = rail_release,
    .peer_status = rail_peer_status,
    .max_chunk   = rail_max_chunk,
    .abort       = rail_abort,
    .destroy     = rail_destroy,
};

static mpath_status_t rail_make_address(rail_t *rail)
{
    ucp_address_t *address;
    ucs_status_t status;
    size_t bytes;

    status = ucp_worker_get_address(rail->worker, &address, &bytes);
    if (status != UCS_OK) {
        rail_refuse(rail, "ucp_worker_get_address failed: %s", ucs_status_string(status));
        return MPATH_ERR_IO;
    }
    rail->address_bytes = sizeof(*rail->address) + bytes;
    if (rail->address_bytes > MPATH_RAIL_ADDRESS_MAX) {
        rail_refuse(rail, "the UCX address has %zu bytes, more than the limit of %d", bytes,
                    MPATH_RAIL_ADDRESS_MAX - (int)sizeof(*rail->address));
        ucp_worker_release_address(rail->worker, address);
        return MPATH_ERR_UNSUPPORTED;
    }
    rail->address = malloc(rail->address_bytes);
    if (rail->address == NULL) {
        ucp_worker_release_address(rail->worker, address);
        return MPATH_ERR_NO_MEMORY;
    }
    rail_address_write(rail->uid, (uint32_t)bytes, rail->address);
    memcpy(rail->address + 1, address, bytes);
    ucp_worker_release_address(rail->worker, address);
    return MPATH_OK;
}

mpath_status_t mpath_rail_open(const mpath_rail_params_t *params, mpath_lane_t **lane_p)
{
    mpath_status_t status;
    rail_t *rail;

    if ((strlen(params->nic) >= RAIL_NAME_MAX) || (params->max_chunk_bytes == 0) ||
        (params->max_chunk_bytes > UINT32_MAX)) {
        mpath_error("rail '%s' with chunks of %zu bytes cannot be opened; the rail is not used", params->nic,
                    params->max_chunk_bytes);
        return MPATH_ERR_PARAM;
    }
    rail = calloc(1, sizeof(*rail));
    if (rail == NULL) {
        mpath_error("rail %s: no memory; the rail is not used", params->nic);
        return MPATH_ERR_NO_MEMORY;
    }
    strcpy(rail->nic, params->nic);
    rail->why              = params->why;
    rail->base.ops         = &rail_ops;
    rail->max_chunk_bytes  = params->max_chunk_bytes;
    rail->max_open_bytes   = params->max_open_arrival_bytes;
    rail->rate_bps         = params->rate_bps;
    rail->record           = params->record;
    rail->max_window_bytes = params->max_chunk_bytes * RAIL_WINDOW_CHUNKS;
    if (rail->max_window_bytes > RAIL_WINDOW_BYTES) {
        rail->max_window_bytes = RAIL_WINDOW_BYTES;
    }
    if (mpath_secret_make(&rail->uid) != MPATH_OK) {
        rail_refuse(rail, "getrandom failed: %s", strerror(errno));
        status = MPATH_ERR_IO;
        goto err_free;
    }
    status = rail_ucx_open(rail, params->tls, params->gpu_memory);
    if (status != MPATH_OK) {
        goto err_free;
    }
    status = rail_make_address(rail);
    if (status != MPATH_OK) {
        goto err_close;
    }
    mpath_debug("rail %s: open, %s", rail->nic, rail->description);
    rail->why = NULL;
    *lane_p   = &rail->base;
    return MPATH_OK;

err_close:
    rail_ucx_close(rail);
err_free:
    free(rail);
    return status;
}

void mpath_rail_address(mpath_lane_t *lane, const void **address_p, size_t *bytes_p)
{
    rail_t *rail = (rail_t *)lane;

    *address_p = rail->address;
    *bytes_p   = rail->address_bytes;
}

int mpath_rail_takes_writes(const mpath_lane_t *lane)
{
    return ((const rail_t *)lane)->takes_writes;
}
