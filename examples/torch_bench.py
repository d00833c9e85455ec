#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Times torch.distributed.all_to_all_single under skew: mpath against other groups, interleaved in one job, every value checked.

    mpirun -n 8 --mca coll mpath python3 torch_bench.py --demand hot:0.7 --bytes 16m --against stock,gloo

A call is timed from a barrier to its return on the last rank. "stock" is the same backend on a communicator without mpath.
--product also tells by how much products of matrices, as a training step has them, are slowed while exchanges are under way.
"""
import argparse
import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist

import torch_demand
import torch_mpath

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size(text):
    unit = _UNITS.get(text[-1:].lower(), 1)
    return int(float(text[:-1] if unit > 1 else text) * unit)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demand", default="hot:0.7", help="names as in torch_demand.py, separated by commas")
    parser.add_argument("--matrix", help="instead: a byte matrix of nccl-tests, a row per source, or UCC's patterns; --bytes does not matter then")
    parser.add_argument("--scale", type=float, default=1.0, help="what entries of --matrix are multiplied with")
    parser.add_argument("--bytes", default="16m", help="what each rank sends, its own share included; several separated by commas")
    parser.add_argument("--row", type=size, default=4096, help="bytes of a row, a multiple of 4 (4096)")
    parser.add_argument("--against", default="", help="stock, gloo, nccl, separated by commas")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--calls", type=int, default=5, help="timed calls of each contestant (5)")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", type=int, default=0, help="of the demand, or of a matrix file of several (0)")
    parser.add_argument("--node-rate", type=size, help="bytes per second of all rails of a node: prints times in multiples of the bound")
    parser.add_argument("--product", type=int, metavar="ROWS", help="also: how exchanges slow products of square matrices beside them")
    parser.add_argument("--json", help="file for the figures")
    return parser.parse_args()


def group_of(name):
    if name == "mpath":
        return dist.new_group(backend="mpath")
    if name == "stock":
        return dist.new_group(backend="mpath", pg_options=torch_mpath.Options(mpath=False))
    return dist.new_group(backend=name)


def between_nodes(matrix, nodes):
    """The most bytes that one node sends or receives."""
    most = 0
    for node in set(nodes):
        inside = [n == node for n in nodes]
        out = sum(b for s, row in enumerate(matrix) for d, b in enumerate(row) if inside[s] and not inside[d])
        into = sum(b for s, row in enumerate(matrix) for d, b in enumerate(row) if not inside[s] and inside[d])
        most = max(most, out, into)
    return most


class Case:
    """One matrix: buffers whose values tell who sent them, in which call."""

    def __init__(self, rows, row_bytes, device):
        self.rank, ranks = dist.get_rank(), dist.get_world_size()
        self.send, self.receive = rows[self.rank], [row[self.rank] for row in rows]
        words = row_bytes // 4
        self.input = torch.zeros(sum(self.send), words, dtype=torch.int32, device=device)
        self.output = torch.zeros(sum(self.receive), words, dtype=torch.int32, device=device)
        self.ranks, self.device = ranks, device

    def _value(self, source, target, call):
        return (call * self.ranks + source) * self.ranks + target

    def fill(self, call):
        for target, part in enumerate(self.input.split(self.send)):
            part.fill_(self._value(self.rank, target, call))
        self.output.fill_(-1)

    def wrong(self, call):
        bad = 0
        for source, part in enumerate(self.output.split(self.receive)):
            bad += int((part != self._value(source, self.rank, call)).sum())
        return bad

    def begin(self, group):
        return dist.all_to_all_single(self.output, self.input, self.receive, self.send, group=group, async_op=True)

    def time(self, group, barrier):
        synchronize(self.device)
        together(barrier)
        start = time.perf_counter()
        dist.all_to_all_single(self.output, self.input, self.receive, self.send, group=group)
        synchronize(self.device)
        return time.perf_counter() - start


class Product:
    """Products of square matrices, on a stream of their own where there are streams."""

    def __init__(self, rows, device):
        self.device = device
        kind = torch.bfloat16 if device == "cuda" else torch.float32
        self.left, self.right = (torch.randn(rows, rows, device=device).to(kind) for _ in range(2))
        self.result = torch.empty_like(self.left)
        self.stream = torch.cuda.Stream() if device == "cuda" else None

    def begin(self, count):
        """Returns a function that waits and tells the seconds that the products took."""
        if self.stream is None:
            start = time.perf_counter()
            self._multiply(count)
            seconds = time.perf_counter() - start
            return lambda: seconds
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream):
            first.record()
            self._multiply(count)
            last.record()

        def wait():
            last.synchronize()
            return first.elapsed_time(last) / 1e3
        return wait

    def _multiply(self, count):
        for _ in range(count):
            torch.mm(self.left, self.right, out=self.result)


def together(group):
    """A barrier that ranks leave as one. That of a group on stock Open MPI passes through a thread, from which they come up to 50 us apart, so
    MPI's own follows it."""
    dist.barrier(group=group)
    torch_mpath.mpi.call("MPI_Barrier", group._comm.handle)


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def slowest(seconds, control):
    longest = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX, group=control)
    return float(longest)


# Exchanges that are under way at once, and the part of their time that the products take alone.
_BESIDE_EXCHANGES, _BESIDE_PART = 4, 0.8


def beside(case, product, groups, options, control):
    """Of each contestant, as medians: by how many per cent its exchanges slow products that begin with them, how much longer than
    alone the exchanges take, and the part of the products' time in which exchanges were under way."""
    one = min(product.begin(10)() for _ in range(3)) / 10
    results = {}

    def turn(group, count, exchanges):
        """(seconds of the products, of the exchanges)"""
        synchronize(case.device)
        dist.barrier(group=control)
        start = time.perf_counter()
        works = [case.begin(group) for _ in range(exchanges)]
        products = product.begin(count) if count else None
        for work in works:
            work.wait()
        if case.device == "cuda":
            torch.cuda.current_stream().synchronize()
        exchanged = time.perf_counter() - start
        return slowest(products(), control) if products else 0, slowest(exchanged, control)

    for name, group in groups.items():
        alone = statistics.median(turn(group, 0, _BESIDE_EXCHANGES)[1] for _ in range(options.calls))
        count = max(1, round(slowest(_BESIDE_PART * alone / one, control)))
        free, both = [], []
        for _ in range(options.calls):
            free.append(turn(group, count, 0)[0])
            both.append(turn(group, count, _BESIDE_EXCHANGES))
        slow = statistics.median(seconds for seconds, _ in both)
        together = statistics.median(seconds for _, seconds in both)
        results[name] = {"products": count, "products_s": statistics.median(free), "slowed_percent": (slow / statistics.median(free) - 1) * 100,
                         "exchanges": _BESIDE_EXCHANGES, "exchanges_s": alone, "exchanges_x": together / alone,
                         "covered": min(1, together / slow)}
    return results


def node_names(control):
    """The host names of all ranks, in CPU tensors, which every group takes."""
    mine = torch.zeros(256, dtype=torch.uint8)
    name = socket.gethostname().encode()[:256]
    mine[:len(name)] = torch.tensor(list(name), dtype=torch.uint8)
    names = torch.zeros(dist.get_world_size() * 256, dtype=torch.uint8)
    dist.all_gather_into_tensor(names, mine, group=control)
    return [bytes(part.tolist()).rstrip(b"\0").decode() for part in names.split(256)]


def measure(case, groups, options, control):
    """Times in s of each contestant, the slowest rank's, and the number of wrong values on all ranks."""
    times, wrong = {name: [] for name in groups}, 0
    for call in range(options.warmup + options.calls):
        for name, group in groups.items():
            case.fill(call)
            seconds = slowest(case.time(group, control), control)
            bad = torch.tensor([case.wrong(call)])
            dist.all_reduce(bad, group=control)
            wrong += int(bad)
            if call >= options.warmup:
                times[name].append(seconds)
    return times, wrong


def report(label, nbytes, times, bound, products):
    first = statistics.median(next(iter(times.values())))
    print(f"{label}, {nbytes / 1e6:.3f} MB per rank" + (f", bound {bound * 1e3:.1f} ms" if bound else ""))
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"  {name:8s} {median * 1e3:10.3f} ms  min {min(seconds) * 1e3:10.3f}  max {max(seconds) * 1e3:10.3f}  {median / first:6.2f} x mpath"
              + (f"  {median / bound:6.2f} x bound" if bound else ""), flush=True)
    for name, seen in products.items():
        print(f"  {name:8s} {seen['products']} products slowed by {seen['slowed_percent']:.1f} %, {seen['exchanges']} exchanges beside them "
              f"{seen['exchanges_x']:.2f} x as long as alone ({seen['exchanges_s'] * 1e3:.3f} ms), under way in {100 * seen['covered']:.0f} % of their time",
              flush=True)


def main():
    options = arguments()
    if options.row % 4 != 0 or options.row <= 0:
        sys.exit("torch_bench: --row must be a multiple of 4")
    torch.set_num_threads(1)
    torch_mpath.set_environment()
    if "UCX_NET_DEVICES" in os.environ and "," not in os.environ["UCX_NET_DEVICES"]:
        # The NIC that Open MPI is bound to, for gloo as well.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", os.environ["UCX_NET_DEVICES"])
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("mpath")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    groups = {name: group_of(name) for name in ["mpath"] + [a for a in options.against.split(",") if a]}
    # A group of its own, so that what is not timed does not warm up or disturb a contestant.
    control = group_of("stock")
    nodes = node_names(control)
    product = Product(options.product, options.device) if options.product else None
    cases = []
    if options.matrix:
        table = torch_demand.read_matrix(options.matrix, ranks, options.scale, options.step)
        cases.append((options.matrix, [[b // options.row for b in row] for row in table]))
    else:
        for nbytes in options.bytes.split(","):
            for name in options.demand.split(","):
                cases.append((name, torch_demand.matrix(name, ranks, size(nbytes) // options.row, options.seed, options.step)))
    figures, all_wrong = [], 0
    for label, rows in cases:
        case = Case(rows, options.row, options.device)
        times, wrong = measure(case, groups, options, control)
        products = beside(case, product, groups, options, control) if product else {}
        crossing = between_nodes(rows, nodes) * options.row
        bound = crossing / options.node_rate if options.node_rate and crossing else None
        nbytes = max(map(sum, rows)) * options.row
        figures.append({"demand": label, "bytes": nbytes, "ranks": ranks, "nodes": len(set(nodes)), "bound_s": bound,
                        "times_s": times, "beside": products, "wrong_values": wrong, "torch": torch.__version__, "device": options.device})
        all_wrong += wrong
        if rank == 0:
            report(label, nbytes, times, bound, products)
            if wrong:
                print(f"  {wrong} WRONG values")
            if options.json:
                with open(options.json, "w", encoding="utf-8") as out:
                    json.dump(figures, out, indent=1)
    dist.destroy_process_group()
    sys.exit(1 if all_wrong else 0)


if __name__ == "__main__":
    main()
