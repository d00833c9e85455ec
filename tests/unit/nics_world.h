/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A world for tests of what is learned about NICs: nodes whose NICs carry other rates than declared and divide them fairly
 * among flows, and calls on them, planned with what has been learned.
 */
#ifndef MPATH_TESTS_UNIT_NICS_WORLD_H
#define MPATH_TESTS_UNIT_NICS_WORLD_H

#include "tune/nic_rates.h"
#include "plan/cache.h"

#include <stdint.h>

#define MB 1000000ull
#define NODES_MAX 5
#define RAILS 4
#define NIC_BPS (100 * MB)
#define ROOM (NODES_MAX * RAILS)
#define PAIR_BYTES (8 * MB)

/* Node n has rank n alone, which reaches all of its NICs. */
typedef struct world {
    int nodes;
    mpath_topo_t *topo, *rated;
    int numbers[RAILS];
    mpath_nics_t nics[NODES_MAX]; /* of each rank */
    uint64_t demand[NODES_MAX * NODES_MAX];
    double sends[NODES_MAX][RAILS], receives[NODES_MAX][RAILS]; /* what NICs carry, of NIC_BPS */
    uint32_t noise;                                             /* per cent, by which they differ in each call */
    uint64_t random;
    int changes;
    /* of the last call, by rail, source and destination */
    double bytes[RAILS][NODES_MAX][NODES_MAX], took_ns[RAILS][NODES_MAX][NODES_MAX];
} world_t;

/* All nodes send as much to all others. */
void world_start(world_t *world, int nodes);
void world_end(world_t *world);
/* The NIC carries these parts of its declared rate from now on. */
void world_slow_nic(world_t *world, int node, int rail, double sends, double receives);
/* Plans count on what world->nics say. */
void world_plan_anew(world_t *world);
/* Calls, each of which is a window's part of the least length. */
void world_calls(world_t *world, int count);
/* Percent of the NIC's declared rate that plans count on. */
int world_learned(const world_t *world, int node, int rail);
/* The next call ends about as soon as it can with what NICs carry. */
void world_check_time(world_t *world);
/* Percent of a pair's bytes by a rail, in the last call. */
int world_part_of(const world_t *world, int rail, int source, int destination);

#endif
