/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Workloads by name, seed and step: how popular each expert of a mixture-of-experts layer is, and who therefore sends how
 * much to whom. Integers only: the same weights on every machine, and the same as examples/torch_demand.py has.
 *
 *   balanced           every expert alike
 *   mild               popularity falls evenly from the first to the last of a drawn order, to the half
 *   hot[:H]            one expert, which the seed names, gets the fraction H (0.7) of all, and its share of the rest
 *   moving[:H]         the same, and in each step the next expert
 *   burst[:H]          balanced, and in every 8th step hot
 *   zipf[:S]           popularity 1/k^S (0.8), in a drawn order
 *   lognormal[:SIGMA]  exp of normal numbers of this deviation (1.0), which fits what DeepEP's users measured
 *   file:PATH[:LAYER]  a table of loads, a row of numbers for each layer, as EPLB takes them; without a layer the steps go
 *                      through the rows
 *
 * The first six are the family that Megatron-LM's users measure imbalance with.
 */
#ifndef MPATH_PLAN_WORKLOAD_H
#define MPATH_PLAN_WORKLOAD_H

#include "plan/matrix.h"
#include "util/status.h"

#include <stdint.h>

typedef enum mpath_workload_kind {
    MPATH_WORKLOAD_BALANCED,
    MPATH_WORKLOAD_MILD,
    MPATH_WORKLOAD_HOT,
    MPATH_WORKLOAD_MOVING,
    MPATH_WORKLOAD_BURST,
    MPATH_WORKLOAD_ZIPF,
    MPATH_WORKLOAD_LOGNORMAL,
    MPATH_WORKLOAD_FILE
} mpath_workload_kind_t;

typedef struct mpath_workload {
    mpath_workload_kind_t kind;
    uint32_t value_ppm;  /* H, S or SIGMA, millionths */
    mpath_table_t table; /* of kind FILE */
    int64_t layer;       /* of the table; -1: the steps go through it */
} mpath_workload_t;

/* Nonzero: the text begins with the name of a workload, right or wrong behind it. */
int mpath_workload_is_name(const char *text);

/* MPATH_ERR_PARAM, MPATH_ERR_IO, MPATH_ERR_NO_MEMORY: logged. What is open is closed by mpath_workload_close(). */
mpath_status_t mpath_workload_open(const char *text, mpath_workload_t *workload);
void mpath_workload_close(mpath_workload_t *workload);

/* Experts that the workload is for; 0: any number. */
uint32_t mpath_workload_experts(const mpath_workload_t *workload);

/* weights[expert], each below 2^41 and not all 0, for at most 65536 experts. MPATH_ERR_PARAM, logged: not for so many. */
mpath_status_t mpath_workload_popularity(const mpath_workload_t *workload, uint32_t experts, uint64_t seed,
                                         uint64_t step, uint64_t *weights);

/*
 * Each rank sends `bytes` bytes by the popularity of experts, one on each rank, or of a table's experts, expert e on rank
 * e * num_ranks / experts. Cells are multiples of `unit` bytes; remainders are dropped. demand has num_ranks^2 entries.
 */
mpath_status_t mpath_workload_demand(const mpath_workload_t *workload, int num_ranks, uint64_t seed, uint64_t step,
                                     uint64_t bytes, uint64_t unit, uint64_t *demand);
/* The row that all sources have. */
mpath_status_t mpath_workload_row(const mpath_workload_t *workload, int num_ranks, uint64_t seed, uint64_t step,
                                  uint64_t bytes, uint64_t unit, uint64_t *row);

/* Weights 1/k^s, s in millionths, in an order drawn from *state. */
void mpath_popularity_zipf(uint32_t experts, uint32_t s_ppm, uint64_t *state, uint64_t *weights);

#endif
