# SPDX-License-Identifier: BSD-3-Clause
"""Part `nodes` of tests/gpu/run: an emulated cluster of network namespaces (tests/cluster/cluster) on a machine with GPUs, whose ranks
have their buffers on these: mpath against NCCL between nodes, over the same rails, interleaved in one job. NCCL lets ranks share a GPU
from 2.30 on. Bytes are checked; times are reported in multiples of the rails' bound, and fail nothing."""
import contextlib
import os
import re
import shutil

NODES, RAILS, RATE = 2, 4, "1gbit"
TOP = os.path.realpath(f"{os.path.dirname(os.path.realpath(__file__))}/../..")
CLUSTER = f"{TOP}/tests/cluster"
LEAST_NCCL = 23000

# What NCCL may use: its own NIC per rank, as a GPU beside its NIC does, or all of the node, with and without PXN; and the matrices.
CASES = {
    "own": ("own", {}, ["--hot", "0,0.3,0.5,0.7,0.9", "--bytes", "1m,4m,16m,64m"]),
    "all": ("all", {}, ["--hot", "0,0.7", "--bytes", "4m,16m"]),
    "all-no-pxn": ("all", {"NCCL_PXN_DISABLE": "1"}, ["--hot", "0,0.7", "--bytes", "4m,16m"]),
}

# A node has a GPU where there are several, and its share of one otherwise. What leaves a NIC of a rank's own goes by it also to
# NICs of other numbers: BIND_RAIL, for NCCL alone, since mpath drives every NIC, each to the same one of the other node.
RANK = """#!/bin/bash
export NCCL_SOCKET_IFNAME=rail
if [ "$1" = own ]; then
    export BIND_RAIL=rail$((OMPI_COMM_WORLD_LOCAL_RANK %% %d)) BIND_RAIL_FOR=libnccl
    export NCCL_SOCKET_IFNAME="=$BIND_RAIL"
fi
node=$(hostname)
export CUDA_VISIBLE_DEVICES=$((${node#node} %% %d))
shift
exec "$@"
"""


def environment_of(run):
    """Of the cluster's scripts, with the ip and tc of the pack where this machine has none."""
    environment = {"MPATH_CLUSTER": "gpu", "MPATH_CLUSTER_DIR": f"{run.scratch}/cluster", "NCCL_MULTI_RANK_GPU_ENABLE": "1",
                   "NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "WARN", "CUDA_MPS_PIPE_DIRECTORY": f"{run.scratch}/mps",
                   "CUDA_MPS_LOG_DIRECTORY": f"{run.scratch}/mps"}
    os.makedirs(f"{run.scratch}/mps", exist_ok=True)
    lent = f"{run.pack}/net"
    if shutil.which("tc") is None and os.path.isdir(lent):
        environment["PATH"] = f"{lent}/bin:{run.environment['PATH']}"
    return environment


def bench(run, name, environment):
    nics, variables, options = CASES[name]
    file = run.new_file(f"nodes-{name}.json")
    passed_on = [*environment, *variables, "NCCL_NVLS_ENABLE", "MPATH_BENCH_NCCL", "LD_LIBRARY_PATH", "MPATH_CACHE_DIR"]
    command = [f"{CLUSTER}/mpirun", "--access", "all", "--component", run.component(), "--timeout", "200", "--mca", "coll", "mpath",
               *(word for variable in passed_on if variable != "PATH" for word in ("-x", variable)), "--", f"{run.scratch}/rank", nics,
               run.binary("mpath_bench"), "--memory", "cuda", *options, "--against", "nccl", "--iters", "5", "--check", "--json", file]
    print(f"{NODES} nodes x {RAILS} rails of {RATE}, {NODES * RAILS} ranks on {run.gpus} GPUs; NCCL uses {name}")
    print(run.judge(f"nodes/{name}", command, 220, {**environment, **variables}, wanted=r"^hot"))
    cases = run.cases_of(file)
    left = [case["matrix"] for case in cases for c in case["contestants"] if c["name"] == "mpath" and c["mpath_calls"] != case["iterations"]]
    run.report("FAIL" if left or not cases else "PASS", f"nodes/{name}-carried", f"mpath left calls to others: {left}" if left else "")
    run.check_json(f"nodes/{name}-bytes", file)
    return cases


def print_table(found):
    print("\nms, median [min, max], x bound of the rails; times by which NCCL takes longer")
    for name, cases in found.items():
        for case in cases:
            one = {c["name"]: c for c in case["contestants"]}
            times = ", ".join(f"{key} {c['median_s'] * 1e3:.1f} [{c['min_s'] * 1e3:.1f}, {c['max_s'] * 1e3:.1f}] {c['ratio_to_bound']:.2f}"
                              for key, c in one.items())
            print(f"  {name:12} {case['matrix']:8} {case['bytes'] >> 20:3} MiB  {times}  {one['nccl']['median_s'] / one['mpath']['median_s']:.2f}")


@contextlib.contextmanager
def cluster(run, name, environment):
    """The emulated cluster, the program `rank` for its ranks, and a GPU's processes side by side; whether it is up."""
    with open(f"{run.scratch}/rank", "w", encoding="utf-8") as file:
        file.write(RANK % (RAILS, run.gpus))
    os.chmod(f"{run.scratch}/rank", 0o755)
    text = run.judge(f"{name}/up", [f"{CLUSTER}/cluster", "up", str(NODES), str(RAILS), RATE], 60, environment, wanted="up,")
    mps, _ = run.command(f"{name}/mps", ["nvidia-cuda-mps-control", "-d"], 30, environment)
    try:
        yield re.search("up,", text) is not None
    finally:
        if mps == 0:
            run.command(f"{name}/mps-end", ["sh", "-c", "echo quit | nvidia-cuda-mps-control"], 30, environment)
        run.command(f"{name}/down", [f"{CLUSTER}/cluster", "down"], 60, environment)


def part(run):
    if run.fake:
        run.report("SKIP", "nodes", "needs real GPUs: NCCL between nodes")
        return
    environment = environment_of(run)
    status, text = run.command("nodes/check", [f"{CLUSTER}/cluster", "check"], 30, environment)
    version = run.nccl_version()
    if status != 0 or version < LEAST_NCCL:
        run.report("SKIP", "nodes", text.strip() if status != 0 else f"NCCL {version}: ranks share a GPU from {LEAST_NCCL} on")
        return
    with cluster(run, "nodes", environment) as is_up:
        if is_up:
            print_table({name: bench(run, name, environment) for name in CASES})
