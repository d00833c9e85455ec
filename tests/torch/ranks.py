# SPDX-License-Identifier: BSD-3-Clause
"""What one rank of a test of torch_mpath does: ranks.py SCENARIO, under mpirun. Prints "rank R: ok" at the end, else an exception.

MPATH_TEST_DEVICE: cpu (default) or cuda. MPATH_TEST_INNER=no: without what the inner group carries, since NCCL does not take ranks that
share a GPU. MPATH_TEST_CALLS, MPATH_TEST_SEED: of the scenario "random".
"""
import datetime
import gc
import os
import random
import signal
import sys
import threading
import time
import weakref

import torch
import torch.distributed as dist

import torch_mpath

DEVICE = os.environ.get("MPATH_TEST_DEVICE", "cpu")
HAS_INNER = os.environ.get("MPATH_TEST_INNER") != "no"
MANY_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool)


def start(**options):
    torch.set_num_threads(1)
    torch_mpath.set_environment()
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("mpath", **options)
    return dist.get_rank(), dist.get_world_size()


def say(text):
    """In one write: lines of several ranks must not mix."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def raises(function, kind=RuntimeError, text=""):
    """The exception that the function has to end in."""
    try:
        function()
    except kind as error:
        assert text in str(error), f"'{text}' is not in '{error}'"
        return error
    raise AssertionError(f"no {kind.__name__} from {function}")


def full(rows, value, dtype=torch.float32, width=3):
    return torch.full((rows, width), value, dtype=dtype, device=DEVICE)


def value(source, target, call=0):
    return (call * 7 + source * 16 + target) % 100


def exchange_tensors(group, counts, call, dtype=torch.float32, width=3):
    """(output, input, rows received, rows sent) by the matrix of rows; and what the output has to become."""
    me, size = dist.get_rank(group), dist.get_world_size(group)
    sent, received = counts[me], [counts[s][me] for s in range(size)]
    inp = torch.cat([full(n, value(me, d, call), dtype, width) for d, n in enumerate(sent)])
    want = torch.cat([full(n, value(s, me, call), dtype, width) for s, n in enumerate(received)])
    return torch.zeros_like(want), inp, received, sent, want


def same(got, want, what=""):
    assert torch.equal(got, want), f"{what}: {got.flatten()[:8].tolist()} instead of {want.flatten()[:8].tolist()}"


# --- values ------------------------------------------------------------------------------------------------------------


def scenario_collectives():
    rank, size = start()
    for dtype in MANY_TYPES:
        for width in (1, 3, 0):
            counts = [[(s + 2 * d) % 4 for d in range(size)] for s in range(size)]
            output, inp, received, sent, want = exchange_tensors(None, counts, 1, dtype, width)
            dist.all_to_all_single(output, inp, received, sent)
            same(output, want, f"uneven {dtype}")
        output, inp, _, _, want = exchange_tensors(None, [[2] * size] * size, 2, dtype)
        dist.all_to_all_single(output, inp)
        same(output, want, f"even {dtype}")
        output = torch.zeros(size * 2, 3, dtype=dtype, device=DEVICE)
        dist.all_gather_into_tensor(output, full(2, rank, dtype))
        same(output, torch.cat([full(2, r, dtype) for r in range(size)]), f"all_gather_into_tensor {dtype}")
    one_dimension = torch.zeros(size, device=DEVICE)
    dist.all_to_all_single(one_dimension, torch.arange(size, dtype=torch.float32, device=DEVICE) + 10 * rank)
    same(one_dimension, torch.tensor([10.0 * s + rank for s in range(size)], device=DEVICE))
    numbers = torch.zeros(size, dtype=torch.complex64, device=DEVICE)
    dist.all_to_all_single(numbers, torch.full((size,), complex(rank, 1), dtype=torch.complex64, device=DEVICE))
    same(numbers, torch.tensor([complex(s, 1) for s in range(size)], device=DEVICE))
    lists(rank, size)
    reductions(rank, size)
    if HAS_INNER:
        others(rank, size)
    dist.destroy_process_group()


def lists(rank, size):
    for apart in (False, True):
        inp = [full(rank + d, value(rank, d)) for d in range(size)]
        output = [full(s + rank, -1) for s in range(size)]
        if not apart:
            inp = list(torch.cat(inp).split([t.shape[0] for t in inp]))
            output = list(torch.cat(output).split([t.shape[0] for t in output]))
        dist.all_to_all(output, inp)
        for source, tensor in enumerate(output):
            same(tensor, full(source + rank, value(source, rank)), "all_to_all")
    output = [torch.zeros(2, 0, device=DEVICE) for _ in range(size)]
    dist.all_to_all(output, [torch.zeros(2, 0, device=DEVICE) for _ in range(size)])


def reductions(rank, size):
    inner = (torch.bfloat16,) if HAS_INNER else ()
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, *inner):
        for op, want in ((dist.ReduceOp.SUM, sum(range(1, size + 1))), (dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1)):
            tensor = full(5, rank + 1, dtype)
            dist.all_reduce(tensor, op=op)
            same(tensor, full(5, want, dtype), f"all_reduce {dtype} {op}")
    tensor = full(1, 1 << rank, torch.int32)
    dist.all_reduce(tensor, op=dist.ReduceOp.BOR)
    same(tensor, full(1, (1 << size) - 1, torch.int32), "all_reduce BOR")
    for dtype in (torch.float32, torch.int64, *inner):
        output = full(2, 0, dtype)
        dist.reduce_scatter_tensor(output, torch.cat([full(2, r + rank, dtype) for r in range(size)]))
        same(output, full(2, sum(rank + r for r in range(size)), dtype), f"reduce_scatter_tensor {dtype}")
    empty = torch.zeros(0, device=DEVICE)
    dist.all_reduce(empty)


def others(rank, size):
    """What the inner group carries."""
    tensor = full(2, rank)
    dist.broadcast(tensor, src=size - 1)
    same(tensor, full(2, size - 1), "broadcast")
    gathered = [full(1, -1) for _ in range(size)]
    dist.all_gather(gathered, full(1, rank))
    for source, part in enumerate(gathered):
        same(part, full(1, source), "all_gather")
    dist.reduce(tensor, dst=0)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    got = full(1, -1)
    if DEVICE == "cpu" or tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14):  # else NCCL is not given a batch as such
        batch(rank, size)
    # A send may overtake collectives that are under way.
    late = dist.all_reduce(full(1, 1), async_op=True) if rank > 0 else None
    if rank == 0:
        dist.send(full(1, 5), 1)
        late = dist.all_reduce(full(1, 1), async_op=True)
    elif rank == 1:
        dist.recv(got, 0)
        same(got, full(1, 5), "recv")
    late.wait()


def batch(rank, size):
    rows = 1 << 20  # more than lies ready between two ranks while nobody receives
    got = full(rows, -1)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, full(rows, rank), (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)])
    for work in works:
        work.wait()
    same(got, full(rows, (rank - 1) % size), "isend, irecv")


def scenario_works():
    """The handles of calls, and what torch asks of a group."""
    rank, size = start()
    group = dist.group.WORLD
    assert dist.get_backend() == "mpath" and group.name() == "mpath" and group.size() == size and group.rank() == rank
    output, inp, _, _, want = exchange_tensors(None, [[2] * size] * size, 3)
    if rank == 0:
        time.sleep(0.3)
    work = dist.all_to_all_single(output, inp, async_op=True)
    if rank == 1:
        assert not work.is_completed() and not work.is_success()
    future = work.get_future()
    seen = future.then(lambda f: f.value()[0].clone())
    assert work.wait(datetime.timedelta(seconds=60)) and work.is_completed() and work.is_success() and work.exception() is None
    same(future.wait()[0], want)
    same(seen.wait(), want)
    same(work.result()[0], want)
    tensor = full(2, rank, torch.bfloat16)
    work = dist.all_reduce(tensor, async_op=True)  # of the inner group
    same(work.get_future().wait()[0], full(2, sum(range(size)), torch.bfloat16))
    while not work.is_completed():
        time.sleep(0.01)
    tensors_kept(rank, size)
    one_step(size)
    coalesced(rank, size)
    functional(rank, size)
    data_parallel(rank, size)
    dist.barrier()
    dist.destroy_process_group()


class Index:
    """A number that is no int."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


def one_step(size):
    """Calls that the library makes without a step in Python, where there is DLPack's C exchange; and some that are too rare for that."""
    group = dist.distributed_c10d._get_default_group()
    make, steps = group._queue.make, []
    group._queue.make = lambda *arguments: (steps.append(1), make(*arguments))
    quick = hasattr(torch.Tensor, "__dlpack_c_exchange_api__") and torch_mpath.has_mpath()
    table = [[(s + 2 * d) % 4 for d in range(size)] for s in range(size)]
    for number, (shape, kind, left) in enumerate((
            ((lambda t: t), list, False), ((lambda t: t[:, 0].contiguous()), list, False), ((lambda t: t.view(-1, 1, 3, 1)), list, False),
            ((lambda t: t), lambda splits: [Index(n) for n in splits], False), ((lambda t: torch.nn.Parameter(t, requires_grad=False)), list, True),
            ((lambda t: t), tuple, True))):
        output, inp, received, sent, want = exchange_tensors(None, table, number)
        output, inp, want = shape(output), shape(inp), shape(want)
        steps.clear()
        dist.all_to_all_single(output, inp, kind(received), kind(sent))
        same(output, want, f"one step {number}")
        assert len(steps) == (left or not quick), (number, steps)
    view = torch.zeros(2 * size, 3, device=DEVICE)[size:]  # not at the begin of its memory
    dist.all_to_all_single(view, full(2 * size, 5)[size:])
    same(view, full(size, 5))
    del group._queue.make


def tensors_kept(rank, size):
    """Tensors that the caller forgets live until their call is done, and no longer."""
    inp = full(size, rank)
    alive = weakref.ref(inp)
    output = full(size, -1)
    if rank == 0:
        time.sleep(0.2)
    work = dist.all_to_all_single(output, inp, async_op=True)
    del inp
    gc.collect()
    work.wait()
    same(output, torch.cat([full(1, s) for s in range(size)]))
    del work
    ends(alive)
    inp = full(size, rank)
    alive = weakref.ref(inp)
    dist.all_to_all_single(output, inp, async_op=True)  # nobody waits for it
    del inp
    ends(alive)


def ends(alive):
    until = time.monotonic() + 30
    while alive() is not None:
        assert time.monotonic() < until, "the input lives on"
        gc.collect()
        time.sleep(0.02)


def coalesced(rank, size):
    tensors = [full(2, rank + i) for i in range(3)]
    with dist._coalescing_manager(device=torch.device(DEVICE), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        same(tensor, full(2, sum(r + i for r in range(size))), "coalesced all_reduce")
    group = dist.group.WORLD
    group._start_coalescing(torch.device(DEVICE))
    output = full(size, -1)
    dist.all_to_all_single(output, full(size, rank), async_op=True)
    group._end_coalescing(torch.device(DEVICE)).wait()
    same(output, torch.cat([full(1, s) for s in range(size)]), "coalesced all_to_all_single")


def functional(rank, size):
    import torch.distributed._functional_collectives as functions
    got = functions.all_to_all_single(full(size, rank), None, None, dist.group.WORLD)
    same(functions.wait_tensor(got), torch.cat([full(1, s) for s in range(size)]), "functional")
    same(functions.wait_tensor(functions.all_reduce(full(1, rank), "sum", dist.group.WORLD)), full(1, sum(range(size))), "functional")


def data_parallel(rank, size):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to(DEVICE)
    want = [p.detach().clone() for p in model.parameters()]
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    for r in range(size):
        clone = torch.nn.Linear(4, 2).to(DEVICE)
        clone.load_state_dict(model.state_dict())
        clone(torch.full((3, 4), float(r), device=DEVICE)).square().mean().backward()
        for kept, p in zip(want, clone.parameters()):
            kept -= 0.1 * p.grad / size
    parallel(torch.full((3, 4), float(rank), device=DEVICE)).square().mean().backward()
    for kept, p in zip(want, model.parameters()):
        assert torch.allclose(kept, p.detach() - 0.1 * p.grad, atol=1e-5), "DistributedDataParallel"


# --- groups and order ------------------------------------------------------------------------------------------------------


def scenario_groups():
    rank, size = start()
    low, odd = list(range(size // 2)), list(range(1, size, 2))
    groups = [dist.new_group(low), dist.new_group(odd), dist.new_group(low), dist.new_group([size - 1])]
    stock = dist.new_group(pg_options=torch_mpath.Options(mpath=False))
    for turn in range(20):
        works = []
        for at, group in enumerate([*groups, stock]):
            if group == dist.GroupMember.NON_GROUP_MEMBER:
                continue
            members = dist.get_world_size(group)
            tensor = full(1 + turn, dist.get_rank(group) + at)
            works.append((dist.all_reduce(tensor, group=group, async_op=True), tensor, full(1 + turn, sum(r + at for r in range(members)))))
            mixed = full(1, dist.get_rank(group), torch.bfloat16)  # of the inner group
            works.append((dist.all_reduce(mixed, group=group, async_op=True), mixed, full(1, sum(range(members)), torch.bfloat16)))
        random.shuffle(works)
        for work, got, want in works:
            work.wait()
            same(got, want)
    threads(rank, size)
    for group in groups[:2]:
        if group != dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    dist.barrier()
    dist.destroy_process_group()
    # MPI lives on: groups can be made again. The store of before may still be there for slower ranks.
    del os.environ["MASTER_PORT"]
    torch_mpath.set_environment()
    dist.init_process_group("mpath")
    dist.barrier()
    dist.destroy_process_group()


def threads(rank, size):
    """Two groups at once, each from a thread of its own."""
    errors = []
    pairs = [dist.new_group(), dist.new_group()]

    def work(group, base):
        try:
            for turn in range(100):
                output, inp, received, sent, want = exchange_tensors(group, [[(s + d + turn) % 3 for d in range(size)] for s in range(size)], base + turn)
                dist.all_to_all_single(output, inp, received, sent, group=group)
                same(output, want)
        except Exception as error:  # noqa: BLE001
            errors.append(error)
    both = [threading.Thread(target=work, args=(group, 1000 * at)) for at, group in enumerate(pairs)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert not errors, errors


def scenario_orders():
    """Groups whose calls each rank begins and awaits in an order of its own, from the first ones on, with and without async_op."""
    rank, size = start()
    mine = random.Random(rank)
    for turn in range(3):
        groups = [dist.new_group() for _ in range(4)]
        for call in range(20):
            counts = [[(s + d + call) % 3 * (1 + call % 4 * 500) for d in range(size)] for s in range(size)]
            works = []
            for at in mine.sample(range(len(groups)), len(groups)):
                output, inp, received, sent, want = exchange_tensors(groups[at], counts, call + at)
                work = dist.all_to_all_single(output, inp, received, sent, group=groups[at], async_op=True)
                works.append((work, output, want))
            mine.shuffle(works)
            for work, output, want in works:
                work.wait()
                same(output, want, "in any order")
            # The one that a rank waits for at once is another on every second rank.
            first, second = (groups[0], groups[1]) if (rank + call) % 2 == 0 else (groups[1], groups[0])
            early, late = full(5, rank), full(5, rank)
            work = dist.all_reduce(early, group=first, async_op=True)
            dist.all_reduce(late, group=second)
            work.wait()
            same(early, full(5, sum(range(size))), "awaited last")
            same(late, early, "awaited at once")
        for group in groups:
            dist.destroy_process_group(group)
    dist.destroy_process_group()


def scenario_busy():
    """Calls begin and end while this rank's Python never lets go of the interpreter lock."""
    rank, size = start()
    group, other = dist.group.WORLD, dist.new_group()
    sys.setswitchinterval(1000)
    for turn in range(20):
        works = []
        for at, where in enumerate((group, other, group)):
            output, inp, received, sent, want = exchange_tensors(where, [[(s + d + turn) % 3 for d in range(size)] for s in range(size)], turn + at)
            works.append((dist.all_to_all_single(output, inp, received, sent, group=where, async_op=True), output, want))
        until = time.monotonic() + 60
        while not all([work.is_completed() for work, _, _ in works]):
            assert time.monotonic() < until, "calls waited for the interpreter lock"
        for work, output, want in works:
            assert work.is_success()
            same(output, want, "beside Python")
    sys.setswitchinterval(0.005)
    dist.destroy_process_group()


def scenario_one_order():
    """Calls of all kinds in one group, each rank waiting for others of them: they are made in the order of the program."""
    rank, size = start()
    mine = random.Random(rank)
    for turn in range(50):
        works = []
        for at in range(12):
            time.sleep(mine.random() * 0.001)
            output, inp, received, sent, want = exchange_tensors(None, [[(s + d + at) % 3 for d in range(size)] for s in range(size)], turn + at)
            kind = (turn + at) % 4
            if kind == 0:  # of the inner group
                output, want = full(3, rank, torch.bfloat16), full(3, sum(range(size)), torch.bfloat16)
                work = dist.all_reduce(output, async_op=True)
            elif kind == 1:  # lists that lie apart: Python copies behind MPI
                outputs = [full(n, -1) for n in received]
                work = dist.all_to_all(outputs, [t.clone() for t in inp.split(sent)], async_op=True)
                works.append((work, outputs, list(want.split(received))))
                continue
            elif kind == 2:  # by the caller itself, if nothing is before it
                dist.all_to_all_single(output, inp, received, sent)
                same(output, want, "made by the caller")
                continue
            else:
                work = dist.all_to_all_single(output, inp, received, sent, async_op=True)
            if mine.random() < 0.3:
                work.wait()
            works.append((work, [output], [want]))
        mine.shuffle(works)
        for work, outputs, wants in works:
            work.wait()
            for output, want in zip(outputs, wants):
                same(output, want, "in one order")
    dist.destroy_process_group()


class Telling:
    """An inner group that tells when its calls begin."""

    def __init__(self, inner, name, begun):
        self.inner, self.told, self.begun = inner, name, begun

    def __getattr__(self, what):
        function = getattr(self.inner, what)
        if what != "allreduce":
            return function

        def telling(*arguments, **keywords):
            self.begun.append(self.told)
            return function(*arguments, **keywords)
        return telling


def scenario_turns():
    """Inner calls of several groups begin in the order of the program, as those of NCCL have to, also where one group is behind, or ends."""
    rank, size = start()
    begun = []
    pair = [dist.new_group(timeout=datetime.timedelta(seconds=4)), dist.new_group()]
    for name, group in zip("ab", pair):
        group.inner = Telling(group.inner, name, begun)
        group._inner_in_turn = lambda device: True

    def inner(group):
        tensor = full(3, rank, torch.bfloat16)
        return dist.all_reduce(tensor, group=group, async_op=True), tensor, full(3, sum(range(size)), torch.bfloat16)

    for turn in range(5):
        dist.barrier()
        works = []
        if rank == turn % size:
            time.sleep(0.2)
        output, inp, received, sent, want = exchange_tensors(pair[0], [[1 + (s + d) % 2 for d in range(size)] for s in range(size)], turn)
        works.append((dist.all_to_all_single(output, inp, received, sent, group=pair[0], async_op=True), output, want))
        works += [inner(pair[0]), inner(pair[1]), inner(pair[1]), inner(pair[0])]
        for work, got, want in reversed(works):
            work.wait()
            same(got, want)
        assert "".join(begun) == "abba" * (turn + 1), begun
    dist.barrier()
    if DEVICE == "cuda":
        dist.destroy_process_group()
        return
    # The first group ends by its deadline: what was behind it goes on.
    if rank > 0:
        lost = dist.all_to_all_single(output, inp, received, sent, group=pair[0], async_op=True)
        behind, _, _ = inner(pair[0])
    work, got, want = inner(pair[1])
    work.wait()
    same(got, want, "behind a group that has ended")
    if rank > 0:
        raises(lost.wait, torch_mpath.Error)
        raises(behind.wait, torch_mpath.Error)
        assert begun[-1] == "b" and len(begun) == 21, begun
    dist.destroy_process_group(pair[1])
    dist.barrier()


class Random:
    """Calls that all ranks draw alike, checked in an order that each draws for itself."""

    def __init__(self, seed, rank, size, **options):
        self.draw, self.mine = random.Random(seed), random.Random(seed * 1000 + rank)
        self.rank, self.size = rank, size
        half = size // 2
        members = [list(range(size)), list(range(half)), list(range(half, size)), list(range(0, size, 2)), [0, size - 1], list(range(size))]
        self.groups = [(dist.new_group(m, **options), m) for m in members]
        self.twins = [dist.new_group(m, **options) for m in members]
        self.pending = []

    def counts(self, members):
        kind, most = self.draw.choice(("any", "hot", "empty", "diagonal", "none")), self.draw.choice((1, 4, 64, 1500))
        table = [[self.draw.randrange(most + 1) for _ in range(members)] for _ in range(members)]
        if kind == "hot":
            table = [[n * (10 if d == 0 else 1) for d, n in enumerate(row)] for row in table]
        for s in range(members):
            for d in range(members):
                if kind == "none" or (kind == "empty" and members - 1 in (s, d)) or (kind == "diagonal" and s != d):
                    table[s][d] = 0
        return table

    def call(self, number):
        at = self.draw.randrange(len(self.groups))
        op = self.draw.choice(("single", "single", "single", "even", "list", "allreduce", "inner", "gather", "scatter", "barrier", "wrong", "threads"))
        group, members = self.groups[at]
        size, dtype = len(members), self.draw.choice(MANY_TYPES[:-1])
        width, rows = self.draw.choice((1, 3, 16)), self.draw.choice((0, 1, 5, 300))
        table, wait = self.counts(size), self.draw.random() < 0.4
        if self.rank not in members or (op == "inner" and not HAS_INNER):
            return
        me = members.index(self.rank)
        getattr(self, f"do_{op}")(group, me, size, dtype, width, rows, table, number)
        if wait or len(self.pending) > 12:
            self.settle()

    def later(self, work, got, want, what):
        self.pending.append((work, got, want, what))

    def settle(self):
        self.mine.shuffle(self.pending)
        for work, got, want, what in self.pending:
            work.wait()
            if got is not None:
                same(got, want, what)
        self.pending = []

    def do_single(self, group, me, size, dtype, width, rows, table, number):
        output, inp, received, sent, want = exchange_tensors(group, table, number, dtype, width)
        self.later(dist.all_to_all_single(output, inp, received, sent, group=group, async_op=True), output, want, "all_to_all_single")

    def do_even(self, group, me, size, dtype, width, rows, table, number):
        self.do_single(group, me, size, dtype, width, rows, [[rows] * size] * size, number)

    def do_list(self, group, me, size, dtype, width, rows, table, number):
        inp = [full(n, value(me, d, number), dtype, width) for d, n in enumerate(table[me])]
        output = [full(table[s][me], 0, dtype, width) for s in range(size)]
        work = dist.all_to_all(output, inp, group=group, async_op=True)
        for s in range(size):
            self.later(work, output[s], full(table[s][me], value(s, me, number), dtype, width), "all_to_all")

    def do_allreduce(self, group, me, size, dtype, width, rows, table, number):
        tensor = full(rows, me, torch.int64, width)
        self.later(dist.all_reduce(tensor, group=group, async_op=True), tensor, full(rows, sum(range(size)), torch.int64, width), "all_reduce")

    def do_inner(self, group, me, size, dtype, width, rows, table, number):
        tensor = full(rows + 1, me, torch.bfloat16, width)
        self.later(dist.all_reduce(tensor, group=group, async_op=True), tensor, full(rows + 1, sum(range(size)), torch.bfloat16, width), "bfloat16")

    def do_gather(self, group, me, size, dtype, width, rows, table, number):
        output = full(rows * size, 0, dtype, width)
        want = torch.cat([full(rows, s, dtype, width) for s in range(size)])
        self.later(dist.all_gather_into_tensor(output, full(rows, me, dtype, width), group=group, async_op=True), output, want, "all_gather_into_tensor")

    def do_scatter(self, group, me, size, dtype, width, rows, table, number):
        output = full(rows, 0, torch.float64, width)
        work = dist.reduce_scatter_tensor(output, full(rows * size, me, torch.float64, width), group=group, async_op=True)
        self.later(work, output, full(rows, sum(range(size)), torch.float64, width), "reduce_scatter_tensor")

    def do_barrier(self, group, me, size, dtype, width, rows, table, number):
        self.later(dist.barrier(group=group, async_op=True), None, None, "barrier")

    def do_wrong(self, group, me, size, dtype, width, rows, table, number):
        """Wrong sizes on every rank: an exception on every rank, and the group goes on."""
        output, inp, received, sent, _ = exchange_tensors(group, table, number, dtype, width)
        bad = [n + 1 for n in sent]
        raises(lambda: dist.all_to_all_single(output, inp, received, bad, group=group), ValueError, "nothing was sent")

    def do_threads(self, group, me, size, dtype, width, rows, table, number):
        """Two groups of the same ranks at once, the second one's call from a thread of its own."""
        twin = self.twins[next(at for at, (other, _) in enumerate(self.groups) if other is group)]
        output, inp, received, sent, want = exchange_tensors(twin, table, number, dtype, width)
        errors = []

        def other():
            try:
                dist.all_to_all_single(output, inp, received, sent, group=twin)
                same(output, want, "in a thread")
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        thread = threading.Thread(target=other)
        thread.start()
        self.do_single(group, me, size, dtype, width, rows, table, number)
        self.settle()
        thread.join()
        assert not errors, errors

    def one_refuses(self, number):
        """Wrong sizes on one rank of a new group: an exception on each of its ranks, and nothing of it elsewhere."""
        _, members = self.groups[self.draw.randrange(len(self.groups))]
        culprit = self.draw.choice(members)
        group = dist.new_group(members)
        if self.rank not in members:
            return
        size = len(members)
        output, inp, received, sent, _ = exchange_tensors(group, [[2] * size] * size, number)
        if self.rank == culprit:
            raises(lambda: dist.all_to_all_single(output, inp, received, [n + 1 for n in sent], group=group), ValueError, "nothing was sent")
        elif size > 1:
            raises(lambda: dist.all_to_all_single(output, inp, received, sent, group=group), dist.DistBackendError, "refused call")
        if size > 1:
            raises(lambda: dist.barrier(group=group), dist.DistBackendError)


def scenario_random():
    rank, size = start()
    calls, seed = int(os.environ.get("MPATH_TEST_CALLS", "10000")), int(os.environ.get("MPATH_TEST_SEED", "1"))
    what = Random(seed, rank, size)
    for number in range(calls):
        what.call(number)
    what.settle()
    dist.barrier()
    dist.destroy_process_group()


def scenario_random_refused():
    """The same, and in between groups in which one rank's sizes are wrong: the other groups go on."""
    rank, size = start()
    what = Random(int(os.environ.get("MPATH_TEST_SEED", "3")), rank, size)
    for number in range(300):
        what.call(number)
        if number % 100 == 50:
            what.one_refuses(number)
    what.settle()
    dist.barrier()


def scenario_random_killed():
    """One rank is killed somewhere among random calls: the others come out with an exception, or were done before they needed it."""
    seed = int(os.environ.get("MPATH_TEST_SEED", "1"))
    rank, size = start(timeout=datetime.timedelta(seconds=60))
    what, draw = Random(seed, rank, size, timeout=datetime.timedelta(seconds=60)), random.Random(seed)
    victim, last = draw.randrange(size), draw.randrange(5, 300)

    def calls():
        for number in range(100000):
            if number == last and rank == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            what.call(number)
    raises(calls, RuntimeError)
    say(f"rank {rank}: ok")
    os._exit(0)


# --- what goes wrong -----------------------------------------------------------------------------------------------------------


def scenario_refused():
    """Arguments that are wrong on one rank end the call on all, in an exception, and later ones, too."""
    rank, size = start()
    if rank == 1:
        wrong = [2] + [1] * (size - 1)
        raises(lambda: dist.all_to_all_single(full(size, 0), full(size, 0), None, wrong), ValueError, "must be 0 or more and sum up")
    else:
        raises(lambda: dist.all_to_all_single(full(size, 0), full(size, 0)), dist.DistBackendError, "refused call")
    error = raises(lambda: dist.all_reduce(full(1, 1)), dist.DistBackendError)
    assert "refused" in str(error), error
    raises(lambda: dist.broadcast(full(1, 1), 0), dist.DistBackendError)
    dist.destroy_process_group()


def scenario_arguments():
    """What is refused before anything is sent: on every rank here, so that the group goes on."""
    rank, size = start()
    ok, options = full(size, 0), dist.AllToAllOptions()
    options.asyncOp = False

    def of_group(output, inp):
        dist.distributed_c10d._get_default_group().alltoall_base(output, inp, [1] * size, [1] * size, options)

    for call, text in ((lambda: dist.all_to_all_single(full(size + 1, 0), ok), "cannot be split evenly"),
                       (lambda: dist.all_to_all_single(ok, full(size, 0), [1] * (size - 1), None), "split sizes for"),
                       (lambda: dist.all_to_all_single(ok, full(size, 0), [-1, 2] + [1] * (size - 2) if size > 2 else [-1, 3], None), "0 or more"),
                       (lambda: dist.all_to_all_single(torch.zeros(3, size, device=DEVICE).t(), ok), "contiguous"),
                       (lambda: dist.all_to_all_single(ok, torch.zeros(3, size, device=DEVICE).t(), [1] * size, [1] * size), "contiguous"),
                       (lambda: dist.all_to_all_single(ok, full(size, 0), [1] * size, [2] + [1] * (size - 1)), "sum up to"),
                       (lambda: dist.all_to_all_single(ok, full(size, 0), [1] * size, [1] * (size - 1) + [2**70]), "sum up to"),
                       (lambda: of_group(ok, full(size, 0, torch.float64)), "one type"), (lambda: of_group(ok, full(size, 0, torch.int32)), "one type"),
                       (lambda: dist.all_to_all_single(torch.tensor(1.0, device=DEVICE), torch.tensor(1.0, device=DEVICE)), "no dimension"),
                       (lambda: dist.all_to_all([ok] * (size - 1), [ok] * size), "tensors to send"),
                       (lambda: dist.all_gather_into_tensor(ok, full(2, 0)), "elements to receive"),
                       (lambda: dist.reduce_scatter_tensor(full(2, 0), ok), "that receive")):
        raises(call, ValueError, text)
        dist.barrier()
    if DEVICE == "cuda":
        captured()
    dist.destroy_process_group()


def captured():
    """A stream that is captured into a CUDA graph."""
    tensor, graph = full(1, 1), torch.cuda.CUDAGraph()
    many = full(dist.get_world_size(), 1)
    with torch.cuda.graph(graph):
        errors = [raises(lambda: dist.all_reduce(tensor), RuntimeError, "CUDA graph"),
                  raises(lambda: dist.all_to_all_single(torch.empty_like(many), many), RuntimeError, "CUDA graph")]
        tensor += 1
    assert all(errors)
    dist.barrier()


def scenario_mismatch():
    """Ranks that do not agree on sizes: an exception on every rank, or right values where no bytes were concerned."""
    rank, size = start()
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=30))
    received = [3 if rank == 0 and s == 1 else 2000 for s in range(size)]  # rank 1 sends it 2000 rows
    output = full(sum(received), -1)
    error = raises(lambda: (dist.all_to_all_single(output, full(2000 * size, rank), received, None),
                            dist.all_reduce(full(1, 1)), dist.barrier()), dist.DistBackendError)
    say(f"rank {rank}: {error}")
    dist.destroy_process_group()


def scenario_timeout():
    """A rank that does not come."""
    rank, size = start()
    dist.barrier()
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=4))
    store, given_up = dist.group.WORLD.get_group_store(), "ranks that have given up"
    if rank != 0:
        began = time.monotonic()
        work = dist.all_reduce(full(1, 1), async_op=True)
        future = work.get_future()
        raises(lambda: work.wait(datetime.timedelta(seconds=0.5)), dist.DistBackendError, "within 0.5")
        raises(work.wait, dist.DistBackendError, "has not ended within" if size == 2 else "")
        raises(future.wait, RuntimeError)
        assert time.monotonic() - began > 3
        raises(lambda: dist.barrier(), dist.DistBackendError)
        store.add(given_up, 1)
    else:
        while store.add(given_up, 0) < size - 1:
            time.sleep(0.1)
        tensor = full(1, 1)
        # The others gave up waiting, but MPI may still have their call: then this one is right, and the next one ends.
        raises(lambda: (dist.all_reduce(tensor), same(tensor, full(1, size)), dist.barrier()), dist.DistBackendError)
    dist.destroy_process_group()


def scenario_stopped():
    """The same without async_op: those that are in MPI come out of it."""
    rank, size = start()
    dist.barrier()
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=4))
    store, given_up = dist.group.WORLD.get_group_store(), "ranks that have given up"

    def exchange():
        output = full(size, -1)
        dist.all_to_all_single(output, full(size, rank))
        same(output, torch.cat([full(1, s) for s in range(size)]))
    if rank != 0:
        raises(exchange, dist.DistBackendError, "has not ended within" if size == 2 else "")
        raises(lambda: dist.barrier(), dist.DistBackendError)
        store.add(given_up, 1)
    else:
        while store.add(given_up, 0) < size - 1:
            time.sleep(0.1)
        raises(lambda: (exchange(), dist.barrier()), dist.DistBackendError)
    dist.destroy_process_group()


def scenario_error():
    """MPI refuses a call, made by its caller or by the group's thread: an exception that says so, for that call and all later ones."""
    rank, size = start()
    nothing = torch_mpath.mpi.handle("ompi_mpi_op_null").value
    for asynchronous in (False, True):
        group = dist.new_group()
        kept, waiting = full(1, 1), []
        group._reduction = lambda tensor, opts: (torch_mpath.mpi.handle("ompi_mpi_float").value, nothing)

        def call():
            work = dist.all_reduce(kept, group=group, async_op=asynchronous)
            waiting.append(work and work.get_future())
            if asynchronous:
                waiting.append(dist.barrier(group=group, async_op=True))
                work.wait()
        raises(call, dist.DistBackendError, "MPI_")
        if asynchronous:
            raises(waiting[0].wait, RuntimeError, "MPI_")
            raises(waiting[1].wait, dist.DistBackendError, "call 1")
        raises(lambda: dist.barrier(group=group), dist.DistBackendError)
        dist.barrier()  # other groups go on
    dist.destroy_process_group()


def scenario_killed():
    """A rank that is killed among calls: every other one comes out with an exception."""
    rank, size = start(timeout=datetime.timedelta(seconds=60))
    group = dist.new_group(timeout=datetime.timedelta(seconds=60))
    say(f"rank {rank}: under way")

    def calls():
        for number in range(100000):
            output, inp, received, sent, want = exchange_tensors(group, [[40 * (s + 1) for d in range(size)] for s in range(size)], number)
            work = dist.all_to_all_single(output, inp, received, sent, group=group, async_op=True)
            other = full(1, 1)
            dist.all_reduce(other)
            work.wait()
            same(output, want)
            same(other, full(1, size))
            if rank == size - 1 and number == 50:
                os.kill(os.getpid(), signal.SIGKILL)
    raises(calls, RuntimeError)
    say(f"rank {rank}: ok")
    os._exit(0)


def scenario_unhandled():
    """An exception that nobody handles ends the job instead of waiting in MPI_Finalize."""
    rank, _ = start()
    if rank == 0:
        raise KeyError("meant")
    dist.all_reduce(full(1, 1))


def scenario_forgotten():
    """Ends without destroy_process_group, with calls under way."""
    _, size = start()
    dist.new_group()
    dist.all_to_all_single(full(size, 0), full(size, 1), async_op=True)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, at):
        if at == 3:
            raises(lambda: dist.all_reduce(torch.ones(1)), RuntimeError, "forked")
        return torch.tensor(float(at))


def scenario_fork():
    """Data loaders that fork beside MPI."""
    rank, size = start()
    for _ in range(2):
        total = torch.zeros(1)
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork"):
            dist.all_reduce(batch)
            total += batch.sum()
        same(total, torch.tensor([28.0 * size]))
    child = os.fork()
    if child == 0:
        sys.exit(7)  # by Python's own way out: MPI_Finalize is not for it
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    dist.barrier()
    dist.destroy_process_group()


def scenario_alone():
    """Started without mpirun: each process is an MPI job of its own."""
    raises(lambda: dist.init_process_group("mpath", timeout=datetime.timedelta(seconds=30)), RuntimeError, "start them by mpirun")


def scenario_large():
    """More than 2^31 bytes of a rank, in rows; needs some 10 GB for two ranks."""
    rank, size = start()
    rows = [1200 + 100 * d for d in range(size)]
    inp = torch.empty(sum(rows), 1 << 20, dtype=torch.uint8, device=DEVICE)
    for target, part in enumerate(inp.split(rows)):
        part.fill_(value(rank, target))
    output = torch.zeros(rows[rank] * size, 1 << 20, dtype=torch.uint8, device=DEVICE)
    dist.all_to_all_single(output, inp, [rows[rank]] * size, rows)
    for source, part in enumerate(output.split([rows[rank]] * size)):
        assert bool((part == value(source, rank)).all()), f"from {source}"
    del inp, output
    odd = torch.zeros((1 << 31) + 2, dtype=torch.uint8, device=DEVICE)
    raises(lambda: dist.all_to_all_single(odd, odd, [1 << 30] * 2 + [0] * (size - 3) + [2] if size > 2 else [(1 << 31) + 1, 1],
                                          [1 << 30] * 2 + [0] * (size - 3) + [2] if size > 2 else [(1 << 31) + 1, 1]), ValueError, "longer rows")
    dist.barrier()
    dist.destroy_process_group()


# --- CUDA ----------------------------------------------------------------------------------------------------------------------


def scenario_streams():
    """What the caller's streams have before a call, data and readers of the receive buffer, comes before it."""
    rank, size = start()
    for turn in range(50):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            inp, output = torch.zeros(size * 4096, device=DEVICE), torch.full((size * 4096,), -1.0, device=DEVICE)
            torch.cuda._sleep(2_000_000 * (1 + (rank + turn) % 3))
            kept = output.clone()
            inp += rank + turn
            work = dist.all_to_all_single(output, inp, async_op=True)
            del inp
            noise = [torch.full((size * 4096,), 77.0, device=DEVICE) for _ in range(4)]  # takes what a forgotten input would free
            work.wait()
            got = output + 0
        stream.synchronize()
        assert bool((kept == -1).all()), "the receive buffer was written before its reader was done"
        same(got, torch.cat([torch.full((4096,), float(s + turn), device=DEVICE) for s in range(size)]), "streams")
        del noise
        if not HAS_INNER:
            continue
        declined = torch.full((1000,), 1.0, dtype=torch.bfloat16, device=DEVICE)
        works = [dist.all_reduce(declined, async_op=True), dist.all_to_all_single(torch.empty_like(got), got, async_op=True)]
        torch.cuda._sleep(1_000_000)
        for work in works:
            work.wait()
        same(declined, torch.full((1000,), float(size), dtype=torch.bfloat16, device=DEVICE), "NCCL in the queue")
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[f"scenario_{sys.argv[1]}"]()
    if sys.argv[1] not in ("unhandled",):
        say(f"rank {os.environ.get('RANK', '?')}: ok")
