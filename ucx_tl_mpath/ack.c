/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Acknowledgements: how many packets came over each rail. They go out when much has come, when the sender asked for one
 * and nothing more comes, or after a millisecond; so a ping-pong of small messages is not slowed down by them.
 */
#include "ucx_tl_mpath/relay.h"

#include "util/time.h"

#define ACK_BYTES (128 * 1024)
#define ACK_PACKETS 64 /* each acknowledgement is a message of its own */

static int newer_generation(uint8_t generation, uint8_t than)
{
    return (int8_t)(generation - than) > 0 || than == 0;
}

/* Something came over a rail, so it works: the answer takes it too, and not one that may be dead without knowing it. */
static void note_arrival(uct_mpath_peer_t *peer, unsigned rail)
{
    peer->last_rail = (uint8_t)rail;
    if (peer->rails[rail].state == UCT_MPATH_RAIL_CLOSED && peer->rails[rail].known &&
        peer->state == UCT_MPATH_PEER_READY) {
        uct_mpath_peer_rail_open_soon(peer, rail);
    }
}

void uct_mpath_ack_note(uct_mpath_peer_t *peer, unsigned rail, const uct_mpath_packet_header_t *header, size_t bytes)
{
    uct_mpath_peer_rail_t *peer_rail = &peer->rails[rail];

    if (header->generation != peer_rail->peer_generation) {
        if (!newer_generation(header->generation, peer_rail->peer_generation)) {
            return;
        }
        peer_rail->peer_generation  = header->generation;
        peer_rail->received_packets = 0;
    }
    /* Relays may lose messages: what comes behind a gap arrives, but does not count. */
    peer_rail->received_packets += header->rail_packet == peer_rail->received_packets;
    ++peer->unacked_packets;
    peer->unacked_bytes += bytes;
    note_arrival(peer, rail);
    peer->ack_soon |= (header->flags & UCT_MPATH_ACK_SOON) != 0;
    if (peer->unacked_bytes >= ACK_BYTES || peer->unacked_packets >= ACK_PACKETS ||
        peer->unacked_packets >= peer->iface->window / 4) {
        peer->ack_due = 1;
    }
    uct_mpath_peer_set_busy(peer);
}

/* Packets that are acknowledged on a rail, oldest first. Completions may send more meanwhile. */
static void take_acknowledged(uct_mpath_peer_t *peer, unsigned rail, uint32_t count, uint64_t now_ns)
{
    uct_mpath_peer_rail_t *peer_rail = &peer->rails[rail];
    uct_mpath_packet_t *packet;
    int moved = 0;

    for (; count > 0 && !ucs_list_is_empty(&peer_rail->inflight); --count) {
        packet = ucs_list_extract_head(&peer_rail->inflight, uct_mpath_packet_t, list);
        ++peer_rail->acked_packets;
        uct_mpath_load_delivered(peer, rail, packet->data_bytes + packet->iov_bytes, now_ns);
        moved |= !uct_mpath_packet_waits(packet) && mpath_tx_window_done(&peer->tx, packet->psn);
        uct_mpath_packet_done(packet, UCS_OK);
    }
    if (moved) {
        uct_mpath_peer_check_flushes(peer);
    }
}

/* The peer is alive and says nothing new about a rail that has packets under way. */
static void note_stall(uct_mpath_peer_t *peer, unsigned rail, uint64_t now_ns)
{
    uct_mpath_peer_rail_t *peer_rail = &peer->rails[rail];

    if (peer_rail->stalled_since_ns == 0) {
        peer_rail->stalled_since_ns = now_ns;
    } else if (now_ns - peer_rail->stalled_since_ns > peer->iface->stall_ns && (peer->up_mask & ~UCS_BIT(rail)) != 0) {
        ucs_diag("mpath: rail %s carried nothing for %.1f s while its peer answered over others; its packets take them",
                 peer->iface->lanes[rail].name, (double)(now_ns - peer_rail->stalled_since_ns) / MPATH_NS_PER_S);
        if (peer_rail->relayed) { /* a relay may have lost them; nothing is spoilt by opening it anew */
            uct_mpath_peer_rail_broken(peer, rail);
        } else {
            uct_mpath_peer_rail_suspend(peer, rail);
        }
    }
}

void uct_mpath_ack_received(uct_mpath_peer_t *peer, const uct_mpath_ack_t *message)
{
    uint32_t advance[UCT_MPATH_MAX_RAILS] = {0};
    uint64_t now_ns                       = mpath_time_ns();
    unsigned i, rail;

    peer->progress_ns = now_ns;
    for (i = 0; i < message->count; ++i) {
        rail = message->entries[i].rail;
        if (message->entries[i].generation != peer->rails[rail].generation) {
            continue;
        }
        if (peer->rails[rail].state == UCT_MPATH_RAIL_OPENING) {
            uct_mpath_peer_rail_up(peer, rail);
        }
        if (peer->rails[rail].state == UCT_MPATH_RAIL_UP || peer->rails[rail].state == UCT_MPATH_RAIL_SUSPENDED) {
            advance[rail] = message->entries[i].packets - peer->rails[rail].acked_packets;
            /* An older acknowledgement that was overtaken on another rail. */
            advance[rail] = (int32_t)advance[rail] > 0 ? advance[rail] : 0;
        }
    }
    for (rail = 0; rail < UCT_MPATH_MAX_RAILS; ++rail) {
        if (advance[rail] > 0 && peer->rails[rail].state == UCT_MPATH_RAIL_SUSPENDED) {
            uct_mpath_peer_rail_moves(peer, rail, advance[rail]);
        } else if (advance[rail] > 0) {
            peer->rails[rail].stalled_since_ns = 0;
            take_acknowledged(peer, rail, advance[rail], now_ns);
        } else if (peer->rails[rail].state == UCT_MPATH_RAIL_UP && !ucs_list_is_empty(&peer->rails[rail].inflight)) {
            note_stall(peer, rail, now_ns);
        }
    }
    uct_mpath_peer_set_busy(peer);
}

void uct_mpath_probe_received(uct_mpath_peer_t *peer, unsigned rail, const uct_mpath_probe_t *probe)
{
    uct_mpath_peer_rail_t *peer_rail = &peer->rails[rail];

    /* It may have been opened any number of times without success since the last one that came. */
    if (probe->rail == rail && probe->generation != peer_rail->peer_generation) {
        peer_rail->peer_generation  = probe->generation;
        peer_rail->received_packets = 0;
    }
    note_arrival(peer, rail);
    peer->ack_due = 1;
    uct_mpath_peer_set_busy(peer);
}
