/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Store: what calls have shown, in a text file that people can read, edit and delete. A line per machine (a checksum),
 * operation, size class and kind:
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
#ifndef MPATH_TUNE_HISTORY_H
#define MPATH_TUNE_HISTORY_H

#include "topo/topo.h"

#include <stdint.h>
#include <stdio.h>

#define MPATH_STORE_OPERATION_MAX 24

typedef enum mpath_store_kind {
    MPATH_STORE_RATES,
    MPATH_STORE_HOST_SHARE, /* 0 up to a million, which it is not */
    MPATH_STORE_HELP,       /* up to 100 */
    MPATH_STORE_NODE_RATES,
    MPATH_STORE_KINDS
} mpath_store_kind_t;

/* A line of the file. The first five are its key. */
typedef struct mpath_store_line {
    uint64_t machine;
    char operation[MPATH_STORE_OPERATION_MAX];
    int size_class;
    mpath_store_kind_t kind;
    int node;                     /* of its rates; else 0 */
    int num_rails;                /* of rates; else 0 */
    uint64_t bps[MPATH_MAX_NICS]; /* 0: the node has no NIC there */
    uint64_t value;               /* of the other kinds */
} mpath_store_line_t;

/* Whether two lines have the same key. */
int mpath_store_is_same(const mpath_store_line_t *a, const mpath_store_line_t *b);

typedef void (*mpath_store_visit_t)(void *argument, const mpath_store_line_t *line);

/* Every line that can be read, in order. MPATH_DECLINED: no such file; MPATH_ERR_IO, with errno; MPATH_ERR_PARAM,
 * logged: another kind of file. */
mpath_status_t mpath_store_read(const char *path, mpath_store_visit_t visit, void *argument);

/* The same of an open file, which has that name in messages, from its start on. */
mpath_status_t mpath_store_parse(FILE *in, const char *name, mpath_store_visit_t visit, void *argument);

/* The rates of a key: MPATH_OK and bps[num_rails], or MPATH_DECLINED when the file has none for so many rails. */
mpath_status_t mpath_store_load(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, uint64_t *bps);

/* Replaces or adds lines of different keys; the file is written anew and moved into place, while other processes that save
 * wait. Errors are logged. */
mpath_status_t mpath_store_put(const char *path, const mpath_store_line_t *lines, int num_lines);

/* The same for rates. */
mpath_status_t mpath_store_save(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, const uint64_t *bps);

/*
 * Known: what the communicators of this process have learned about NICs, for each other: a table by the names of nodes and
 * the numbers of rails. Whatever is taken from it has to be exchanged first, for the ranks of a communicator may know
 * different things from others that they are in. Thread-safe.
 */

#define MPATH_KNOWN_MAX 1024 /* NICs of a process; what was learned first makes room */

/* The NIC of a node on a rail. */
typedef struct mpath_known_nic {
    uint64_t node; /* mpath_known_node(); 0: the rail on all nodes of communicators that tell no NICs apart */
    int rail;      /* its number */
} mpath_known_nic_t;

/* A NIC carries bps where the system says nominal_bps. Plain data. */
typedef struct mpath_known_rate {
    uint64_t
        learned_ns; /* when, by the time of day, which nodes have in common as well as they do; 0: nothing is known */
    uint64_t bps, nominal_bps;
} mpath_known_rate_t;

/* A checksum of a node's name. */
uint64_t mpath_known_node(const char *host);

/* The time of day, in nanoseconds. */
uint64_t mpath_known_now(void);

/* Kept unless something newer is known. The number of changes, 0 or 1: the same rate, learned later, is none. */
unsigned mpath_known_note(mpath_known_nic_t nic, const mpath_known_rate_t *known);

mpath_known_rate_t mpath_known_of(mpath_known_nic_t nic);

/* How many changes there were: who has heard of fewer asks anew. */
unsigned mpath_known_changes(void);

/* The later of two: the same on all ranks for the same two. */
const mpath_known_rate_t *mpath_known_later(const mpath_known_rate_t *a, const mpath_known_rate_t *b);

/*
 * Kept: what calls have shown of a machine, for communicators of this process that begin later, and in the file
 * (tune/history.h) for later jobs: all its kinds but rates, which have a table by rails of their own (tune/history.h).
 * Whatever is taken from here has to be exchanged first, for the ranks of a communicator may know different things from
 * others that they are in, and one of them looks into the file. Thread-safe.
 */

#define MPATH_KEPT_MAX 256 /* lines of a process; the one that was learned first makes room */

/* Plain data. */
typedef struct mpath_kept {
    uint64_t learned_ns; /* mpath_known_now(); 0: nothing is known */
    uint64_t value;
} mpath_kept_t;

/* What this process knows of the key of a line. */
mpath_kept_t mpath_kept_of(const mpath_store_line_t *key);

/* Kept unless something later is known. */
void mpath_kept_note(const mpath_store_line_t *key, const mpath_kept_t *kept);

/* Once for each machine: what the file has of it is known from then on, as learned before everything else. */
void mpath_kept_look(const char *path, uint64_t machine);

/* The later of two: the same on all ranks for the same two. */
const mpath_kept_t *mpath_kept_later(const mpath_kept_t *a, const mpath_kept_t *b);

#endif
