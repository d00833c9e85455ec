/* SPDX-License-Identifier: BSD-3-Clause */
/* The time model of reductions between the GPUs of a node. */
#include "node/reduce_predict.h"

/*
 * Nanoseconds of a call whose bytes do not matter, and femtoseconds of each byte through a port, in either direction
 * (doc/benchmarks/2026-11-22-h200.md: 2 GPUs, 2026-11-22-h200-8.md: 4 and 8, 2026-11-23-h200.md: OSU's, 2 GPUs). Where
 * all GPUs deal with all others, both grow with the ranks.
 *
 * Eager: calls of 8 B and 64 KiB took 7 to 9 and 8 to 10 us on 2, 8.4 and 10.0 on 4, 11.3 and 15.3 on 8. In parts
 * results are sent after vectors: with the bytes taken off, 256 KiB took 1.4 us more than 8 B on 4 GPUs, 1 MiB 0.4 to 2.0
 * on 2.
 */
#define EAGER_NS(_ranks) (UINT64_C(6500) + UINT64_C(600) * (_ranks))
#define EAGER_FS UINT64_C(3500)
#define PARTS_MORE_NS UINT64_C(1500)

/*
 * Direct, that is after the agreement: 16 MiB took 63 to 65 us on 2; 1, 2, 4, 8, 16, 64 MiB 18.5, 23.9, 35.9, 52.6, 90.9,
 * 328 on 4; 1, 64, 256 MiB 26.2, 409, 1516 on 8 (4 and 16 MiB more than predicted: 51 and 150 instead of 44 and 115).
 */
#define DIRECT_NS(_ranks) (UINT64_C(10000) + UINT64_C(1250) * (_ranks))
#define DIRECT_FS(_ranks) (UINT64_C(3000) + UINT64_C(30) * (_ranks))

/* Writes: 64 MiB, 256 MiB, 1 GiB took 206 to 211, 767, 2970 us on 2 GPUs without the host's share. */
#define WRITES_NS(_ranks) (UINT64_C(15500) + UINT64_C(5250) * (_ranks))
#define WRITES_FS(_ranks) (UINT64_C(2700) + UINT64_C(45) * (_ranks))

/* Ring: 16, 64 MiB took 91, 297 us on 4; 16, 64, 256 MiB, 1 GiB 126, 357, 1334, 5228 on 8. */
#define RING_NS UINT64_C(18000)
#define RING_FS UINT64_C(2780)
#define RING_STEP_NS UINT64_C(6000) /* a tile's time from one GPU to the next, at least */

/*
 * The path through the host begins late and ends after its last chunk, 60 to 120 us in all (2 H200): 64 MiB took longer
 * with it, 128 MiB less, which a port carries in 340 to 370 us.
 */
#define HOST_LEAST_NS UINT64_C(340000)

#define WHOLE 1024u /* of a factor */
#define UNIT_BYTES UINT64_C(16)

/* What this machine is slower by than the H200. */
typedef struct stretch {
    uint64_t start, bytes;
} stretch_t;

/*
 * A latency below the H200's counts as that one: it was the median of a probe, and jobs take the least of a few tries,
 * which is less on the same machine.
 */
static stretch_t stretch_of(const mpath_peer_rates_t *rates)
{
    uint64_t mbps = (rates->kernel_bps < 1000000) ? 1 : rates->kernel_bps / 1000000;
    mpath_peer_rates_t h200;
    stretch_t stretch;

    mpath_peer_rates_init(&h200);
    stretch.bytes = WHOLE * (h200.kernel_bps / 1000000) / mbps;
    stretch.start = WHOLE * (uint64_t)rates->kernel_ns / h200.kernel_ns;
    stretch.start = (stretch.start < WHOLE) ? WHOLE : stretch.start;
    return stretch;
}

static uint64_t port_ns(uint64_t bytes, uint64_t femtoseconds)
{
    return bytes / 1000 * femtoseconds / 1000;
}

static uint64_t bytes_ns(const stretch_t *stretch, uint64_t bytes, uint64_t femtoseconds)
{
    return port_ns(bytes, femtoseconds * stretch->bytes / WHOLE);
}

static uint64_t start_ns(const stretch_t *stretch, uint64_t ns)
{
    return ns * stretch->start / WHOLE;
}

static uint64_t ring_ns(const stretch_t *stretch, unsigned ranks, uint64_t bytes)
{
    uint64_t step_ns = bytes_ns(stretch, bytes / ranks, RING_FS), least_ns = start_ns(stretch, RING_STEP_NS);

    return start_ns(stretch, RING_NS) + 2 * (ranks - 1) * ((step_ns > least_ns) ? step_ns : least_ns);
}

/*
 * A port carries 2 (n - 1) / n of the vector; of whole ones 2 (n - 1) with the numbers, and in parts, where two units of
 * four are numbers, 8 / 3 (n - 1) / n.
 */
uint64_t mpath_reduce_predict_ns(const mpath_peer_rates_t *rates, mpath_gpu_reduce_t algorithm, unsigned ranks,
                                 uint64_t bytes)
{
    stretch_t stretch = stretch_of(rates);
    uint64_t port     = bytes * 2 / ranks * (ranks - 1);

    switch (algorithm) {
    case MPATH_GPU_REDUCE_WHOLE:
        return (bytes > MPATH_REDUCE_WHOLE_MAX_BYTES)
                   ? UINT64_MAX
                   : start_ns(&stretch, EAGER_NS(ranks)) + bytes_ns(&stretch, bytes * 2 * (ranks - 1), EAGER_FS);
    case MPATH_GPU_REDUCE_PARTS:
        return (bytes > MPATH_REDUCE_PARTS_MAX_BYTES)
                   ? UINT64_MAX
                   : start_ns(&stretch, EAGER_NS(ranks) + PARTS_MORE_NS) + bytes_ns(&stretch, port / 3 * 4, EAGER_FS);
    case MPATH_GPU_REDUCE_WRITES:
        return start_ns(&stretch, WRITES_NS(ranks)) + bytes_ns(&stretch, port, WRITES_FS(ranks));
    case MPATH_GPU_REDUCE_RING:
        return ring_ns(&stretch, ranks, bytes);
    default:
        return start_ns(&stretch, DIRECT_NS(ranks)) + bytes_ns(&stretch, port, DIRECT_FS(ranks));
    }
}

mpath_gpu_reduce_t mpath_reduce_fastest(const mpath_peer_rates_t *rates, unsigned algorithms, unsigned ranks,
                                        uint64_t bytes)
{
    mpath_gpu_reduce_t best = MPATH_GPU_REDUCE_DIRECT;
    uint64_t best_ns        = mpath_reduce_predict_ns(rates, best, ranks, bytes);

    for (unsigned algorithm = MPATH_GPU_REDUCE_DIRECT + 1; algorithm < MPATH_GPU_REDUCE_ALGORITHMS; algorithm++) {
        if (algorithms & MPATH_REDUCE_BIT(algorithm)) {
            uint64_t ns = mpath_reduce_predict_ns(rates, (mpath_gpu_reduce_t)algorithm, ranks, bytes);

            best    = (ns < best_ns) ? (mpath_gpu_reduce_t)algorithm : best;
            best_ns = (ns < best_ns) ? ns : best_ns;
        }
    }
    return best;
}

uint64_t mpath_reduce_most_bytes(const mpath_peer_rates_t *rates, mpath_gpu_reduce_t algorithm,
                                 mpath_gpu_reduce_t other, unsigned ranks, uint64_t limit)
{
    uint64_t low = 0, high = limit / UNIT_BYTES; /* that many units are, and one more than these are not */

    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2, bytes = middle * UNIT_BYTES;

        if (mpath_reduce_predict_ns(rates, algorithm, ranks, bytes) <=
            mpath_reduce_predict_ns(rates, other, ranks, bytes)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low * UNIT_BYTES;
}

uint64_t mpath_reduce_ring_ns(const mpath_peer_rates_t *rates, uint64_t bytes)
{
    stretch_t stretch = stretch_of(rates);

    return bytes_ns(&stretch, bytes, RING_FS);
}

int mpath_reduce_in_ring(unsigned ranks, uint64_t bytes)
{
    return (ranks > 2) && (bytes > MPATH_REDUCE_PARTS_MAX_BYTES);
}

uint64_t mpath_reduce_host_least_bytes(uint64_t port_bps)
{
    return port_bps / 1000000 * HOST_LEAST_NS / 1000;
}
