/* SPDX-License-Identifier: BSD-3-Clause */
/* What records tell calls apart by, and how that is named in texts, JSON and timelines. */
#ifndef MPATH_RECORD_NAMES_H
#define MPATH_RECORD_NAMES_H

#include <stdio.h>

/* Numbers of the collectives are those of mpath_operation_t; 0 is none. */
#define MPATH_RECORD_COLLECTIVES 5
typedef enum mpath_record_memory {
    MPATH_RECORD_HOST,
    MPATH_RECORD_DEVICE,
    MPATH_RECORD_MEMORIES
} mpath_record_memory_t;

/* Rows of the tables of algorithms, and what has none. */
typedef enum mpath_record_algorithm {
    MPATH_RECORD_OTHER,
    MPATH_RECORD_INLINE,
    MPATH_RECORD_PLANNED,
    MPATH_RECORD_DIRECT,
    MPATH_RECORD_PIPELINE,
    MPATH_RECORD_PAIRS, /* planned by pairs of nodes */
    MPATH_RECORD_EAGER,
    MPATH_RECORD_NODE, /* the GPUs of a node */
    MPATH_RECORD_COPIED,
    MPATH_RECORD_ALGORITHMS
} mpath_record_algorithm_t;

const char *mpath_record_collective_name(unsigned collective);
const char *mpath_record_memory_name(unsigned memory);
const char *mpath_record_phase_name(unsigned phase);
const char *mpath_record_algorithm_name(unsigned algorithm);
/* Of a row's name; MPATH_RECORD_OTHER where there is none. */
mpath_record_algorithm_t mpath_record_algorithm_find(const char *name);

/* Writes a JSON string, quotes included. */
void mpath_json_string(FILE *out, const char *text);

#endif
