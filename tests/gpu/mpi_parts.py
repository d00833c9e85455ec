# SPDX-License-Identifier: BSD-3-Clause
"""Parts of tests/gpu/run that run the programs of tests/mpi and what describes a cluster to itself, on memory of GPUs. With the
fake driver each is short: it tries the script, and tests/mpi/run tests the rest."""
import os
import re
import time

MIXED = "host,registered,device,pool,vmm,managed"
CALLS = ("sparse", "hot_receiver", "one_pair", "in_place", "alltoall")


def mpi_test(run, name, program, arguments, memory, limit_s, environment=None, ranks=None, wanted=None, wrap=()):
    """A program of tests/mpi: lines `case ok NAME`, `case bad NAME: why`, `case skip NAME: why`; and `wanted` in what it prints."""
    started = time.time()
    command = run.mpirun(ranks or max(run.gpus, 2), [*wrap, run.binary(program), *arguments])
    status, text = run.command(name, command, limit_s,
                               {"MPATH_TEST_MEMORY": memory, "OMPI_MCA_coll_mpath_gate": "always", **(environment or {})})
    seconds = time.time() - started
    cases = re.findall(r"^case (ok|bad|skip) (.*)$", text, re.M)
    verdicts = {"ok": "PASS", "bad": "FAIL", "skip": "SKIP"}
    for verdict, what in cases:
        what, _, why = what.partition(": ")
        run.report(verdicts[verdict], f"{name}/{what}", why, seconds / len(cases))
    if status != 0:
        why = f"not finished after {limit_s} s" if status == 124 else f"ended with status {status}"
        run.report("FAIL", name, why, seconds, text)
    elif not cases:
        run.report("FAIL", name, "ran no test", seconds, text)
    elif wanted and not re.search(wanted, text, re.M):
        run.report("FAIL", name, f"'{wanted}' is not in what it says", seconds, text)


def memory_name(memory):
    return "mixed" if memory == MIXED else memory


# -- reductions --

def virtual_nodes(run, ranks):
    """A topology of two nodes with half of the ranks each, and a rail in shared memory for each of those."""
    path, half = f"{run.scratch}/two-nodes.xml", ranks // 2
    nics = "".join(f'<nic name="memory" rail="{rail}" rate-bps="10000000000" up="1"/>' for rail in range(half))
    nodes = "".join(f'<node host="virtual{node}" host-memory-bps="100000000000">{nics}</node>\n' for node in range(2))
    places = "".join(f'<rank node="{rank // half}" nic="{rank % half}" gpu="-1"/>\n' for rank in range(ranks))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<mpath version="1" access="affine">\n{nodes}{places}</mpath>\n')
    return path


def two_meshes(run, name):
    """A topology of two nodes of four GPUs with direct links, rails in shared memory, for 8 ranks; no clock holds its rates."""
    path = f"{run.scratch}/two-meshes.xml"
    run.judge(f"{name}-file", [run.binary("mpath_plan"), "--preset", "h100-mesh4", "--nodes", "2", "--emulated", "rails",
                               "--device", "memory", "--dump-topo", path], 30)
    with open(path, encoding="utf-8") as file:
        text = re.sub(' emulated="[^"]*"', "", file.read())
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def reductions_over_nodes(run):
    """Ranks of a node have a GPU each, which those of the other node may share; directly and in steps between nodes."""
    ranks = run.gpus if run.gpus >= 4 else 2 * run.gpus
    environment = {"OMPI_MCA_coll_mpath_topo_file": virtual_nodes(run, ranks)}
    for name, internals in (("nodes", ()), ("nodes-in-steps", ("steps_nodes=2",))):
        environment["OMPI_MCA_coll_mpath_internals"] = run.internals(*internals)[-1]
        mpi_test(run, f"reductions/{name}", "reductions", ["types", "counts", "unaligned", "reduce_scatter", "allgather",
                                                           "allgatherv", "same_bits"], "device,vmm", 150, environment, ranks,
                 "^device .*kernel=[1-9]")


def choices_over_nodes(run):
    """Ways that are found by trial between nodes; with an Open MPI that knows CUDA its own functions are among them."""
    environment = {"OMPI_MCA_coll_mpath_topo_file": two_meshes(run, "reductions/two-meshes"), "OMPI_MCA_coll_mpath_gate": "auto",
                   "OMPI_MCA_coll_mpath_verbose": "debug"}
    mpi_test(run, "reductions/choice-alltoallv", "small_calls", ["200"], "device", 100, environment, 8,
             "calls like this one have been measured")
    mpi_test(run, "reductions/choice-conformance", "conformance", [], "device,vmm", 100, environment, 8)
    mpi_test(run, "reductions/choice-allgather", "reductions", ["allgather", "allgatherv"], "device", 100, environment, 8)


def part_reductions(run):
    mpi_test(run, "reductions/device", "reductions", [], "device", 150)
    for way in ("auto", "direct", "ring"):
        mpi_test(run, f"reductions/{way}", "reductions", ["counts", "unaligned", "ring_order"], "device", 100,
                 {"OMPI_MCA_coll_mpath_gpu_reduce": way})
    reductions_over_nodes(run)
    choices_over_nodes(run)
    # what is combined where depends on the kinds, and with it the last bits
    mpi_test(run, "reductions/mixed", "reductions",
             ["types", "counts", "unaligned", "reduce_scatter", "reduce_scatter_block", "allgather", "allgatherv",
              "communicators"], MIXED, 150)


# -- traps: calls that go wrong where somebody was careless --

def killed(run, name, environment=None, ranks=None):
    """A rank dies. The launcher ends the job; where it is told to leave it alone, mpath tells each of the others."""
    ranks = ranks or max(run.gpus, 2)
    environment = {"MPATH_TEST_MEMORY": "device", "OMPI_MCA_coll_mpath_timeout_s": "30", **(environment or {})}
    program = [run.binary("killed"), "1", "200000"]
    started = time.time()
    status, text = run.command(name, run.mpirun(ranks, program), 100, environment)
    why = killed_why(status, text)
    run.report("FAIL" if why else "PASS", name, why, time.time() - started, text)
    if not run.old_mpi:
        run.report("SKIP", f"{name}-alone", "only the launcher of Open MPI 4 leaves the others alone")
        return
    started = time.time()
    status, text = run.command(f"{name}-alone", run.mpirun(ranks, program, ["--enable-recovery"]), 100, environment)
    told = len(re.findall(r"^rank \d+ came back with an error after call \d+", text, re.M))
    why = "" if told == ranks - 1 else f"status {status}: {told} of {ranks - 1} ranks came back with an error"
    run.report("FAIL" if why else "PASS", f"{name}-alone", why, time.time() - started, text)


def killed_why(status, text):
    """What is wrong with how a job ended whose rank 1 killed itself; "" where nothing is."""
    if status in (0, 3, 124):
        return f"status {status}: the job did not end with its killed rank"
    if not re.search(r"exited on signal 9\b", text):
        return f"status {status}: the launcher does not say that a rank was killed"
    return ""


def part_traps(run):
    cases = CALLS if run.fake else ()
    for memory in (MIXED,) if run.fake else ("device", "vmm", "pool", "managed", MIXED):
        mpi_test(run, f"traps/conformance-{memory_name(memory)}", "conformance", cases, memory, 150)
    for way in ("kernel", "push") if run.gpus < 2 else ():  # one after the other on a GPU
        mpi_test(run, f"traps/conformance-{way}", "conformance", cases, "device", 150, run.forced(way),
                 wanted="^device .*(kernel|engine)=[1-9]")
    mpi_test(run, "traps/small_calls-device", "small_calls", ["200" if run.fake else "10000"], "device", 100)
    mpi_test(run, "traps/threads-device", "threads", [], "device", 100)
    if run.gpus >= 2:  # a GPU for each rank
        mpi_test(run, "traps/eager", "eager", ["hot", "gaps"] if run.fake else [], "device", 100)
    for memory in ("device",) if run.fake else ("device", "pool", MIXED):
        mpi_test(run, f"traps/reset-{memory_name(memory)}", "reset", ["all"] if run.fake else [], memory, 100)
    killed(run, "traps/killed")
    if not run.fake:  # make check runs them
        part_rails(run)


def part_rails(run):
    """Programs that describe a cluster to themselves: 8 ranks on the GPUs that there are."""
    cases = {"test_relay": ("test_rails_by_ucx", "test_rails_by_copies", "test_pairs", "test_few_slots_of_rails"),
             "test_relay_faults": ("test_rail_fails", "test_killed"),
             "test_rail_gpu": ("test_trial", "test_direct", "test_rail_fails")}
    for program, names in cases.items():
        if program == "test_rail_gpu" and not run.fake and not run.ucx_knows_cuda():
            run.report("SKIP", f"rails/{program}", "the UCX at hand does not know CUDA memory")
            continue
        for name in names:
            run.judge(f"rails/{program}/{name}", [run.binary(program)], 120, {"MPATH_TEST_FILTER": name},
                      rf"OK \] {name}")


def part_traps_relays(run):
    """The same calls where data passes through other GPUs and over all rails, 8 ranks on the GPUs that there are."""
    environment = {"OMPI_MCA_coll_mpath_topo_file": two_meshes(run, "traps-relays/two-meshes")}
    relayed, some = "^device .*engine=[1-9]", (*CALLS, "placements", "datatypes", "communicators")
    for memory, cases in (("device", CALLS[:2]),) if run.fake else (("device", ()), ("vmm", some), (MIXED, some)):
        mpi_test(run, f"traps-relays/conformance-{memory_name(memory)}", "conformance", cases, memory, 200, environment, 8,
                 None if memory == MIXED else relayed)
    by_pairs = {**environment, "OMPI_MCA_coll_mpath_tune": "alltoallv:@pairs"}
    mpi_test(run, "traps-relays/pairs", "conformance", some if run.fake else (), "device", 200, by_pairs, 8, relayed)
    if run.fake:
        return
    mpi_test(run, "traps-relays/pairs-nonblocking", "nonblocking", ["outstanding", "between", "persistent"], "device", 150,
             by_pairs, 8)
    mpi_test(run, "traps-relays/tight", "conformance", CALLS[:2], "device,vmm,host", 100,
             {**environment, "OMPI_MCA_coll_mpath_gpu_relay_bytes": "2m"}, 8)
    mpi_test(run, "traps-relays/small_calls", "small_calls", ["2000"], "device", 150, environment, 8, relayed)
    mpi_test(run, "traps-relays/threads", "threads", [], "device", 150, environment, 8)
    mpi_test(run, "traps-relays/reset", "reset", ["communicators"], "device", 150, environment, 8)
    mpi_test(run, "traps-relays/nonblocking", "nonblocking", ["outstanding", "between", "persistent"], "device", 150,
             environment, 8)
    killed(run, "traps-relays/killed", environment, 8)


# -- calls that mpath leaves to others, or that come late --

def declined(run):
    """Nothing goes from GPU to GPU, and every byte is right all the same."""
    none = "^device eager=0 kernel=0 engine=0 staged=0$"
    cases = ("sparse", "alltoall", "datatypes", "intercommunicator") if run.fake else ()
    for name, environment, memory in (("never", {"OMPI_MCA_coll_mpath_gate": "never"}, "device"),
                                      ("no-gpu-mixed", {"OMPI_MCA_coll_mpath_gpu": "no"}, MIXED),
                                      ("no-gpu", {"OMPI_MCA_coll_mpath_gpu": "no"}, "device"))[:2 if run.fake else 3]:
        mpi_test(run, f"calls/{name}", "conformance", cases, memory, 150, environment, wanted=none)
    if not run.fake:
        mpi_test(run, "calls/never-reductions", "reductions", ["counts", "unaligned", "reduce_scatter", "allgather", "allgatherv"],
                 "device", 150, {"OMPI_MCA_coll_mpath_gate": "never"}, wanted=none)
        mpi_test(run, "calls/never-nonblocking", "nonblocking", ["each", "persistent"], "device", 150,
                 {"OMPI_MCA_coll_mpath_gate": "never"}, wanted=none)


def visible_devices(run):
    """Each rank of a job sees one GPU, number 0 of its own: the last one of the machine in rank 0, and so on; and by name."""
    script = ('names=($MPATH_TEST_NAMES); count=${#names[@]}; '
              'export CUDA_VISIBLE_DEVICES=${names[count - 1 - OMPI_COMM_WORLD_LOCAL_RANK % count]}; exec "$0" "$@"')
    cases = CALLS[:3] if run.fake else ()
    kinds = {"numbers": [str(gpu) for gpu in range(run.gpus)]}
    if not run.fake:
        kinds["names"] = re.findall(r"UUID: (GPU-[0-9a-f-]+)", run.output(["nvidia-smi", "-L"]))[:run.gpus]
    for kind, names in kinds.items():
        mpi_test(run, f"calls/visible-{kind}", "conformance", cases, "device", 150, {"MPATH_TEST_NAMES": " ".join(names), **run.forced("kernel")},
                 wanted="^device .*(kernel|engine)=[1-9]", wrap=["bash", "-c", script])


def part_calls(run):
    # the application's own stream is far behind the call: 20 fills of 256 MiB are 2 ms of an H100
    late = {"OMPI_MCA_coll_mpath_sync": "device", "FAKE_CUDA_DELAY_US": "3000"}
    for way in ("auto", "kernel", "push"):
        mpi_test(run, f"calls/order-{way}", "order", [] if run.fake else ["256"], "device", 100,
                 {**late, "OMPI_MCA_coll_mpath_gpu_way": way}, wanted={"kernel": "^device .*kernel=[1-9]", "push": "^device .*engine=[1-9]"}.get(way))
    for memory in ("device,host,pool",) if run.fake else ("device", "device,host,pool"):
        mpi_test(run, f"calls/inter-{'mixed' if ',' in memory else memory}", "inter", [], memory, 100, ranks=max(run.gpus, 3))
    for memory in (MIXED,) if run.fake else ("device", MIXED):
        mpi_test(run, f"calls/nonblocking-{memory_name(memory)}", "nonblocking", ["outstanding", "persistent"] if run.fake else [],
                 memory, 150)
    for memory in (MIXED,) if run.fake else ("device", MIXED):
        mpi_test(run, f"calls/mixed-{memory_name(memory)}", "mixed", ["20"] if run.fake else ["400", "7"], memory, 200,
                 ranks=max(run.gpus, 4))
    for memory in ("host,device",) if run.fake else ("device", "host,device", MIXED):
        mpi_test(run, f"calls/several-{memory_name(memory)}", "several", [], memory, 100)
    declined(run)
    visible_devices(run)
    mpi_test(run, "calls/small_calls", "small_calls", ["100" if run.fake else "100000"], "device", 240)
    if run.gpus < 2:
        mpi_test(run, "calls/small_calls-kernel", "small_calls", ["100" if run.fake else "20000"], "device", 240,
                 run.forced("kernel"), wanted="^device .*kernel=[1-9]")


def part_large(run):
    """More than 2 GiB in a call; over relays it passes through other GPUs in chunks."""
    size = ["--mib", "1"] if run.fake else []
    mpi_test(run, "large/device", "large", size, "device", 240, ranks=3, wanted="^calls mpath=[1-9]")
    mpi_test(run, "large/never", "large", [*size, "alltoallv"], "device", 240, {"OMPI_MCA_coll_mpath_gate": "never"}, ranks=3)
    environment = {"OMPI_MCA_coll_mpath_topo_file": two_meshes(run, "large/two-meshes")}
    mpi_test(run, "large/relays", "large", [*size, "alltoallv"], "device", 240, environment, 8, "^device .*engine=[1-9]")


PARTS = {"reductions": part_reductions, "traps": part_traps, "rails": part_rails, "traps-relays": part_traps_relays,
         "calls": part_calls, "large": part_large}
