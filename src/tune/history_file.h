/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * History file: what calls have shown, in a text file that people can read, edit and delete; tune/history.h is what a
 * process knows. There is one format for all kinds, a line per machine (a checksum), operation, size class and kind:
 *
 *     mpath-rates 3
 *     5f0c2c9d01a3b77e allreduce 2 rates 25000000 25000000 6250000 25000000      bytes per second, by rail
 *     5f0c2c9d01a3b77e alltoallv 0 node-rates 1 25000000 0 6250000 25000000      of the node's NICs; it has none on rail 1
 *     83d1f0b2c4a5e697 allreduce 28 host-share 85000                             through the host, in millionths
 *     83d1f0b2c4a5e697 alltoallv 112 help 30                                     by a kernel beside engines, in percent
 *
 * The machine of rates is a checksum of the topology, and they have the size classes of coll/learn.c; the others:
 * see node/reduce_private.h. Rates of nodes come after the number of the node in the topology. A file of version 1 has rates of
 * rails only, and no word for their kind, one of version 2 knows no rates of nodes; they are read, and written anew as
 * one of version 3.
 *
 * Lines that cannot be read are named in a warning and left out; a file that does not exist is an empty one. One that
 * does not begin with the title is somebody else's and stays as it is, and so does what is no regular file.
 */
#ifndef MPATH_TUNE_HISTORY_FILE_H
#define MPATH_TUNE_HISTORY_FILE_H

#include "topo/topo.h"

#include <stdint.h>
#include <stdio.h>

#define MPATH_HISTORY_OPERATION_MAX 24

typedef enum mpath_history_kind {
    MPATH_HISTORY_RATES,
    MPATH_HISTORY_HOST_SHARE, /* 0 up to a million, which it is not */
    MPATH_HISTORY_HELP,       /* up to 100 */
    MPATH_HISTORY_NODE_RATES,
    MPATH_HISTORY_KINDS
} mpath_history_kind_t;

/* What something was learned of. */
typedef struct mpath_history_key {
    uint64_t machine;
    char operation[MPATH_HISTORY_OPERATION_MAX];
    int size_class;
    mpath_history_kind_t kind;
    int node; /* of its rates; else 0 */
} mpath_history_key_t;

/* A line of the file. */
typedef struct mpath_history_line {
    mpath_history_key_t key;
    int num_rails;                /* of rates; else 0 */
    uint64_t bps[MPATH_MAX_NICS]; /* 0: the node has no NIC there */
    uint64_t value;               /* of the other kinds */
} mpath_history_line_t;

int mpath_history_is_same(const mpath_history_key_t *a, const mpath_history_key_t *b);

typedef void (*mpath_history_visit_t)(void *argument, const mpath_history_line_t *line);

/* Every line that can be read, in order. MPATH_DECLINED: no such file; MPATH_ERR_IO, with errno; MPATH_ERR_PARAM,
 * logged: another kind of file. */
mpath_status_t mpath_history_read(const char *path, mpath_history_visit_t visit, void *argument);

/* The same of an open file, which has that name in messages, from its start on. */
mpath_status_t mpath_history_parse(FILE *in, const char *name, mpath_history_visit_t visit, void *argument);

/* The same for who needs it: that it is no regular file, or cannot be read, is logged. */
mpath_status_t mpath_history_take(const char *path, mpath_history_visit_t visit, void *argument);

/* The rates of a key: MPATH_OK and bps[num_rails], or MPATH_DECLINED when the file has none for so many rails. */
mpath_status_t mpath_history_load(const char *path, uint64_t machine, const char *operation, int size_class,
                                  int num_rails, uint64_t *bps);

/* Replaces or adds lines of different keys; the file is written anew and moved into place, while other processes that save
 * wait. Errors are logged. */
mpath_status_t mpath_history_put(const char *path, const mpath_history_line_t *lines, int num_lines);

/* The same for rates. */
mpath_status_t mpath_history_save(const char *path, uint64_t machine, const char *operation, int size_class,
                                  int num_rails, const uint64_t *bps);

#endif
