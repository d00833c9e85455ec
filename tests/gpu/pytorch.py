# SPDX-License-Identifier: BSD-3-Clause
"""Part `torch` of tests/gpu/run: torch_mpath on CUDA tensors, in the PyTorch of this python. Values, streams, random calls, graphs; times
beside NCCL in the same job, with a matrix product beside them; a mixture-of-experts layer between the nodes of an emulated cluster.
Values decide; times are judged against the goals and fail nothing. Without GPUs (--fake) the same on CPU tensors, short."""
import json
import os
import re
import statistics
import sys
import time

import nodes

TOP = nodes.TOP
RANKS = f"{TOP}/tests/torch/ranks.py"
MIB = 1 << 20
LIMIT_S = 100
PROBE = """
import ctypes, os, torch
version = ctypes.c_int()
if torch.cuda.is_available():  # torch.cuda.nccl.version() is that of the headers it was built with
    ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_NOW).ncclGetVersion(ctypes.byref(version))
print("torch", torch.__version__.split("+")[0], "nccl", version.value)
"""

# NCCL's time divided by mpath's
GOALS = {("hot:0.7", 16 * MIB): 1.3, ("hot:0.7", 64 * MIB): 1.2, ("hot:0.7", 256 * MIB): 1.2, ("balanced", 256 * MIB): 1.3,
         ("balanced", MIB): 0.9, ("hot:0.7", MIB): 0.9}
MOE_GOAL = 1.35
MOST_SLOWED_PERCENT = 3
BENCHES = {
    "hot": ["--demand", "hot:0.7", "--bytes", "1m,16m,64m,256m"],
    "equal": ["--demand", "balanced", "--bytes", "1m,256m"],
    "product": ["--demand", "hot:0.7,balanced", "--bytes", "256m", "--product", "4096"],
}


class Torch:
    """The PyTorch of this machine, and how its jobs are started."""

    def __init__(self, run):
        self.run, self.device = run, "cpu" if run.fake else "cuda"
        self.environment = {"PYTHONPATH": f"{TOP}/torch_mpath:{TOP}/examples", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore",
                            "MPATH_TEST_DEVICE": self.device, "OMPI_MCA_coll_mpath_gate": "always", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
        self.before = []  # what stands in front of python
        self.release, self.nccl = self._probe()
        if self.release and run.nccl and self.device == "cuda" and run.nccl_version() > self.nccl:
            self.before = ["env", f"LD_PRELOAD={run.nccl}"]
            self.nccl = self._probe()[1]

    def _probe(self):
        found = re.search(r"^torch (\S+) nccl (\d+)", self.run.output([*self.before, sys.executable, "-c", PROBE]), re.M)
        return (found[1], int(found[2])) if found else (None, 0)

    def command(self, ranks, *words):
        return self.run.mpirun(ranks, [*self.before, sys.executable, *words])

    def scenario(self, name, scenario, ranks, environment=None):
        """A scenario of tests/torch/ranks.py, with which every rank has to be content."""
        started = time.time()
        status, text = self.run.command(f"torch-{name}", self.command(ranks, RANKS, scenario), LIMIT_S, {**self.environment, **(environment or {})})
        content = len(re.findall(r"^rank \d+: ok", text, re.M))
        if status == 0 and content == ranks:
            why = ""
        elif status == 124:
            why = f"not finished after {LIMIT_S} s"
        else:
            why = f"ended with status {status}, {content} of {ranks} ranks were content"
        self.run.report("FAIL" if why else "PASS", f"torch/{name}", why, time.time() - started, text)

    def bench(self, name, options, environment=None):
        """The figures of examples/torch_bench.py, in a job of a rank per GPU; each value is checked there."""
        file = self.run.new_file(f"torch-{name}.json")
        command = self.command(self.run.gpus, f"{TOP}/examples/torch_bench.py", "--device", self.device, *options, "--json", file)
        text = self.run.judge(f"torch/bench-{name}", command, LIMIT_S,
                              {**self.environment, "OMPI_MCA_coll_mpath_gate": "auto", **(environment or {})}, wanted=r"^  mpath ")
        print(text)
        return figures_of(file)


def figures_of(file):
    try:
        with open(file, encoding="utf-8") as source:
            figures = json.load(source)
    except (OSError, ValueError):
        return []
    return figures if isinstance(figures, list) else []


def judge_times(run, name, figures):
    for figure in figures:
        times = {who: statistics.median(seconds) for who, seconds in figure["times_s"].items()}
        key = figure["demand"], round(figure["bytes"] / MIB) * MIB
        if "nccl" in times and key in GOALS:
            label = f"torch {name} {figure['demand']} {key[1] // MIB} MiB"
            print(f"{label}: {run.goals.note(label, 'x nccl', times['nccl'] / times['mpath'], GOALS[key])}")


def judge_products(run, figures):
    for figure in figures:
        for who, seen in figure["beside"].items():
            label = f"torch product beside {figure['demand']}, {who}"
            print(f"{label}: {seen['slowed_percent']:.1f} % slower")
            if who == "mpath":
                run.goals.note(label, "% slower", seen["slowed_percent"], MOST_SLOWED_PERCENT, at_most=True)


def values(torch):
    """On GPUs of one's own, as far as there are several; then on one that all ranks share, where NCCL takes no part."""
    run = torch.run
    if run.gpus >= 2:
        for scenario in ("collectives", "works", "groups", "turns", "arguments"):
            torch.scenario(scenario, scenario, run.gpus)
        if torch.device == "cuda":
            torch.scenario("streams", "streams", run.gpus)
            torch.scenario("streams-one-connection", "streams", run.gpus, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
            torch.scenario("expandable-segments", "collectives", run.gpus, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
        torch.scenario("random", "random", run.gpus, {"MPATH_TEST_CALLS": "100" if run.fake else "2000"})
    shared = {"MPATH_TEST_INNER": "no", "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}
    torch.scenario("shared-collectives", "collectives", 2, shared)
    if torch.device == "cuda":
        torch.scenario("shared-streams", "streams", 2, shared)
    torch.scenario("shared-random", "random", 2, {**shared, "MPATH_TEST_CALLS": "50" if run.fake else "500"})


def times(torch):
    run = torch.run
    if run.gpus < 2:
        run.report("SKIP", "torch/bench", "needs 2 GPUs")
        return
    against = "gloo" if run.fake else "nccl"
    for name, options in BENCHES.items():
        if run.fake:
            options = [{"4096": "64"}.get(word, re.sub(r"^\d+m.*", "64k", word)) for word in options]
        calls = "2" if run.fake else "20" if name == "product" else "30"
        figures = torch.bench(name, [*options, "--against", against, "--calls", calls, "--warmup", "1" if run.fake else "5"])
        judge_times(run, name, figures if name != "product" else [])
        judge_products(run, figures)
    if not run.fake:
        torch.bench("one-connection", ["--demand", "hot:0.7,balanced", "--bytes", "64m", "--against", against, "--calls", "20", "--warmup", "5"],
                    {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})


def moe(torch):
    """examples/torch_moe.py on 8 ranks that share the GPUs, over the rails of the emulated cluster of part `nodes`."""
    run = torch.run
    environment = nodes.environment_of(run)
    status, text = run.command("torch/cluster-check", [f"{nodes.CLUSTER}/cluster", "check"], 30, environment)
    if status != 0 or torch.nccl < nodes.LEAST_NCCL:
        run.report("SKIP", "torch/moe", text.strip() if status != 0 else f"NCCL {torch.nccl}: ranks share a GPU from {nodes.LEAST_NCCL} on")
        return
    with nodes.cluster(run, "torch", environment) as is_up:
        if is_up:
            moe_by_nodes(torch, environment)


def moe_by_nodes(torch, environment):
    """NCCL with the NIC of each rank's own, as a GPU beside its NIC has, and with all of the node."""
    run = torch.run
    for nics in ("own", "all"):
        more = {**environment, **torch.environment, "OMPI_MCA_coll_mpath_gate": "auto"}
        passed_on = [variable for variable in (*more, "NCCL_NVLS_ENABLE", "LD_LIBRARY_PATH", "MPATH_CACHE_DIR") if variable != "PATH"]
        command = [f"{nodes.CLUSTER}/mpirun", "--access", "all", "--component", run.component(), "--timeout", str(LIMIT_S), "--mca", "coll", "mpath",
                   *(word for variable in passed_on for word in ("-x", variable)), "--", f"{run.scratch}/rank", nics,
                   *preloaded(torch.before), sys.executable, f"{TOP}/examples/torch_moe.py", "--device", "cuda", "--backend", "mpath,nccl",
                   "--demand", "hot:0.7", "--tokens", "2048", "--steps", "8", "--check"]
        text = run.judge(f"torch/moe-{nics}", command, LIMIT_S + 20, more, wanted=r"^  0 tensors differ")
        print(f"{nodes.NODES} nodes x {nodes.RAILS} rails of {nodes.RATE}, 8 ranks on {run.gpus} GPUs; NCCL uses {nics}")
        print("\n".join(line for line in text.splitlines() if re.match(r"  |\d+ ranks", line)))
        found = re.search(r"^  nccl .* ([0-9.]+) x mpath", text, re.M)
        run.goals.note(f"torch_moe between nodes, NCCL on {nics}", "x nccl", float(found[1]) if found else None, MOE_GOAL)


def preloaded(before):
    """Behind what the cluster itself preloads."""
    if not before:
        return []
    return ["sh", "-c", "export " + before[1].replace("LD_PRELOAD=", "LD_PRELOAD=$LD_PRELOAD:") + '; exec "$@"', "sh"]


def part(run):
    torch = Torch(run)
    if not torch.release:
        run.report("SKIP", "torch", f"{sys.executable} has no PyTorch")
        return
    print(f"PyTorch {torch.release}, NCCL {torch.nccl}")
    values(torch)
    times(torch)
    if not run.fake:
        moe(torch)
