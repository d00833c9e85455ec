#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A skewed Alltoallv from Python: every rank sends half of its values to rank 0.  usage: skewed.py [numpy|cupy]

cupy puts the buffers on the GPU; it needs CuPy, a GPU for each rank, and mpi4py 3.1 or newer.
"""
import importlib
import sys

from mpi4py import MPI

kind = sys.argv[1] if len(sys.argv) > 1 else "numpy"
if kind not in ("numpy", "cupy"):
    sys.exit(f"skewed.py: memory '{kind}' is neither numpy nor cupy; nothing was sent")
xp = importlib.import_module(kind)
comm = MPI.COMM_WORLD
rank, ranks, n = comm.rank, comm.size, 1 << 20
if kind == "cupy":
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    xp.cuda.Device(local.rank % xp.cuda.runtime.getDeviceCount()).use()
    local.Free()

scounts = [n // (2 * ranks) + (n // 2 if to == 0 else 0) for to in range(ranks)]
rcounts = [n // (2 * ranks) + (n // 2 if rank == 0 else 0)] * ranks
send = xp.full(sum(scounts), rank, dtype="i4")
recv = xp.full(sum(rcounts), -1, dtype="i4")
if kind == "cupy":
    xp.cuda.get_current_stream().synchronize()  # MPI reads the buffer at once
comm.Alltoallv([send, scounts, MPI.INT], [recv, rcounts, MPI.INT])
wrong = int((recv != xp.repeat(xp.arange(ranks, dtype="i4"), rcounts)).sum())
wrong = comm.allreduce(wrong)
if rank == 0:
    print(f"python {kind}: {wrong} wrong values")
sys.exit(wrong != 0)
