/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's share of a hot receiver: x with x / host + start = (hot - x) / port. */
#include "coll/host_share.h"

#define KIB 1024u

uint64_t mpath_host_share_bytes(const mpath_host_share_t *share)
{
    uint64_t host_ns, both_ns, bytes, limit, gap;

    if ((share->port_ns <= share->start_ns) || (share->hot_bytes <= share->next_bytes) || (share->host_bps < KIB)) {
        return 0;
    }
    /* In KiB and microseconds, since bytes x nanoseconds of a few GiB would not fit. */
    host_ns = share->hot_bytes / KIB * 1000000 / (share->host_bps / KIB) * 1000; /* all bytes through the host */
    both_ns = share->port_ns + host_ns;
    bytes   = (share->port_ns - share->start_ns) / 1000 * (share->hot_bytes / KIB) / (both_ns / 1000 + 1) * KIB;
    bytes   = bytes / 100 * share->take_percent;
    limit   = share->hot_bytes / 100 * share->most_percent;
    gap     = share->hot_bytes - share->next_bytes;
    bytes   = (bytes < limit) ? bytes : limit;
    return (bytes < gap) ? bytes : gap;
}
