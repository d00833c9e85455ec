/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Store: learned rates in a text file that people can read, edit and delete. A line per machine (a checksum of the
 * topology), operation and size class:
 *
 *     mpath-rates 1
 *     5f0c2c9d01a3b77e allreduce 2 25000000 25000000 6250000 25000000      bytes per second, by rail
 *
 * Lines that cannot be read are named in a warning and left out; a file that does not exist is an empty one. One that
 * does not begin with the title is somebody else's and stays as it is, and so does what is no regular file.
 */
#ifndef MPATH_ADAPT_STORE_H
#define MPATH_ADAPT_STORE_H

#include "topo/topo.h"

#include <stdint.h>

#define MPATH_STORE_OPERATION_MAX 24

/* A line of the file. */
typedef struct mpath_store_line {
    uint64_t machine;
    char operation[MPATH_STORE_OPERATION_MAX];
    int size_class, num_rails;
    uint64_t bps[MPATH_MAX_NICS];
} mpath_store_line_t;

typedef void (*mpath_store_visit_t)(void *argument, const mpath_store_line_t *line);

/* Every line that can be read, in order. MPATH_DECLINED: no such file; MPATH_ERR_IO, with errno; MPATH_ERR_PARAM,
 * logged: another kind of file. */
mpath_status_t mpath_store_read(const char *path, mpath_store_visit_t visit, void *argument);

/* The rates of a key: MPATH_OK and bps[num_rails], or MPATH_DECLINED when the file has none for so many rails. */
mpath_status_t mpath_store_load(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, uint64_t *bps);

/* Replaces or adds the line of a key; the file is written anew and moved into place, while other processes that save
 * wait. Errors are logged. */
mpath_status_t mpath_store_save(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, const uint64_t *bps);

#endif
