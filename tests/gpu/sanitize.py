# SPDX-License-Identifier: BSD-3-Clause
"""Part `sanitize` of tests/gpu/run: compute-sanitizer's memcheck and racecheck."""
import os
import re
import shutil
import time

import relays

# These start no kernel of mpath's, and racecheck looks at nothing but kernels.
WITHOUT_KERNELS = ("test_gpu_memory", "test_gpu_import_cache", "test_gpu_staged", "test_gpu_staged_ends", "test_gpu_staged_streams")


def find():
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    return found if os.path.exists(found) else None


def why_not(status, text, jobs, limit_s):
    """What is wrong with a run under the tool, which sums up once for each of the processes that it was given; "" for nothing."""
    sums = re.findall(r"========= (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", text)
    if status == 124:
        return f"not finished after {limit_s} s"
    if any(int(errors) for errors in sums):
        return f"found {' + '.join(sums)} errors"
    if status != 0:
        return f"ended with status {status}"
    return "" if len(sums) >= jobs else f"the tool has summed up {len(sums)} of {jobs} times"


def judge(run, name, command, jobs, limit_s, environment=None, wanted=None):
    started = time.time()
    status, text = run.command(name, command, limit_s, environment)
    why = why_not(status, text, jobs, limit_s)
    if not why and wanted and not re.search(wanted, text, re.M):
        why = f"'{wanted}' is not in its output"
    run.report("FAIL" if why else "PASS", name, why, time.time() - started, text)


def programs(run, wrap, tool):
    left_out = WITHOUT_KERNELS if tool == "racecheck" else ()
    for program in run.gpu_programs():
        if os.path.basename(program) not in left_out:
            judge(run, f"sanitize/{tool}/{os.path.basename(program)}", [*wrap, program], 1, 150)


def one_node(run, wrap, tool):
    ranks = min(max(run.gpus, 2), 4)
    options = ["--memory", "cuda", "--hot", "0.7", "--bytes", "1000,100k,1m", "--unit", "1", "--iters", "1", "--warmup", "1", "--check"]
    judge(run, f"sanitize/{tool}/alltoallv", run.mpirun(ranks, [*wrap, run.binary("mpath_bench"), *options]), ranks, 120,
          {"OMPI_MCA_coll_mpath_gate": "always", **run.forced("kernel")}, "^hot .* SM [1-9]")
    for way, order in (("direct", "same_bits"), ("writes", "same_bits"), ("ring", "ring_order")):
        job = run.mpirun(ranks, [*wrap, run.binary("reductions"), "counts", "unaligned", order])
        judge(run, f"sanitize/{tool}/reductions-{way}", job, ranks, 120, {
            "MPATH_TEST_MEMORY": "device", "OMPI_MCA_coll_mpath_gate": "always", "OMPI_MCA_coll_mpath_gpu_reduce": way,
            "OMPI_MCA_coll_mpath_gpu_memory_bytes": "8m"}, wanted="^case ok")


def over_relays(run, wrap):
    """Eight processes on the GPUs that there are: slots in each other's memory, which they leave to one another by words."""
    for program, case in (("test_relay", "test_rails_by_copies"), ("test_relay", "test_mesh"), ("test_relay", "test_rails_by_ucx"),
                          ("test_rail_gpu", "test_direct")):
        if program == "test_rail_gpu" and not run.fake and not run.ucx_knows_cuda():
            run.report("SKIP", f"sanitize/memcheck/{program}", "the UCX at hand does not know CUDA memory")
            continue
        if case == "test_mesh" and run.gpus < 4 and not run.fake:  # short calls of ranks that take turns go through the host
            run.report("SKIP", f"sanitize/memcheck/{program}-{case}", "it takes a GPU for each of 4 ranks")
            continue
        judge(run, f"sanitize/memcheck/{program}-{case}", [*wrap, run.binary(program)], 1, 150, {"MPATH_TEST_FILTER": case},
              rf"OK \] {case}")
    path = relays.topology(run, "sanitize", relays.scale(run), ["--emulated", "copies"])
    file = f"{run.scratch}/sanitize-relays.json"
    options = ["--memory", "cuda", "--hot", "0.7", "--bytes", "100k,2m", "--unit", "1", "--iters", "1", "--warmup", "1", "--check",
               "--json", file]
    job = run.mpirun(relays.RANKS, [*wrap, run.binary("mpath_bench"), *options],
                     ["--mca", "coll_mpath_topo_file", path, *run.internals("gpu_relay_bytes=64m")])
    judge(run, "sanitize/memcheck/relays", job, relays.RANKS, 180, {"OMPI_MCA_coll_mpath_gate": "always"}, "emulated$")
    run.check_json("sanitize/memcheck/relays-carried", file, carried_from=0, relayed=True)


def part(run):
    sanitizer = find()
    if not sanitizer:
        run.report("SKIP", "sanitize", "no compute-sanitizer here")
        return
    for tool in ("memcheck", "racecheck"):
        wrap = [sanitizer, "--tool", tool, "--target-processes", "all", "--error-exitcode", "9"]
        if tool == "memcheck":
            wrap += ["--report-api-errors", "no"]  # tests make calls that fail, and look at the error
        programs(run, wrap, tool)
        one_node(run, wrap, tool)
        if tool == "memcheck":
            over_relays(run, wrap)
