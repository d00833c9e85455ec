# SPDX-License-Identifier: BSD-3-Clause
"""The tables of tests/gpu/run: what its benchmarks are to reach, set for eight H200 of one NVSwitch, and whether they have. Nothing
here fails a test: times depend on the machine."""

KIB, MIB = 1 << 10, 1 << 20
OVERLAP = 0.80  # of the ideal, beside a kernel on every multiprocessor

# NCCL's time divided by mpath's, by share of the hot rank. At 256 MiB a hot receiver has more to reach, see hot_receiver().
ALLTOALLV = {
    ("hot 0", 256 * MIB): 1.25, ("hot 0.3", 256 * MIB): 1.12, ("hot 0.5", 256 * MIB): 1.05,
    ("hot 0", 64 * MIB): 1.30, ("hot 0.7", 64 * MIB): 1.08, ("hot 0.9", 64 * MIB): 1.25,
    ("hot 0", 16 * MIB): 1.5, ("hot 0.7", 16 * MIB): 1.5,
}
# Ratio, and bytes a second into the hot GPU: by NVLink alone, and with the share that goes through the host.
HOT_RECEIVER_ALONE, HOT_RECEIVER_WITH_HOST = (1.35, 385e9), (1.45, 415e9)


def contestant(case, name):
    return next((c for c in case["contestants"] if c["name"] == name), None)


def alltoallv_ratio(matrix, size):
    """None where nothing is set."""
    if (matrix, size) in ALLTOALLV:
        return ALLTOALLV[matrix, size]
    if matrix == "zipf 0.8" and 16 * MIB <= size <= 256 * MIB:
        return 1.25
    if matrix.startswith("hot"):
        return {4 * MIB: 1.8, MIB: 1.8}.get(size, 1.3 if KIB <= size <= 256 * KIB else None)
    return None


def ratio_wanted(case):
    """What NCCL's time divided by mpath's is to be; None where nothing is set."""
    size, ranks = case["bytes"], case["ranks"]
    if case["benchmark"] == "allreduce":
        return {MIB: 2.0, 16 * MIB: 1.4, 64 * MIB: 1.15, 256 * MIB: {2: 1.25, 4: 1.10}.get(ranks, 1.05),
                1024 * MIB: 1.02}.get(size, 2.0 if size <= 256 * KIB else None)
    if case["benchmark"] == "allgather":  # set for what all ranks have together
        goals = {2: {256 * MIB: 1.50}, 4: {256 * MIB: 1.25},
                 8: {MIB: 1.7, 16 * MIB: 1.4, 256 * MIB: 1.18, 1024 * MIB: 1.10}}
        return goals.get(ranks, {}).get(size * ranks)
    return alltoallv_ratio(case["matrix"], size) if case["benchmark"] == "alltoallv" else None


def hot_receiver(case):
    """(ratio, bytes a second into the hot GPU) at 256 MiB with a hot share of 0.7 or 0.9; else None."""
    if case["benchmark"] != "alltoallv" or case["matrix"] not in ("hot 0.7", "hot 0.9") or case["bytes"] != 256 * MIB:
        return None
    with_host = contestant(case, "mpath").get("staged_bytes_per_call", 0) > 0
    return HOT_RECEIVER_WITH_HOST if with_host else HOT_RECEIVER_ALONE


def of_case(case):
    """What a case of mpath_bench is to reach, and has: [(what, value, goal)]."""
    mpath, nccl = contestant(case, "mpath"), contestant(case, "nccl")
    if mpath is None:
        return []
    if "overlap_of_ideal" in mpath:
        return [("of the ideal", mpath["overlap_of_ideal"], OVERLAP)]
    hot, found = hot_receiver(case), []
    wanted = hot[0] if hot else ratio_wanted(case)
    if nccl and wanted:
        found.append(("x nccl", nccl["median_s"] / mpath["median_s"], wanted))
    if hot:
        found.append(("GB/s ingress", mpath["port_Bps"] / 1e9, hot[1] / 1e9))
    return found


def multi_path_pays_from(gains):
    """The least size from which on up mpath is faster than the static route at every one; None: at the largest it is not. gains:
    {size: static's time divided by mpath's}."""
    found = None
    for size in sorted(gains, reverse=True):
        if gains[size] <= 1:
            break
        found = size
    return found


class Goals:
    """Verdicts of a run, for its table and result.json."""

    def __init__(self, judged):
        self.judged = judged  # of a fake driver, whose messages must be small, only the bytes and the clocks say something
        self.verdicts = []

    def note(self, name, what, value, wanted, at_most=False):
        """The text that says it. value None: nothing like it was seen."""
        if not self.judged:
            verdict = "not judged"
        elif value is None:
            verdict = "MISSED"
        else:
            verdict = "reached" if (value <= wanted if at_most else value >= wanted) else "MISSED"
        self.verdicts.append({"name": name, "what": what, "value": value, "goal": wanted, "verdict": verdict})
        return f"goal {wanted:.4g} {what}: {verdict}"

    def print_table(self):
        for each in self.verdicts:
            value = "none" if each["value"] is None else f"{each['value']:.4g}"
            print(f"  {each['name']:44} {value:>8} {each['what']:14} goal {each['goal']:<7.4g} {each['verdict']}")
        count = {verdict: sum(each["verdict"] == verdict for each in self.verdicts) for verdict in ("reached", "MISSED")}
        print(f"  {count['reached']} reached, {count['MISSED']} missed")


def size_text(size_bytes):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def moved_by(mpath):
    """Who has moved the bytes between GPUs: multiprocessors, copy engines, and copies through the host."""
    parts = {"SM": mpath.get("kernel_bytes_per_call", 0), "engines": mpath.get("engine_bytes_per_call", 0),
             "host": mpath.get("staged_bytes_per_call", 0)}
    total = sum(parts.values())
    return " + ".join(f"{name} {100 * part / total:.0f} %" for name, part in parts.items() if 200 * part >= total > 0)


def cost_text(case):
    """What mpath's calls took besides their time."""
    mpath = contestant(case, "mpath")
    if mpath is None:
        return ""
    return (f"[{mpath['min_s'] * 1e6:.1f}, p99 {mpath['p99_s'] * 1e6:.1f}]  {mpath['port_Bps'] / 1e9:.1f} GB/s  "
            f"{moved_by(mpath)}  {mpath.get('kernel_ctas_per_call', 0):.0f} CTAs  "
            f"{mpath.get('gpu_bytes', 0) / MIB:.1f} MiB  agree {mpath['agree_us']:.1f} plan {mpath['plan_us']:.1f}  ")


def print_benches(run):
    """mpath beside each other contestant, one line per case."""
    for name, cases in run.benches.items():
        print(f"\nbench:{name}, medians in us [minimum, 99th percentile], GB/s through the busiest port, who moved the bytes "
              "between GPUs, CTAs of mpath's kernels on a GPU, memory that it takes there, agreement and plan in us; the "
              "ratio is theirs / mpath's; goals were set for 8 H200")
        for case in cases:
            emulated = "  emulated" if "emulated" in case else ""
            times = {c["name"]: c["median_s"] * 1e6 for c in case["contestants"]}
            mpath = times.get("mpath")
            others = "  ".join(
                f"{other} {time:9.1f}" + (f" ({time / mpath:.2f})" if mpath else "")
                for other, time in times.items() if other != "mpath")
            own = f"mpath {mpath:9.1f} {cost_text(case)}" if mpath else ""
            what = f"{case['benchmark']} {case['matrix']:9} {size_text(case['bytes']):>8}"
            judged = "".join("  " + run.goals.note(f"bench:{name} {case['matrix']} {size_text(case['bytes'])}", *goal)
                             for goal in of_case(case))
            print(f"  {what}  {own}{others}{judged}{emulated}")
