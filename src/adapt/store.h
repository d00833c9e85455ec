/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Store: learned rates in a text file that people can read, edit and delete. A line per machine (a checksum of the
 * topology), operation and size class:
 *
 *     mpath-rates 1
 *     5f0c2c9d01a3b77e allreduce 2 25000000 25000000 6250000 25000000      bytes per second, by rail
 *
 * Lines that cannot be read are named in a warning and left out; a file that does not exist is an empty one.
 */
#ifndef MPATH_ADAPT_STORE_H
#define MPATH_ADAPT_STORE_H

#include "topo/topo.h"

#include <stdint.h>

#define MPATH_STORE_OPERATION_MAX 24

/* The rates of a key: MPATH_OK and bps[num_rails], or MPATH_DECLINED when the file has none for so many rails. */
mpath_status_t mpath_store_load(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, uint64_t *bps);

/* Replaces or adds the line of a key; the file is written anew and moved into place. Errors are logged. */
mpath_status_t mpath_store_save(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, const uint64_t *bps);

#endif
