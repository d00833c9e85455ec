/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prices: how pairs of nodes divide their bytes over rails where a NIC is lost on some node, or has another rate than that of
 * its rail elsewhere. Of the bytes from node a to node b rail r gets a part in proportion to
 *
 *     min(rate of a, rate of b) * usual(a) * usual(b) * out(a) * in(b)      of each at r
 *
 * The usual factors follow from the rates alone: with them every node fills its NICs evenly when all send all the same
 * (matrix scaling; Sinkhorn, Knopp, Pacific J. Math. 21(2), 1967). out and in are the prices of a matrix, 1 where a node's NICs have no more than the bound allows
 * anyway. A node knows what it sends to every other one and gets from it, so it finds alone which prices bring its NICs to the
 * bound while those of the others stay as they are; the few nodes that need some tell all others, and look again. The division is the one of
 * maximum entropy among those within the bound, which such factors always reach.
 *
 * On a spine bytes may cross from a rail that the receiver lacks, and to one that the sender lacks. These carry as large a part as their rates are
 * of their node's. Where that is enough for all other NICs at both ends to do so, they do, whatever the prices, which else divide what does not cross.
 *
 * Bounds are cuts at single nodes and between one and those that lack the same rails, each of which its node proves alone.
 *
 * The same integers everywhere. One thread at a time.
 */
#ifndef MPATH_PLAN_PRICES_H
#define MPATH_PLAN_PRICES_H

#include "topo/topo.h"
#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

#define MPATH_PRICES_RAILS 16 /* at most */

typedef struct mpath_prices mpath_prices_t;

/* By node and rail: rates_bps[node * num_rails + rail], 0: it is not there. crosses: as on a spine. MPATH_ERR_NO_MEMORY. */
mpath_status_t mpath_prices_create(int num_nodes, int num_rails, const uint64_t *rates_bps, int crosses,
                                   mpath_prices_t **prices_p);
void mpath_prices_destroy(mpath_prices_t *prices);

/*
 * A matrix begins, with the usual factors. node_bytes: the most that a node sends or receives, about; what takes no longer than the bound
 * and `slack_bytes` on a NIC will do. Both are the same everywhere.
 */
void mpath_prices_begin(mpath_prices_t *prices, uint64_t node_bytes, uint64_t slack_bytes);

/* What a node says of a matrix, and what is the most of any in the end. Nanoseconds. */
typedef struct mpath_prices_terms {
    uint64_t bound_ns;    /* that nothing is below, */
    uint64_t split_ns;    /* what its busiest NIC takes at present prices, */
    uint64_t static_ns;   /* and on static routes */
    int static_is_enough; /* found: these are so near the bound that nothing is to move */
} mpath_prices_terms_t;

/* New prices of a node. */
typedef struct mpath_prices_entry {
    uint32_t node;
    uint16_t price[2 * MPATH_PRICES_RAILS]; /* out, then in: as many as there are groups of rails that are alike */
} mpath_prices_entry_t;

/* The bytes of one that are used; a multiple of 4. */
size_t mpath_prices_entry_bytes(const mpath_prices_t *prices);

/*
 * A round: what a node says that sends out_bytes[other] to each node and gets in_bytes[other]; 1: it has an entry. The caller sets what the
 * static routes take.
 */
int mpath_prices_say(const mpath_prices_t *prices, int node, const uint64_t *out_bytes, const uint64_t *in_bytes,
                     mpath_prices_terms_t *terms, mpath_prices_entry_t *entry);
/*
 * Then what all have said: the most of any, and the entries in any order, each entry_bytes long. 1: another round is due; 0:
 * the prices are found. MPATH_ERR_PARAM: an entry is of no node.
 */
int mpath_prices_hear(mpath_prices_t *prices, const mpath_prices_terms_t *most, const void *entries, size_t count);

/* What was found: split_ns is that of the division. */
const mpath_prices_terms_t *mpath_prices_found(const mpath_prices_t *prices);
/*
 * before[rail]: the weight of all rails before that one in what `from` sends to `to`; before[num_rails] of all. At which end is seen where routes
 * cross only.
 */
void mpath_prices_split(const mpath_prices_t *prices, int from, int to, int is_receiver, uint64_t *before);

#endif
