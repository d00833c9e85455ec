# SPDX-License-Identifier: BSD-3-Clause
"""Part `relays` of tests/gpu/run: an emulated cluster of 2 nodes of 4 GPUs on one host, with the rates of 4 x H100 in a direct
mesh and a 400 Gbit/s NIC beside each, times one factor. Eight ranks, on however many GPUs there are. Bytes are checked, and what
must hold on any machine is judged; whether the goals are reached is in the table and in result.json, and fails nothing."""
import os

import goals

RANKS = 8
TOLERANCE = 0.03  # of the declared rates

SKEWS = "0,0.4,0.6,0.8,1"


def scale(run):
    """So that no real port is the limit: two ranks share each of four GPUs, and one of eight gives 405 of 391 GB/s."""
    if run.fake:
        return 0.0001
    return 0.5 if run.gpus >= RANKS else 0.25 if run.gpus >= 4 else 0.1


def topology(run, name, factor, options):
    path = f"{run.scratch}/{name}.xml"
    run.judge(f"relays/{name}-file", [run.binary("mpath_plan"), "--preset", "h100-mesh4", "--scale", f"{factor:g}", *options,
                                      "--dump-topo", path], 30)
    return path


def bench(run, name, path, factor, options, limit_s):
    """The cases of one job of mpath_bench; [] when it failed."""
    file = run.new_file(f"relays-{name}.json")
    label = f"emulated, declared rates x {factor:g}, {RANKS} ranks on {run.gpus} GPUs"
    before = ["--mca", "coll_mpath_topo_file", path, *run.internals("gpu_relay_bytes=1g"),
              "--mca", "coll_mpath_gpu_device_bytes", "2g"]
    options = ["--memory", "cuda", *options, "--label", label, "--json", file]
    print(label)
    print(run.judge(f"relays/{name}", run.mpirun(RANKS, [run.binary("mpath_bench"), *options], before), limit_s,
                    wanted=r"mpath +[0-9.]+ .*emulated$"))
    cases = run.cases_of(file)
    if not cases:
        return []
    run.benches[f"relays-{name}"] = cases
    carried = all(c["mpath_calls"] == case["iterations"] for case in cases for c in case["contestants"])
    run.report("PASS" if carried else "FAIL", f"relays/{name}-carried", "" if carried else "mpath left calls to others")
    return cases


def medians(case):
    return {c["name"]: c["median_s"] for c in case["contestants"]}


def hold_rates(run, cases, prefix="rate"):
    """The static route of a pair has one emulated port on its way that decides: nobody beats it, and large messages fill it."""
    for case in cases:
        took, least = medians(case)["1 path"], case["static_s"]
        rate = case["bytes"] / took / 1e9
        name = f"relays/{prefix}-{case['matrix'].replace(' ', '-')}"
        why = f"{rate:.4g} of {case['bytes'] / least / 1e9:.4g} GB/s, emulated"
        print(f"{name}: {why} ({least / took:.4f})")
        if took < least * (1 - TOLERANCE) or (not run.fake and took > least * (1 + TOLERANCE)):
            run.report("FAIL", name, f"{why} is off by more than {TOLERANCE:.0%}")
        else:
            run.report("PASS", name)


def note(run, case, value, wanted, what="x static", at_most=False):
    name = f"relays {case['matrix']} {goals.size_text(case['bytes'])}"
    return run.goals.note(name, what, value, wanted, at_most)


def print_pairs(run, cases):
    wanted = {("pair 0-1", "2 paths"): 1.92, ("pair 0-1", "3 paths"): 2.80, ("pair 0-4", "4 paths"): 3.90}
    for case in cases:
        times = medians(case)
        for name, time in times.items():
            gain = times["1 path"] / time
            goal = wanted.get((case["matrix"], name))
            text = "  " + note(run, case, gain, goal, f"x static, {name}") if goal else ""
            print(f"{case['matrix']}  {name:8} {case['bytes'] / time / 1e9:8.2f} GB/s  {gain:5.2f} x static{text}  emulated")


def print_skews(run, cases):
    for case in cases:
        times = medians(case)
        gain = times["1 path"] / times["mpath"]
        best = case["static_s"] / case["bound_s"]
        if case["matrix"] == "hot 0":
            goal = 0.99
        elif case["bytes"] >= 64 * goals.MIB:
            goal = 0.95 * best
        else:
            goal = 1.0
        print(f"{case['matrix']:8} {case['bytes'] // 1024:8} KiB  {gain:5.2f} x static, at most {best:5.2f}; "
              f"{case['bound_s'] / times['mpath']:6.1%} of the bound  {note(run, case, gain, goal)}  emulated")


def print_least_size(run, cases):
    """From which size on several paths are faster than one, by matrix."""
    for matrix in sorted({case["matrix"] for case in cases} - {"hot 0"}):
        gains = {case["bytes"]: medians(case)["1 path"] / medians(case)["mpath"] for case in cases if case["matrix"] == matrix}
        least = goals.multi_path_pays_from(gains)
        text = run.goals.note(f"relays {matrix}, least size that gains", "MiB", least and least / goals.MIB, 4, at_most=True)
        print(f"{matrix}: several paths are faster from {goals.size_text(least) if least else 'no size'} on  {text}  emulated")


def no_relay_behind_a_switch(run):
    text = run.judge("relays/switch", [run.binary("mpath_plan"), "--preset", "hgx-h200", "--nodes", "1", "--hot", "0.7"], 30,
                     wanted=r"^relayed bytes +0 B$")
    print("\n".join(line for line in text.splitlines() if line.startswith("relayed")))


def rails_through_the_host(run):
    """Rails of UCX over the loopback device: each at its declared rate, which leaves processors time for all four."""
    factor = 0.0001 if run.fake else 0.01
    path = topology(run, "rails", factor, ["--emulated", "rails", "--device", "lo"])
    size = "64k" if run.fake else "64m"
    cases = bench(run, "through-host", path, factor, ["--pair", "0-4", "--bytes", size, "--paths", "1,4", "--iters",
                                                      "2" if run.fake else "20", "--check"], 60)
    hold_rates(run, cases, "rate-through-host")
    for case in cases:
        times = medians(case)
        gain = times["1 path"] / times["mpath"]
        print(f"{case['matrix']} over UCX rails through host memory: {gain:.2f} x one rail  "
              f"{note(run, case, gain, 3.5, 'x one rail through the host')}  emulated")


def rails_without_clocks(run, device, what):
    """Rails of UCX over what the host has, at whatever they reach, which is far below what is declared. Four pairs at a time, each
    over a rail of its own and no relay, show what the processors allow. Measured: nothing here is a network."""
    size, short = ("64k", ["--iters", "2", "--warmup", "1"]) if run.fake else ("64m", ["--iters", "10"])
    name = f"unpaced-{device}"
    path = topology(run, name, 1, ["--emulated", "rails", "--device", device])
    one = bench(run, name, path, 1, ["--pair", "0-4", "--bytes", size, "--paths", "1,2,4", *short, "--check"], 60)
    matrix = f"{run.scratch}/pairs.txt"
    with open(matrix, "w", encoding="utf-8") as file:
        for source in range(RANKS):
            row = [one[0]["bytes"] if one and destination == source + RANKS // 2 else 0 for destination in range(RANKS)]
            print(*row, file=file)
    four = bench(run, f"{name}-pairs", path, 1, ["--matrix", matrix, "--paths", "1", *short, "--check"], 60) if one else []
    for case in one:
        times = medians(case)
        alone = times["1 path"]
        text = "".join(f", {name} {alone / time:.2f} x ({case['bytes'] / time / 1e9:.2f} GB/s)" for name, time in times.items()
                       if name != "1 path")
        print(f"{case['matrix']} over UCX rails of {what} without clocks: one rail {case['bytes'] / alone / 1e9:.2f} GB/s{text}  "
              f"{note(run, case, alone / times['mpath'], 3.5, f'x one rail of {what}, no clocks')}  measured")
        for pairs in four:
            time = medians(pairs)["1 path"]
            print(f"four pairs at a time, a rail of {what} each and no relay: {4 * case['bytes'] / time / 1e9:.2f} GB/s, "
                  f"{4 * alone / time:.2f} x one rail  measured")


def host_pairs(run):
    """What the host allows rails through it, with nothing but the copies: beside that the rails without clocks stand."""
    command = [run.binary("gpu_host_pairs"), "2000000" if run.fake else f"{64 * goals.MIB}"]
    print(run.judge("relays/host-pairs", command, 100, wanted="^both +4 at a time"))


def part(run):
    factor = scale(run)
    path = topology(run, "cluster", factor, ["--emulated", "copies"])
    short = ["--iters", "2", "--warmup", "1", "--check"]
    many = short if run.fake else ["--iters", "60"]  # short calls differ by a few microseconds from one to the next
    large, sizes, sweep = ("512k", "", "16k:128k:8") if run.fake else ("256m", "64m,256m", "1m:16m:4")
    pairs = bench(run, "pairs", path, factor, ["--pair", "0-1,0-4", "--bytes", large, "--paths", "1,2,3,4",
                                               *(short if run.fake else [])], 60)
    hold_rates(run, pairs)
    skews = [] if run.fake else bench(run, "skews", path, factor, ["--hot", SKEWS, "--bytes", sizes, "--paths", "1"], 120)
    small = bench(run, "sizes", path, factor, ["--hot", "0,0.7" if run.fake else "0,0.4,0.7,1", "--sweep", sweep, "--paths", "1",
                                               *many], 60)
    rails_through_the_host(run)
    rails_without_clocks(run, "lo", "TCP over the loopback device")
    rails_without_clocks(run, "memory", "shared memory")
    host_pairs(run)
    no_relay_behind_a_switch(run)
    print(f"\nemulated cluster: 2 nodes of 4 GPUs, NVLinks of {120 * factor:g} GB/s a pair, NICs of {45.1 * factor:g} GB/s "
          f"(120 and 45.1 x {factor:g}), {RANKS} ranks on {run.gpus} GPUs; clocks hold these rates")
    print_pairs(run, pairs)
    print_skews(run, skews + small)
    print_least_size(run, skews + small)


def find_cublas(run):
    """Folders of libcublas.so that the loader may not know: Python environments have it as well."""
    found = run.output(["sh", "-c", "find / -xdev -name 'libcublas.so.1*' -not -path '/proc/*' 2>/dev/null"])
    return ":".join(sorted({os.path.dirname(path) for path in found.split() if path.startswith("/")}, reverse=True))


def print_moe(run, text):
    """mpath beside the static route: lines `tokens skew x-mean backend layer-ms exchange-ms tokens/s ...`."""
    rows = [line.split() for line in text.splitlines() if line.strip()[:1].isdigit() and "emulated" in line]
    layer = {(int(row[0]), row[1], row[3]): float(row[4]) for row in rows if len(row) > 6}
    for (tokens, skew, name), time in sorted(layer.items()):
        static = layer.get((tokens, skew, "static"))
        if name == "mpath" and static:
            judged = tokens >= 16384 and skew == "0.90"
            text = "  " + run.goals.note(f"moe {tokens} tokens, skew {skew}", "x static", static / time, 1.35) if judged else ""
            print(f"MoE layer, {tokens} tokens, skew {skew}: {static / time:.2f} x static{text}  emulated")


def part_moe(run):
    program = run.binary("moe_layer")
    if run.fake or not os.path.exists(program):
        run.report("SKIP", "moe", "cuBLAS needs a GPU" if run.fake else "moe_layer is not in this build (make examples)")
        return
    paths = [path for path in (run.environment.get("LD_LIBRARY_PATH"), find_cublas(run)) if path]
    environment = {"LD_LIBRARY_PATH": ":".join(paths)}
    if run.gpus > 1:
        command = run.mpirun(run.gpus, [program, "--tokens", "4k,16k", "--skew", "0.4,0.9", "--backends", "stock,nccl,mpath"])
        print(run.judge("moe/as-it-is", command, 120, environment, wanted="right$"))
    factor = scale(run)
    path = topology(run, "moe", factor, ["--emulated", "copies"])
    before = ["--mca", "coll_mpath_topo_file", path, *run.internals("gpu_relay_bytes=512m"),
              "--mca", "coll_mpath_gpu_device_bytes", "1g"]
    command = run.mpirun(RANKS, [program, "--tokens", "2k,16k,64k", "--skew", "0.4,0.9", "--topk", "1", "--backends",
                                 "static,mpath"], before)
    text = run.judge("moe/emulated", command, 180, environment, wanted="right +emulated$")
    print(f"emulated cluster, declared rates x {factor:g}, {RANKS} ranks on {run.gpus} GPUs, top 1\n{text}")
    print_moe(run, text)
