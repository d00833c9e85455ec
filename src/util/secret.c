/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets: from the kernel's random bytes. */
#include "util/secret.h"

#include <errno.h>
#include <sys/random.h>

mpath_status_t mpath_secret_make(uint64_t *secret_p)
{
    uint64_t secret = 0;
    ssize_t got;

    while (secret == 0) {
        do {
            got = getrandom(&secret, sizeof(secret), 0);
        } while ((got < 0) && (errno == EINTR));
        if (got != (ssize_t)sizeof(secret)) {
            return MPATH_ERR_IO;
        }
    }
    *secret_p = secret;
    return MPATH_OK;
}
