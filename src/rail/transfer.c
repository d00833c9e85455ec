/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks of a rail, out and in.
 *
 * A finished send needs no more progress here, so that a process may stop to progress when its own duties are done: on
 * TCP every byte is sent without a copy in UCX (rail/rail.c sees to that), so it is in the kernel's hands when UCX lets
 * go of the caller's memory; on InfiniBand the NIC (RC, DC) or UCX's own thread (UD) sees to its delivery. A flush
 * would say as much, but on TCP UCX makes it a round trip that waits for the other process to progress.
 */
#include "rail/rail_private.h"
#include "util/log.h"
#include "util/time.h"

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

void rail_op_unlink(rail_op_t *op)
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

void rail_op_finish(rail_op_t *op, mpath_status_t status)
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

mpath_status_t rail_send(mpath_lane_t *base, int number, const mpath_chunk_t *chunk, const void *data,
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

void rail_deliver_held(rail_t *rail)
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

void rail_note_stranger(rail_t *rail)
{
    if (rail->strangers++ == 0) {
        mpath_warn(
            "rail %s: a message came from a sender that is none of this job's processes; it is dropped, and so are "
            "others of the kind, which are only counted; doc/security.md says who can send to a rail",
            rail->nic);
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

ucs_status_t rail_arrived(void *argument, const void *header, size_t header_bytes, void *data, size_t bytes,
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

mpath_status_t rail_take(mpath_lane_t *base, const mpath_arrival_t *arrival, void *to, mpath_lane_op_t *op)
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

void rail_release(mpath_lane_t *base, const mpath_arrival_t *arrival)
{
    arrival_end((rail_t *)base, arrival->private_data);
}

void rail_drop_open(rail_t *rail)
{
    rail_arrival_t *arrival;

    for (arrival = rail->open; arrival != NULL; arrival = arrival->next) {
        if (arrival->data != NULL) {
            ucp_am_data_release(rail->worker, arrival->data);
            arrival->data = NULL;
        }
    }
}

void rail_transfer_destroy(rail_t *rail)
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
