#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints what ./demo measured: usage demo_table.py RESULT.json...  (as mpath_bench --json writes them)

A row for each result: the better of Open MPI's two alltoallv functions beside mpath, which ran in turns with it. The label of a
result says what the row is, behind the heading of its block if it has one: "HEADING: ROW". Then the load of each rail in
the first result, under stock Open MPI and under mpath. The exit status is 1 when a byte was wrong or mpath did not carry the calls.
"""
import json
import sys

BAR_WIDTH = 28


def contestants(result):
    """(best stock, mpath) of one result."""
    mpath = next(c for c in result["contestants"] if c["name"] in ("mpath", "not mpath", "as started"))
    stock = min((c for c in result["contestants"] if c["name"].startswith("stock")), key=lambda c: c["median_s"])
    return stock, mpath


def size_text(size_bytes):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def heading(result):
    return result["label"].rpartition(": ")[0]


def row_text(result):
    return result["label"].rpartition(": ")[2]


def gain(result):
    stock, mpath = contestants(result)
    return stock["median_s"] / mpath["median_s"]


def time_text(contestant):
    """Median, [min max] in ms, multiple of the bound."""
    spread = f"[{contestant['min_s'] * 1e3:.0f} {contestant['max_s'] * 1e3:.0f}]"
    return f"{contestant['median_s'] * 1e3:6.1f} {spread:9} {contestant['ratio_to_bound']:5.2f}"


def print_rows(results):
    width = max(len(row_text(result)) for result in results)
    print(f"  {'':{width}}  {'stock Open MPI, ms':16} xbound  {'mpath, ms':16} xbound   gain")
    block = None
    for result in results:
        if heading(result) != block:
            block = heading(result)
            print(f"{block}, bound {result['bound_s'] * 1e3:.1f} ms")
        stock, mpath = contestants(result)
        print(f"  {row_text(result):{width}}  {time_text(stock):23}  {time_text(mpath):23} {gain(result):5.2f}x")


def print_rails(result):
    stock, mpath = contestants(result)
    calls = result["iterations"]
    print(f"megabytes on each rail per call, the busier direction; {row_text(result)}")
    loads = [[max(r["tx_bytes"], r["rx_bytes"]) / calls / 1e6 for r in c["rails"]] for c in (stock, mpath)]
    largest = max(max(loads[0]), max(loads[1]), 1e-9)
    print(f"  {'':12} {'before: ' + stock['name']:{BAR_WIDTH + 7}}  after: mpath")
    for rail, before, after in zip(stock["rails"], *loads):
        bars = [f"{load:6.1f} {'#' * round(load / largest * BAR_WIDTH):{BAR_WIDTH}}" for load in (before, after)]
        print(f"  node{rail['node']} {rail['nic']:6} {'  '.join(bars)}".rstrip())


def main(paths):
    results = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            results.append(json.load(file))
    first = results[0]
    rails = [r for r in first["contestants"][0]["rails"] if r["node"] == 0]
    print(
        f"MPI_Alltoallv of {size_text(first['bytes'])} per rank, {first['ranks']} ranks on {first['nodes']} nodes x"
        f" {len(rails)} rails of {rails[0]['rate_Bps'] * 8 / 1e6:.0f} Mbit/s; {first['matrix']}: each rank sends\n"
        f"that fraction of its bytes to rank 0, the rest evenly. Medians of {first['iterations']} [min max], in turns:"
    )
    print_rows(results)
    print()
    print_rails(first)
    print()

    wrong = sum(c["wrong_bytes"] for r in results for c in r["contestants"])
    idle = [row_text(r) for r in results if contestants(r)[1]["mpath_calls"] < r["iterations"]]
    if wrong:
        print(f"demo: FAILED, {wrong} wrong bytes")
        return 1
    if idle:
        print(f"demo: FAILED, mpath did not carry every call of: {', '.join(idle)}")
        return 1
    blocks = {}
    for result in results:
        blocks.setdefault(heading(result), []).append(gain(result))
    texts = [f"{name}: {min(gains):.2f}x to {max(gains):.2f}x of stock" for name, gains in blocks.items()]
    print(f"demo: {', '.join(texts)}; every byte checked and right")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
