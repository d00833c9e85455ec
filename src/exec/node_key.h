/* SPDX-License-Identifier: BSD-3-Clause */
/* Which processes can share memory. */
#ifndef MPATH_EXEC_NODE_KEY_H
#define MPATH_EXEC_NODE_KEY_H

#include <stddef.h>
#include <stdint.h>

/* Mixes bytes into a checksum. */
uint64_t mpath_key_mix(uint64_t key, const void *data, size_t bytes);

/*
 * Processes with the same key form a node: the same host name, the same boot of the same kernel, the same IPC and
 * process id namespaces. `host` is the name that counts as host name; NULL: what the system says.
 */
uint64_t mpath_node_key(const char *host);

/* Bytes free where shared memory segments live; 0 when the system does not say. */
uint64_t mpath_shared_memory_free(void);

#endif
