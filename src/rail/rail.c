/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "rail": opening a NIC, driving it, giving it up, and its chunks, out and in. The peers are in rail/peer.c.
 *
 * A finished send needs no more progress here, so that a process may stop to progress when its own duties are done: on
 * TCP every byte is sent without a copy in UCX (the configuration below sees to that), so it is in the hands of the kernel
 * when UCX lets go of the memory of the caller; on InfiniBand the NIC (RC, DC) or a thread of UCX (UD) sees to its
 * delivery. A flush would say as much, but on TCP UCX makes it a round trip that waits for the other process to progress.
 */
#include "rail/gpu_memory.h"
#include "rail/rail_private.h"

#include "util/log.h"
#include "util/secret.h"
#include "util/time.h"

#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHARGE_MIN_BYTES 8192u /* so that the window limits the number of small chunks, too */

/* -- ops -- */

static rail_op_t *op_get(rail_t *rail, rail_peer_t *peer, mpath_lane_op_t *caller_op, uint64_t charge_bytes)
{
    rail_op_t *op = rail->spare_ops;

    if (op != NULL) {
        rail->spare_ops = op->next;
    } else {
        op = malloc(sizeof(*op));
        if (op == NULL) {
            mpath_error("rail %s: no memory for a transfer; it is not started", rail->nic);
            return NULL;
        }
    }
    op->rail         = rail;
    op->peer         = peer;
    op->op           = caller_op;
    op->charge_bytes = charge_bytes;
    op->began_ns     = mpath_trace_is_on() ? mpath_time_ns() : 0;
    op->previous     = NULL;
    op->next         = rail->active;
    if (rail->active != NULL) {
        rail->active->previous = op;
    }
    rail->active = op;
    if (caller_op != NULL) {
        caller_op->status       = MPATH_INPROGRESS;
        caller_op->private_data = op;
    }
    return op;
}

static void rail_op_unlink(rail_op_t *op)
{
    if (op->previous != NULL) {
        op->previous->next = op->next;
    } else {
        op->rail->active = op->next;
    }
    if (op->next != NULL) {
        op->next->previous = op->previous;
    }
}

/* For the timeline. A rail that nobody counts has no place in it. */
static void rail_trace(const rail_t *rail, const mpath_chunk_t *chunk, mpath_trace_kind_t kind, uint64_t began_ns)
{
    mpath_trace_chunk_t event = {.ended_ns = mpath_time_ns(),
                                 .team     = chunk->team,
                                 .offset   = chunk->offset,
                                 .call     = chunk->call,
                                 .flow     = chunk->flow,
                                 .bytes    = chunk->bytes,
                                 .hop      = (uint16_t)chunk->hop,
                                 .kind     = (uint8_t)kind};

    event.began_ns = began_ns > 0 ? began_ns : event.ended_ns;
    if (rail->record != NULL) {
        event.lane = (uint8_t)(rail->record - mpath_page()->rails);
        mpath_trace_add_chunk(&event);
    }
}

/* Ends an op that is in no list any more. */
static void rail_op_finish(rail_op_t *op, mpath_status_t status)
{
    rail_t *rail = op->rail;

    if (op->peer != NULL) {
        op->peer->window_bytes -= op->charge_bytes;
    }
    if (op->op != NULL) {
        op->op->status = status;
    }
    if (status == MPATH_OK && rail->record != NULL) {
        atomic_fetch_add_explicit(op->peer != NULL ? &rail->record->sent_bytes : &rail->record->received_bytes,
                                  op->wire.chunk.bytes, memory_order_relaxed);
    }
    if (status == MPATH_OK && op->began_ns > 0) {
        rail_trace(rail, &op->wire.chunk, op->peer != NULL ? MPATH_TRACE_SEND : MPATH_TRACE_FETCH, op->began_ns);
    }
    op->next        = rail->spare_ops;
    rail->spare_ops = op;
    rail->events++;
}

/* -- sending -- */

/* UCX is done with a send. */
static void send_end(rail_op_t *op, ucs_status_t status)
{
    rail_peer_t *peer = op->peer;

    peer->sends--;
    rail_op_unlink(op);
    if ((status != UCS_OK) || (peer->ep == NULL)) {
        rail_peer_fail(peer, ucs_status_string(status));
        rail_op_finish(op, MPATH_ERR_UNREACHABLE);
    } else {
        peer->fruitless = 0;
        rail_op_finish(op, MPATH_OK);
    }
    rail_peer_put(peer);
}

static void send_done(void *request, ucs_status_t status, void *user_data)
{
    ucp_request_free(request);
    send_end(user_data, status);
}

/* What UCX is told of the data beside its address: which memory, and how it goes. */
static void send_describe(const rail_t *rail, const void *data, ucp_request_param_t *params)
{
    if (rail_memory_describe(rail, data, params)) {
        params->op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        params->flags = UCP_AM_SEND_FLAG_RNDV;
    } else if (rail->eager) {
        params->op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        params->flags = UCP_AM_SEND_FLAG_EAGER;
    }
}

static mpath_status_t send_check(rail_t *rail, int number, const mpath_chunk_t *chunk, rail_peer_t **peer_p)
{
    mpath_status_t status;

    if (rail->worker == NULL) {
        return MPATH_ERR_UNREACHABLE;
    }
    status = rail_peer_find(rail, number, peer_p);
    if (status != MPATH_OK) {
        return status;
    }
    if (chunk->bytes > rail->max_chunk_bytes) {
        mpath_error("rail %s: chunk of %u bytes is larger than the limit of %zu; nothing is sent", rail->nic,
                    (unsigned)chunk->bytes, rail->max_chunk_bytes);
        return MPATH_ERR_PARAM;
    }
    return rail_peer_connect(*peer_p);
}

static mpath_status_t rail_send(mpath_lane_t *base, int number, const mpath_chunk_t *chunk, const void *data,
                                mpath_lane_op_t *caller_op)
{
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA};
    uint64_t charge_bytes      = (chunk->bytes > CHARGE_MIN_BYTES) ? chunk->bytes : CHARGE_MIN_BYTES;
    rail_t *rail               = (rail_t *)base;
    ucs_status_ptr_t request;
    mpath_status_t status;
    rail_peer_t *peer;
    rail_op_t *op;

    status = send_check(rail, number, chunk, &peer);
    if (status != MPATH_OK) {
        return status;
    }
    if ((peer->window_bytes > 0) && (peer->window_bytes + charge_bytes > rail->max_window_bytes)) {
        return MPATH_NO_RESOURCE;
    }
    op = op_get(rail, peer, caller_op, charge_bytes);
    if (op == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    op->wire.receiver = peer->uid;
    op->wire.sender   = rail->uid;
    op->wire.chunk    = *chunk;
    params.cb.send    = send_done;
    params.user_data  = op;
    send_describe(rail, data, &params);
    peer->window_bytes += charge_bytes;
    peer->sends++;
    peer->references++;
    request = ucp_am_send_nbx(peer->ep, RAIL_AM_ID, &op->wire, sizeof(op->wire), data, chunk->bytes, &params);
    if (!UCS_PTR_IS_PTR(request)) {
        send_end(op, UCS_PTR_STATUS(request));
    }
    return caller_op != NULL ? caller_op->status : MPATH_OK;
}

/* -- receiving -- */

static rail_arrival_t *arrival_get(rail_t *rail)
{
    rail_arrival_t *arrival = rail->spare_arrivals;

    if (arrival != NULL) {
        rail->spare_arrivals = arrival->next;
    } else {
        arrival = malloc(sizeof(*arrival));
        if (arrival == NULL) {
            return NULL;
        }
    }
    memset(arrival, 0, sizeof(*arrival));
    arrival->next = rail->open;
    if (rail->open != NULL) {
        rail->open->previous = arrival;
    }
    rail->open = arrival;
    return arrival;
}

static void arrival_put(rail_t *rail, rail_arrival_t *arrival)
{
    if (arrival->previous != NULL) {
        arrival->previous->next = arrival->next;
    } else {
        rail->open = arrival->next;
    }
    if (arrival->next != NULL) {
        arrival->next->previous = arrival->previous;
    }
    if (!arrival->rendezvous) {
        rail->open_bytes -= arrival->bytes;
    }
    arrival->next        = rail->spare_arrivals;
    rail->spare_arrivals = arrival;
}

/* The receiver is through with it, and so is UCX unless data is left. */
static void arrival_end(rail_t *rail, rail_arrival_t *arrival)
{
    if (arrival->in_callback) {
        arrival->ended = 1; /* the callback's return value gives the data back */
        return;
    }
    if (arrival->data != NULL) {
        ucp_am_data_release(rail->worker, arrival->data);
    }
    arrival_put(rail, arrival);
}

static void arrival_deliver(rail_t *rail, rail_arrival_t *arrival)
{
    static const char nothing    = 0;
    mpath_arrival_t for_receiver = {
        .lane = &rail->base, .chunk = arrival->chunk, .peer = arrival->peer, .private_data = arrival};

    if (!arrival->rendezvous) {
        for_receiver.data = (arrival->data != NULL) ? arrival->data : &nothing;
    }
    rail->events++;
    rail->base.arrive(rail->base.arrive_argument, &for_receiver);
}

/* Hands over what came while the rail was being given up. */
static void rail_deliver_held(rail_t *rail)
{
    rail_arrival_t *arrival, *oldest;

    while (rail->num_held > 0) {
        oldest = NULL;
        for (arrival = rail->open; arrival != NULL; arrival = arrival->next) {
            oldest = arrival->held ? arrival : oldest; /* new ones are put in front */
        }
        rail->num_held--;
        oldest->held = 0;
        arrival_deliver(rail, oldest);
    }
}

static void arrival_read(rail_t *rail, rail_arrival_t *arrival, const rail_wire_t *wire)
{
    arrival->chunk = wire->chunk;
    arrival->peer  = rail_peer_by_uid(rail, wire->sender);
    arrival->bytes = wire->chunk.bytes;
    if (arrival->peer >= 0) {
        rail->peers[arrival->peer]->fruitless = 0;
    }
}

static ucs_status_t rail_arrived(void *argument, const void *header, size_t header_bytes, void *data, size_t bytes,
                                 const ucp_am_recv_param_t *param)
{
    rail_t *rail      = argument;
    ucs_status_t kept = UCS_INPROGRESS;
    rail_arrival_t *arrival;
    rail_wire_t wire;

    switch (rail_wire_read(rail->uid, header, header_bytes, bytes, &wire)) {
    case RAIL_WIRE_CHUNK:
        break;
    case RAIL_WIRE_STRANGER:
        rail_note_stranger(rail);
        return UCS_OK;
    default:
        mpath_error("rail %s: message with a header of %zu and %zu bytes of data is no chunk; it is dropped", rail->nic,
                    header_bytes, bytes);
        return UCS_OK;
    }
    arrival = arrival_get(rail);
    if (arrival == NULL) {
        mpath_error("rail %s: no memory for an arriving chunk; the rail fails", rail->nic);
        rail->error = MPATH_ERR_NO_MEMORY;
        return UCS_OK;
    }
    arrival_read(rail, arrival, &wire);
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        arrival->rendezvous = 1;
        arrival->data       = data;
    } else {
        rail->open_bytes += bytes;
        if (rail->record != NULL) {
            atomic_fetch_add_explicit(&rail->record->received_bytes, bytes, memory_order_relaxed);
        }
        if (mpath_trace_is_on()) {
            rail_trace(rail, &arrival->chunk, MPATH_TRACE_CAME, 0);
        }
        if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) {
            arrival->data = data;
        } else if (bytes == 0) {
            kept = UCS_OK; /* nothing to keep */
        } else {
            mpath_error("rail %s: UCX delivers a chunk that cannot be kept; the rail fails", rail->nic);
            rail->error = MPATH_ERR_INTERNAL;
            arrival_put(rail, arrival);
            return UCS_OK;
        }
    }
    if (rail->giving_up) {
        arrival->held = 1;
        rail->num_held++;
        return kept;
    }
    arrival->in_callback = 1;
    arrival_deliver(rail, arrival);
    arrival->in_callback = 0;
    if (arrival->ended) {
        kept = (arrival->rendezvous && (arrival->data == NULL)) ? UCS_INPROGRESS : UCS_OK;
        arrival_put(rail, arrival);
    }
    return kept;
}

static void take_end(rail_op_t *op, ucs_status_t status)
{
    rail_op_unlink(op);
    if ((status != UCS_OK) && !op->rail->giving_up) {
        mpath_error("rail %s: a chunk could not be fetched from its sender: %s", op->rail->nic,
                    ucs_status_string(status));
    }
    rail_op_finish(op, (status == UCS_OK) ? MPATH_OK : MPATH_ERR_UNREACHABLE);
}

static void take_done(void *request, ucs_status_t status, size_t bytes, void *user_data)
{
    (void)bytes;
    ucp_request_free(request);
    take_end(user_data, status);
}

static mpath_status_t take_rendezvous(rail_t *rail, rail_arrival_t *arrival, void *to, mpath_lane_op_t *caller_op)
{
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA};
    void *descriptor           = arrival->data;
    uint64_t bytes             = arrival->bytes;
    ucs_status_ptr_t request;
    rail_op_t *op;

    if (descriptor == NULL) {
        arrival_end(rail, arrival);
        return MPATH_ERR_UNREACHABLE; /* given up in between */
    }
    op = op_get(rail, NULL, caller_op, 0);
    if (op == NULL) {
        arrival_end(rail, arrival);
        return MPATH_ERR_NO_MEMORY;
    }
    params.cb.recv_am = take_done;
    params.user_data  = op;
    rail_memory_describe(rail, to, &params);
    op->wire.chunk = arrival->chunk;
    arrival->data  = NULL; /* UCX owns the descriptor again, whatever comes */
    arrival_end(rail, arrival);
    request = ucp_am_recv_data_nbx(rail->worker, descriptor, to, bytes, &params);
    if (!UCS_PTR_IS_PTR(request)) {
        take_end(op, UCS_PTR_STATUS(request));
    }
    return caller_op->status;
}

static mpath_status_t rail_take(mpath_lane_t *base, const mpath_arrival_t *arrival, void *to, mpath_lane_op_t *op)
{
    rail_arrival_t *mine = arrival->private_data;
    rail_t *rail         = (rail_t *)base;

    if (mine->rendezvous) {
        return take_rendezvous(rail, mine, to, op);
    }
    if ((mine->bytes > 0) && (mine->data == NULL)) {
        arrival_end(rail, mine);
        return MPATH_ERR_UNREACHABLE; /* given up in between */
    }
    if (rail_memory_is_gpu(rail, to)) {
        mpath_error(
            "rail %s: a chunk for GPU memory came with its bytes, instead of leaving them at its sender; the call "
            "fails",
            rail->nic);
        arrival_end(rail, mine);
        return MPATH_ERR_INTERNAL;
    }
    if (mine->bytes > 0) {
        memcpy(to, mine->data, mine->bytes);
    }
    arrival_end(rail, mine);
    if (op != NULL) {
        op->status = MPATH_OK;
    }
    return MPATH_OK;
}

static void rail_release(mpath_lane_t *base, const mpath_arrival_t *arrival)
{
    arrival_end((rail_t *)base, arrival->private_data);
}

/* Gives UCX's memory back, for all open arrivals. */
static void rail_drop_open(rail_t *rail)
{
    rail_arrival_t *arrival;

    for (arrival = rail->open; arrival != NULL; arrival = arrival->next) {
        if (arrival->data != NULL) {
            ucp_am_data_release(rail->worker, arrival->data);
            arrival->data = NULL;
        }
    }
}

static void rail_transfer_destroy(rail_t *rail)
{
    rail_arrival_t *arrival;
    rail_op_t *op;

    while (rail->open != NULL) {
        arrival_put(rail, rail->open);
    }
    while (rail->spare_arrivals != NULL) {
        arrival              = rail->spare_arrivals;
        rail->spare_arrivals = arrival->next;
        free(arrival);
    }
    while (rail->spare_ops != NULL) {
        op              = rail->spare_ops;
        rail->spare_ops = op->next;
        free(op);
    }
}

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
 * out (see above); and connecting may not block the process.
 */
static mpath_status_t ucx_configure_tcp(const rail_t *rail, int gpu_memory, ucp_config_t *config)
{
    /* GPU memory has to go by rendezvous: there each send says what it wants */
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

    if (rail->expected_peers > 0) { /* with many UCX takes transports that need no memory for each */
        params.field_mask |= UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
        params.estimated_num_eps = (size_t)rail->expected_peers;
    }
    if (rail->sharing > 0) {
        params.field_mask |= UCP_PARAM_FIELD_ESTIMATED_NUM_PPN;
        params.estimated_num_ppn = (size_t)rail->sharing;
    }
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

/* Logs. */
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

/* Logs. */
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
    rail->expected_peers   = params->num_peers;
    rail->sharing          = params->num_sharing;
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
