/* SPDX-License-Identifier: BSD-3-Clause */
/* Demand matrices for benchmarks and tests: repeatable generators, and the byte-matrix files of nccl-tests. */
#ifndef MPATH_PLAN_DEMAND_H
#define MPATH_PLAN_DEMAND_H

#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Hot spot: each rank sends hot_ppm millionths of `bytes` to rank `hot` and the rest evenly to all num_ranks ranks,
 * itself and the hot one included; the hot rank sends all its bytes evenly. demand has num_ranks^2 entries. All cells
 * are multiples of `unit` bytes; remainders are dropped.
 */
void mpath_demand_hot(int num_ranks, int hot, uint32_t hot_ppm, uint64_t bytes, uint64_t unit, uint64_t *demand);

/*
 * Zipf: the share of destination k is proportional to 1 / (rank of k in a permutation drawn from `seed`)^s, with s in
 * millionths; the permutation is shared by all sources (experts of an MoE layer are hot for everybody). Integer
 * arithmetic only.
 */
void mpath_demand_zipf(int num_ranks, uint32_t s_ppm, uint64_t seed, uint64_t bytes, uint64_t unit, uint64_t *demand);

/*
 * Reads a byte matrix: one row per line, entries separated by blanks or commas, '#' starts a comment. Errors name file,
 * line and column. The matrix must be square; demand_p is malloc'ed.
 */
mpath_status_t mpath_demand_load(const char *path, int *num_ranks_p, uint64_t **demand_p);
mpath_status_t mpath_demand_parse(const char *name, const char *text, size_t length, int *num_ranks_p,
                                  uint64_t **demand_p);

#endif
