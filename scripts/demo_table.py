#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints what ./demo measured: usage demo_table.py RESULT.json...  (as mpath_bench --json writes them)

Times, speed-up and ratio to the bound, then the load of each rail under stock Open MPI and under mpath. "stock" is the
better of Open MPI's two alltoallv functions. The exit status is 1 when a byte was wrong or mpath did not carry the calls.
"""
import json
import sys

BAR_WIDTH = 28


def contestants(result):
    """(best stock, mpath) of one result."""
    mpath = next(c for c in result["contestants"] if c["name"] == "mpath")
    stock = min((c for c in result["contestants"] if c["name"].startswith("stock")), key=lambda c: c["median_s"])
    return stock, mpath


def size_text(size_bytes):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def print_times(result):
    stock, mpath = contestants(result)
    print(f"{size_text(result['bytes'])} per rank, bound {result['bound_s'] * 1e3:.1f} ms")
    print(f"  {'':16} {'median ms':>10} {'min':>9} {'max':>9} {'x bound':>8} {'speed-up':>9}")
    for name, c in ((stock["name"], stock), ("mpath", mpath)):
        print(
            f"  {name:16} {c['median_s'] * 1e3:10.1f} {c['min_s'] * 1e3:9.1f} {c['max_s'] * 1e3:9.1f}"
            f" {c['ratio_to_bound']:8.2f} {stock['median_s'] / c['median_s']:8.2f}x"
        )


def print_rails(result):
    stock, mpath = contestants(result)
    calls = result["iterations"]
    print(f"megabytes on each rail per call, the busier direction ({size_text(result['bytes'])} per rank)")
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
        f"MPI_Alltoallv, {first['ranks']} ranks on {first['nodes']} nodes x {len(rails)} rails of"
        f" {rails[0]['rate_Bps'] * 8 / 1e6:.0f} Mbit/s, one rail beside each rank; {first['matrix']}:\n"
        "each rank sends that fraction of its bytes to rank 0, the rest evenly"
    )
    for result in results:
        print()
        print_times(result)
    print()
    print_rails(first)
    print()

    wrong = sum(c["wrong_bytes"] for r in results for c in r["contestants"])
    idle = [size_text(r["bytes"]) for r in results if contestants(r)[1]["mpath_calls"] < r["iterations"]]
    gains = []
    for result in results:
        stock, mpath = contestants(result)
        gains.append(
            f"{stock['median_s'] / mpath['median_s']:.2f}x stock Open MPI at {size_text(result['bytes'])}"
            f" ({mpath['ratio_to_bound']:.2f} x bound)"
        )
    if wrong:
        print(f"demo: FAILED, {wrong} wrong bytes")
        return 1
    if idle:
        print(f"demo: FAILED, mpath did not carry every call at {', '.join(idle)} per rank")
        return 1
    print(f"demo: {', '.join(gains)}; every byte checked and right")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
