# SPDX-License-Identifier: BSD-3-Clause
"""How long the parts of tests/gpu/run take."""

MACHINE_MINUTES = 8  # what a machine of eight GPUs is lent for
MARGIN = 0.9  # of it may be reckoned to be used
# Seconds of each part on 2, 4 and 8 GPUs: seen on H200; of smoke to reductions on 8 GPUs reckoned as twice those of 4, but
# for rails within traps (20 s) and those in shared memory within relays (12 s), which are reckoned on 4 and 8, as
# what came to unit (6 s and 10 s), relays (4 s and 5 s) and kinds (6 s) since, and what balanced does instead of skew. sanitize on 4
# and 8: before tests of imports were made 60 s shorter on 2; over relays (60 s) reckoned. traps-relays, calls, large, nvlink and
# overlap and torch: reckoned.
TAKES = {"info": (1, 1, 1), "smoke": (10, 19, 36), "unit": (24, 28, 32), "kinds": (22, 41, 78), "traps": (55, 70, 109),
         "traps-relays": (80, 80, 80), "rails": (20, 20, 20), "calls": (90, 100, 130), "large": (60, 60, 60), "sanitize": (136, 185, 185),
         "reductions": (18, 24, 36), "figures": (5, 5, 5), "probe": (2, 2, 4), "rates": (4, 6, 18), "relays": (122, 109, 121), "nodes": (180, 180, 180),
         "moe": (20, 20, 32), "torch": (280, 280, 280), "bench:quick": (5, 7, 10), "bench:small": (4, 6, 18), "bench:balanced": (4, 7, 19),
         "bench:skew": (9, 14, 31), "bench:nvlink": (4, 6, 12), "bench:zipf": (4, 6, 20), "bench:stock": (4, 6, 20),
         "bench:allreduce": (8, 25, 18), "bench:allreduce-small": (3, 5, 11), "bench:allgather": (3, 8, 18),
         "bench:overlap": (5, 7, 12), "bench:nccl": (4, 7, 12)}


def estimate(parts, gpus):
    """Status 1 when the parts will probably not fit the time that a machine is lent for."""
    column = 0 if gpus <= 2 else 1 if gpus <= 4 else 2
    seconds = {part: TAKES[part][column] for part in parts}
    total, most = sum(seconds.values()), int(MARGIN * MACHINE_MINUTES * 60)
    for part in parts:
        print(f"{part:22} {seconds[part]:4} s")
    print(f"{'together':22} {total:4} s on {gpus} GPUs, of {MACHINE_MINUTES * 60} s, of which {most} may be reckoned to be used")
    return 1 if total > most else 0
