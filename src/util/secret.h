/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Secrets: numbers that nobody can guess. A process hands them out with the addresses that the runtime carries between the
 * processes of a job; who shows one has its address from there. They keep out who can send to the process, not who can
 * read the network.
 */
#ifndef MPATH_UTIL_SECRET_H
#define MPATH_UTIL_SECRET_H

#include "util/status.h"

#include <stdint.h>

/* Never 0. MPATH_ERR_IO, with errno: the kernel gives no random bytes. */
mpath_status_t mpath_secret_make(uint64_t *secret_p);

#endif
