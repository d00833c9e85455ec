#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A mixture-of-experts layer in PyTorch: dispatch, experts, combine, with autograd, over one backend after the other.

    mpirun -n 8 --mca coll mpath python3 torch_moe.py --backend mpath,stock,gloo --demand hot:0.7 --check

Every rank holds some experts, two layers each. Each token goes to its TOP_K experts by all_to_all_single with uneven splits, and its
results come back the same way. The routing is skewed as torch_demand.py says: a token draws its experts by their popularity and its
own gate, so that the counts differ from rank to rank and step to step. All backends see the same tokens and the same weights; with
--check the output and the gradients are compared with a layer that sends nothing.
"""
import argparse
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import torch_demand
import torch_mpath


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="mpath", help="mpath, stock (mpath's backend without mpath), gloo, nccl; in turns, separated by commas")
    parser.add_argument("--demand", default="hot:0.7", help="routing, as in torch_demand.py")
    parser.add_argument("--tokens", type=int, default=1024, help="of each rank and step (1024)")
    parser.add_argument("--hidden", type=int, default=512, help="(512)")
    parser.add_argument("--experts", type=int, default=2, help="of each rank (2)")
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="timed steps (4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


class Exchange(torch.autograd.Function):
    """Rows to other ranks; gradients go back the way that the rows came."""

    @staticmethod
    def forward(context, rows, received, sent, group):
        context.splits, context.group = (received, sent), group
        output = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(output, rows.contiguous(), received, sent, group=group)
        return output

    @staticmethod
    def backward(context, gradient):
        received, sent = context.splits
        output = gradient.new_empty(sum(sent), gradient.shape[1])
        dist.all_to_all_single(output, gradient.contiguous(), sent, received, group=context.group)
        return output, None, None, None


def expert(weights, rows):
    up, down = weights
    return torch.relu(rows @ up) @ down


class Layer(torch.nn.Module):
    """The experts of one rank, and the gate that all ranks share."""

    def __init__(self, hidden, experts, top_k, rank, ranks, seed):
        super().__init__()
        self.experts, self.top_k, self.ranks = experts, top_k, ranks
        self.gate = torch.nn.Parameter(self._drawn(seed, hidden, experts * ranks))
        mine = range(rank * experts, (rank + 1) * experts)
        self.up = torch.nn.ParameterList([torch.nn.Parameter(self._drawn(seed + 2 * e + 1, hidden, 2 * hidden)) for e in mine])
        self.down = torch.nn.ParameterList([torch.nn.Parameter(self._drawn(seed + 2 * e + 2, 2 * hidden, hidden)) for e in mine])

    @staticmethod
    def _drawn(seed, rows, columns):
        return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) / rows**0.5

    def route(self, tokens, popularity, noise):
        """(experts of each token, their weights): the gate decides among what popularity offers."""
        scores = tokens @ self.gate
        # The largest of log popularity + Gumbel noise is a draw by popularity; a little of the gate makes it the token's own.
        chosen = (popularity.clamp_min(1e-9).log() + noise + 0.1 * scores.detach()).topk(self.top_k, dim=1).indices
        return chosen, scores.gather(1, chosen).softmax(dim=1)

    def forward(self, tokens, popularity, noise, group):
        chosen, weight = self.route(tokens, popularity, noise)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=self.experts * self.ranks)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=group)
        sent = counts.view(self.ranks, self.experts).sum(1).tolist()
        theirs = theirs.view(self.ranks, self.experts)
        received = theirs.sum(1).tolist()
        arrived = Exchange.apply(tokens[order // self.top_k], received, sent, group)
        # Rows come by source, and by expert within it.
        owner = torch.arange(self.experts, device=tokens.device).repeat(self.ranks).repeat_interleave(theirs.flatten())
        done = torch.zeros_like(arrived)
        for at in range(self.experts):
            rows = (owner == at).nonzero().flatten()
            done = done.index_add(0, rows, expert((self.up[at], self.down[at]), arrived[rows]))
        back = Exchange.apply(done, sent, received, group)
        back = back * weight.flatten()[order].unsqueeze(1)
        return torch.zeros_like(tokens).index_add(0, order // self.top_k, back)


def without_sending(layer, tokens, popularity, noise, hidden, seed):
    """The same by a rank alone, which draws the weights of all experts."""
    chosen, weight = layer.route(tokens, popularity, noise)
    output = torch.zeros_like(tokens)
    for e in range(layer.experts * layer.ranks):
        weights = (Layer._drawn(seed + 2 * e + 1, hidden, 2 * hidden).to(tokens.device), Layer._drawn(seed + 2 * e + 2, 2 * hidden, hidden).to(tokens.device))
        token, place = (chosen == e).nonzero(as_tuple=True)
        output = output.index_add(0, token, expert(weights, tokens[token]) * weight[token, place].unsqueeze(1))
    return output


def group_of(name):
    if name == "stock":
        return dist.new_group(backend="mpath", pg_options=torch_mpath.Options(mpath=False))
    return dist.new_group(backend=name)


class Step:
    """What one step sees, the same for every backend."""

    def __init__(self, options, rank, ranks, number):
        experts = options.experts * ranks
        draw = torch.Generator().manual_seed(options.seed + 1000 * number + rank)
        self.tokens = torch.randn(options.tokens, options.hidden, generator=draw).to(options.device)
        self.noise = -torch.log(-torch.log(torch.rand(options.tokens, experts, generator=draw).clamp(1e-9, 1 - 1e-7))).to(options.device)
        self.popularity = torch.tensor(torch_demand.popularity(options.demand, experts, options.seed, number)).to(options.device)

    def run(self, layer, group):
        """(seconds, output, gradient of the tokens)"""
        tokens = self.tokens.clone().requires_grad_()
        if tokens.is_cuda:
            torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        output = layer(tokens, self.popularity, self.noise, group)
        output.square().mean().backward()
        if tokens.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start, output.detach(), tokens.grad

    def reference(self, layer, options):
        tokens = self.tokens.clone().requires_grad_()
        output = without_sending(layer, tokens, self.popularity, self.noise, options.hidden, options.seed)
        output.square().mean().backward()
        return output.detach(), tokens.grad


def main():
    options = arguments()
    torch.set_num_threads(1)
    torch_mpath.set_environment()
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("mpath")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if not 1 <= options.top_k <= options.experts * ranks:
        sys.exit(f"torch_moe: --top-k {options.top_k} of {options.experts * ranks} experts")
    groups = {name: group_of(name) for name in options.backend.split(",")}
    layer = Layer(options.hidden, options.experts, options.top_k, rank, ranks, options.seed).to(options.device)
    times, wrong = {name: [] for name in groups}, 0
    for number in range(options.steps + 1):
        step = Step(options, rank, ranks, number)
        want = step.reference(layer, options) if options.check else None
        for name, group in groups.items():
            layer.zero_grad()
            seconds, *got = step.run(layer, group)
            if want is not None:
                wrong += sum(not torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(got, want))
            slowest = torch.tensor([seconds], dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            if number > 0:  # the first one sets up connections
                times[name].append(float(slowest))
    total = torch.tensor([wrong])
    dist.all_reduce(total)
    if rank == 0:
        first = statistics.median(next(iter(times.values())))
        print(f"{ranks} ranks, {options.experts * ranks} experts, {options.demand}, {options.tokens} tokens of {options.hidden} per rank, "
              f"forward and backward")
        for name, seconds in times.items():
            median = statistics.median(seconds)
            print(f"  {name:8s} {median * 1e3:10.3f} ms  min {min(seconds) * 1e3:10.3f}  max {max(seconds) * 1e3:10.3f}  {median / first:6.2f} x {next(iter(times))}")
        if options.check:
            print(f"  {int(total)} tensors differ from the layer that sends nothing")
    dist.destroy_process_group()
    sys.exit(1 if int(total) else 0)


if __name__ == "__main__":
    main()
