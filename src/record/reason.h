/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a call was left to the function that mpath replaces. Whoever decides that says one of these texts; counters know
 * them by their place in the table, and users by its key, of which several texts may have the same.
 */
#ifndef MPATH_RECORD_REASON_H
#define MPATH_RECORD_REASON_H

#define MPATH_WHY_PARAMETER "a parameter says never"
#define MPATH_WHY_NOT_SHORT "more than travels inside the agreement"
#define MPATH_WHY_VECTOR_NOT_SHORT "more than travels in the agreement"
#define MPATH_WHY_NOT_ALL_SHORT "not all data has travelled inside the agreement"
#define MPATH_WHY_FASTER "calls like this one are faster with it, or that is tried"
#define MPATH_WHY_FASTER_BY_HOST "calls like this one are faster by way of the host, or that is tried"
#define MPATH_WHY_TURNS "ranks that take turns on a GPU are faster with copies on the host"
#define MPATH_WHY_CALLS_BEFORE "the calls before it could not gain: short, inside a node, or there is one rail"
#define MPATH_WHY_PREDICTED "predicted to be no faster than the previous function"
#define MPATH_WHY_SAME_ROUTES "the plan takes the same routes"
#define MPATH_WHY_ONE_RAIL_ROUTES "there is one rail, and no better route than the static one"
#define MPATH_WHY_ONE_RAIL "there is one rail"
#define MPATH_WHY_SLOW_RAILS "all rails but one are too slow to gain by"
#define MPATH_WHY_INSIDE_NODES "all data stays inside nodes, in messages of node_min_bytes or more"
#define MPATH_WHY_ONE_NODE "all ranks share one node"
#define MPATH_WHY_NODE_OF_GPUS "the GPUs of one node have ways of their own"
#define MPATH_WHY_LESS "less than symmetric_min_bytes"
#define MPATH_WHY_NOT_CARRIED "some rank has data that mpath does not carry"
#define MPATH_WHY_NOT_SHARED "not all ranks have data that their GPUs can share"
#define MPATH_WHY_NOT_RELAYED "not all ranks have data that relays of device memory can carry"
#define MPATH_WHY_COPIES_TOO "on one node the previous function works on copies, too"
#define MPATH_WHY_NO_COPIES "copies in host memory are not to be had"
#define MPATH_WHY_OPERATION "an operation or a datatype that mpath does not combine"
#define MPATH_WHY_NO_DEVICE_MEMORY "device memory cannot be shared on these nodes"
#define MPATH_WHY_NO_PATH "some pair of ranks with data has no path"
#define MPATH_WHY_NO_GPU_PATH "some pair of GPUs with data has no path"
#define MPATH_WHY_TOPOLOGY "the topology cannot carry the data"
#define MPATH_WHY_NO_RAIL "no rail is on every node with a rank that drives it"
#define MPATH_WHY_EMPTY_NODE "a node of the topology has no rank"
#define MPATH_WHY_RAILS_CLOSED "some rank could not open its rails"
#define MPATH_WHY_NO_SETUP "some rank could not set up its rails or its memory"
#define MPATH_WHY_IN_USE "another call has the memory that its ranks share, and there is no room for more"
#define MPATH_WHY_NO_RELAYS "some rank could not have what relays of device memory need"
#define MPATH_WHY_NO_SLOTS "a rank cannot have slots in host memory"
#define MPATH_WHY_STAYS_OUT "mpath stays out of this communicator"
#define MPATH_WHY_PARAMETERS_DIFFER "parameters of mpath differ between the ranks"

#define MPATH_REASONS 37 /* texts; the last one stands for any other */
#define MPATH_REASON_KEYS 10

/* The place of a text in the table. */
int mpath_reason_find(const char *text);
const char *mpath_reason_text(int reason);
/* "one_rail"; reasons of the same kind have the same. */
const char *mpath_reason_key(int reason);
/* The keys, without repetition, and what they say of calls that were left; `key` from 0 to MPATH_REASON_KEYS - 1. */
const char *mpath_reason_key_name(int key);
const char *mpath_reason_key_text(int key);
int mpath_reason_key_of(int reason);

#endif
