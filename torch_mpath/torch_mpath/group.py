# SPDX-License-Identifier: BSD-3-Clause
"""The process group: which call goes where.

A group is a subclass of torch's ProcessGroup and not of its Backend: torch hands Python callers the Work of a Python backend in a
wrapper that never tells of its end. It holds an inner group, an ordinary one of gloo (CPU tensors) and NCCL (CUDA tensors), for
everything that MPI does not carry. Where a call goes follows from the operation, the type and the kind of device, never from one
rank's data, so that all ranks decide alike. Collectives of both kinds pass through the group's one queue; sends and receives, whose
order differs between ranks, go to the inner group at once, but for batches on CUDA tensors.
"""
import threading
import time
import zlib

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import Backend, PrefixStore, _DistributedBackendOptions

from . import alarm, calls, mpi, native, worker

_INNER = {"cpu": "gloo", "cuda": "nccl"}
# Collectives of the inner group, by the names that torch's releases have for them.
_INNER_COLLECTIVES = (
    "broadcast", "allreduce_coalesced", "allreduce_sparse", "reduce", "allgather", "allgather_coalesced", "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced", "gather", "gather_single", "gather_into_tensor", "scatter", "reduce_scatter",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced")
_INNER_AT_ONCE = ("send", "recv", "recv_anysource")
# How long a rank waits for the others to read why none of them can go on.
_READERS_S = 10
# What releases before 2.15 call these collectives.
_OLD_NAMES = {"all_to_all_single": "alltoall_base", "all_gather_single": "_allgather_base", "reduce_scatter_single": "_reduce_scatter_base"}


def _tensors(value):
    """All tensors in arguments, which may be lists of lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for part in value for t in _tensors(part)]
    return []


class Options:
    """For init_process_group and new_group, as pg_options. mpath=False: a group on Open MPI without mpath, to compare with."""

    def __init__(self, mpath=True):
        self.mpath = mpath


class MpathGroup(ProcessGroup):
    def __init__(self, options, own):
        store = PrefixStore("mpath", options.store)
        rank, size = options.group_rank, options.group_size
        try:
            super().__init__(store, rank, size)
        except TypeError:
            # In releases up to 2.13 that constructor makes an object which cannot call Python's methods, and says that it is
            # "not an alias instance". The one without a store makes one that can.
            super().__init__(rank, size)
        self._rank, self._size, self._store = rank, size, store
        self._seconds = options.timeout.total_seconds()
        self._refused = None    # that of a call which this rank has refused, until the others are known to have, too
        self._together = None   # works of a block of coalesced calls
        self._batch = None      # sends and receives of such a block, where the inner group joins them
        self._last_batch = None # the work of the last one
        self._order = threading.Lock()  # of refused calls
        self._closed = False
        cuda = torch.cuda.is_available()
        self._comm, self._cuda_by_mpi = self._join(store, options, own.mpath)
        self.inner = self._make_inner(store, options, [d for d in _INNER if d != "cuda" or cuda])
        device = getattr(getattr(options, "process_group", None), "bound_device_id", None)
        if cuda and device is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._queue = worker.Queue(alarm.Alarm(store, rank, size), device if cuda else None, self._comm, size)
        mpi.living(self, True)

    def _join(self, store, options, use_mpath):
        """(communicator, whether MPI carries CUDA tensors); all ranks fail together."""
        try:
            mpi.init()
            mine = "%d %d %d" % (*mpi.world(), use_mpath and mpi.has_mpath())
        except Exception as error:
            store.set(f"rank/{self._rank}", f"error: {error}")
            self._await_readers(store)
            raise
        store.set(f"rank/{self._rank}", mine)
        members, all_have_mpath = [], True
        for rank in range(self._size):
            text = store.get(f"rank/{rank}").decode()
            if text.startswith("error: "):
                self._await_readers(store)
                raise mpi.Error(f"torch_mpath: rank {rank} of the group could not start MPI: {text[7:]}")
            world_rank, world_size, has_mpath = map(int, text.split())
            members.append(world_rank)
            all_have_mpath = all_have_mpath and bool(has_mpath)
        if len(set(members)) != self._size:
            self._await_readers(store)
            raise mpi.Error(f"torch_mpath: the {self._size} ranks of the group are not {self._size} processes of one MPI job (rank "
                            f"{self._rank} is {mine.split()[0]} of {mine.split()[1]}); start them by mpirun")
        # Groups with the same members may be made at the same time.
        tag = zlib.crc32(str(options.group_id).encode()) % 32768
        with mpi.selection(use_mpath):
            comm = mpi.Communicator(members, tag, all_have_mpath)
        return comm, all_have_mpath

    def _await_readers(self, store):
        """Before an error that all ranks raise: the store may end with this process, and others may still be reading it."""
        deadline = time.monotonic() + _READERS_S
        try:
            number = store.add("readers", 1)
            while number < self._size and time.monotonic() < deadline:
                time.sleep(0.01)
                number = store.add("readers", 0)
        except RuntimeError:
            pass  # it has ended: its process has seen all others come

    def _make_inner(self, store, options, devices):
        inner = ProcessGroup(PrefixStore("inner", store), self._rank, self._size)
        for device in devices:
            name = _INNER[device]
            kind = Backend.backend_type_map[name]
            backend_store = PrefixStore(f"inner/{name}", store)
            make = self._make_backend if hasattr(Backend, "_ensure_backend_registered") else self._make_built_in_backend
            backend = make(name, backend_store, options, inner)
            for group in (inner, self):
                # Of the group itself, too: what torch asks about the group's device is answered by the inner one.
                group._register_backend(torch.device(device), kind, backend)
        for group in (inner, self):
            group._set_default_backend(Backend.backend_type_map[_INNER[devices[-1]]])
        return inner

    def _make_backend(self, name, store, options, inner):
        Backend._ensure_backend_registered(name)
        given = _DistributedBackendOptions()
        given.store = store
        given.group_rank, given.group_size = self._rank, self._size
        given.timeout = options.timeout
        given.group_id = options.group_id
        given.global_ranks_in_group = options.global_ranks_in_group
        given.process_group = inner
        return Backend._plugins[name.upper()].creator_fn(given, None)

    def _make_built_in_backend(self, name, store, options, _inner):
        """In releases whose own backends are no plugins."""
        if name == "gloo":
            backend = dist.ProcessGroupGloo(store, self._rank, self._size, timeout=options.timeout)
        else:
            nccl = dist.ProcessGroupNCCL.Options()
            nccl._timeout = options.timeout
            nccl.global_ranks_in_group = options.global_ranks_in_group
            nccl.group_name = options.group_id
            backend = dist.ProcessGroupNCCL(store, self._rank, self._size, nccl)
        backend._set_sequence_number_for_group()
        return backend

    # --- which call goes where -------------------------------------------------------------------------------------

    def _carries(self, tensor):
        """By the kind of device: MPI takes CUDA memory only where mpath is."""
        return tensor.is_cpu or (tensor.is_cuda and self._cuda_by_mpi)

    def _reduction(self, tensor, opts):
        op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
        if tensor.layout != torch.strided or not self._carries(tensor):
            return None
        return mpi.reduction(tensor.dtype, op)

    def _device(self, tensors):
        """The CUDA device whose current stream a call comes after, or None; that stream must not be captured."""
        for tensor in tensors:
            if tensor.is_cuda:
                if torch.cuda.is_current_stream_capturing():
                    raise RuntimeError("torch_mpath: a CUDA graph cannot hold a collective of backend mpath: the host takes part in it; "
                                       "leave it outside the graph. Nothing was sent")
                return tensor.device
        return None

    def _begin(self, what):
        """A call that this rank refused must have been refused everywhere: else the others are still in it."""
        mpi.refuse_in_child()
        if self._closed:
            raise RuntimeError(f"torch_mpath: {what}: the process group was destroyed")
        if self._refused is not None:
            with self._order:
                if self._refused is not None:
                    text = self._queue.broken or self._queue.alarm.all_refused(self._refused, self._seconds)
                    if text is not None:
                        self._queue.give_up(text)
                        raise mpi.Error(text)
                    self._refused = None

    def _mpi(self, what, prepare, arguments, keep, outputs, opts=None):
        """Makes or queues the call that `prepare` checks and returns. `keep`: all tensors, which live until it is done. None: it is done."""
        self._begin(what)
        try:
            device = self._device(keep)
            call = prepare(*arguments)  # may copy, on the caller's stream
            if device is not None:
                # The call comes after what the caller's stream has before it: data that is sent, and readers of memory that is received into.
                call.device, call.stream = device.index, torch._C._cuda_getCurrentRawStream(device.index)
        except Exception:
            with self._order:
                self._refused = self._queue.number()
                self._queue.alarm.refuse(self._refused)
            raise
        # Who waits anyway makes the call itself: two hand-overs between threads cost more than a short exchange.
        if call.body is None and not getattr(opts, "asyncOp", True):
            after = call.after
            self._queue.make(what, call, keep, self._seconds, opts)
            if after is not None:
                after()
            return None
        if call.after is not None:
            call = self._with_after(call)
        return self._collect(self._queue.post(worker.Work(self._queue, what, call, keep, outputs, self._seconds, opts)))

    def _with_after(self, call):
        whole = native.Call(native.BODY)
        whole.device, whole.stream = call.device, call.stream

        def body():
            self._comm.execute(call)
            call.after()
        whole.body = body
        return whole

    def _by_inner(self, name, arguments, keywords):
        """Queues a collective of the inner group: it starts in its turn, and ends as that group ends it."""
        opts = next((a for a in (*arguments, *keywords.values()) if hasattr(a, "asyncOp")), None)
        if opts is not None:
            opts.asyncOp = True  # else NCCL would use this worker's stream and tell nobody
        function = getattr(self.inner, name, None) or getattr(self.inner, _OLD_NAMES[name])
        tensors = _tensors(list(arguments) + list(keywords.values()))
        return self._collect(self._queue_inner(name, tensors, opts, lambda: function(*arguments, **keywords)))

    def _queue_inner(self, what, tensors, opts, body):
        device = self._device(tensors)
        self._begin(what)
        call = native.Call(native.BODY)
        call.body = body
        before = None
        if device is not None:
            with torch.cuda.device(device):
                before = torch.cuda.Event()
                before.record()
        work = worker.Work(self._queue, what, call, tensors, tensors, self._seconds, opts, True, before)
        return worker.turns.post(work) if self._inner_in_turn(device) else self._queue.post(work)

    @staticmethod
    def _inner_in_turn(device):
        """Whether an inner call on such a device, None: the processor, begins in the order of all groups."""
        return device is not None

    def _collect(self, work):
        if self._together is not None:
            self._together.append(work)
        return work

    # --- what MPI carries --------------------------------------------------------------------------------------------

    def all_to_all_single(self, output, input, output_split_sizes=(), input_split_sizes=(), opts=None):
        # The usual call in one step.
        if (opts is not None and not opts.asyncOp and self._refused is None and calls.described(output, input, output_split_sizes, input_split_sizes)
                and self._queue.exchange(output, input, output_split_sizes, input_split_sizes, self._seconds, opts)):
            return None
        if not self._carries(input):
            return self._by_inner("all_to_all_single", (output, input, list(output_split_sizes), list(input_split_sizes)) +
                                  (() if opts is None else (opts,)), {})
        return self._mpi("all_to_all_single", calls.all_to_all_single,
                         (self._comm, self._size, output, input, output_split_sizes, input_split_sizes), (output, input), [output], opts)

    def alltoall(self, output_tensors, input_tensors, opts=None):
        if output_tensors and not self._carries(output_tensors[0]):
            return self._by_inner("alltoall", (output_tensors, input_tensors) + (() if opts is None else (opts,)), {})
        outputs, inputs = list(output_tensors), list(input_tensors)
        return self._mpi("all_to_all", calls.alltoall, (self._comm, self._size, outputs, inputs), outputs + inputs, outputs, opts)

    def all_gather_single(self, output, input, opts=None):
        if not self._carries(input):
            return self._by_inner("all_gather_single", (output, input) + (() if opts is None else (opts,)), {})
        return self._mpi("all_gather_into_tensor", calls.all_gather_single, (self._comm, self._size, output, input), (output, input), [output], opts)

    def reduce_scatter_single(self, output, input, opts=None):
        reduction = self._reduction(input, opts)
        if reduction is None:
            return self._by_inner("reduce_scatter_single", (output, input) + (() if opts is None else (opts,)), {})
        return self._mpi("reduce_scatter_tensor", calls.reduce_scatter_single, (self._size, output, input, reduction), (output, input), [output], opts)

    def allreduce(self, tensors, opts=None, timeout=None):
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if isinstance(opts, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            opts, op = dist.AllreduceOptions(), opts
            opts.reduceOp = op
        if opts is None:
            opts = dist.AllreduceOptions()
        if timeout is not None:
            opts.timeout = timeout
        reduction = self._reduction(tensors[0], opts) if len(tensors) == 1 else None
        if reduction is None:
            return self._by_inner("allreduce", (tensors, opts), {})
        return self._mpi("all_reduce", calls.allreduce, (self._comm, tensors[0], reduction), tensors, tensors, opts)

    def barrier(self, opts=None):
        return self._mpi("barrier", calls.barrier, (), (), [], opts)

    # The names of releases before 2.15, which C++ and some programs still use: _OLD_NAMES.
    alltoall_base = all_to_all_single
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single

    # --- several calls as one ------------------------------------------------------------------------------------------

    # NCCL joins sends and receives into one step of all ranks, which has a place in the order of its collectives: so a batch of
    # them passes through the queue. It is made in one thread, too, since what NCCL joins is joined by thread.

    def _start_coalescing(self, device):
        if self._together is not None:
            raise RuntimeError("torch_mpath: blocks of coalesced calls cannot be nested")
        self._together = []
        self._batch = [] if device.type == "cuda" else None

    def _end_coalescing(self, device):
        works, self._together = self._together or [], None
        batch, self._batch = self._batch, None
        if batch:
            self._last_batch = self._queue_inner("batch", _tensors([call[1] for call in batch]), None, lambda: self._make_batch(batch, device))
            works.append(self._last_batch)
        return worker.Together(works)

    def _make_batch(self, batch, device):
        self.inner._start_coalescing(device)
        for name, arguments, keywords in batch:
            getattr(self.inner, name)(*arguments, **keywords)
        return self.inner._end_coalescing(device)

    def _at_once(self, name, arguments, keywords):
        mpi.refuse_in_child()
        if self._batch is not None:
            self._batch.append((name, arguments, keywords))
            return None
        if self._last_batch is not None:
            self._last_batch.wait_until_begun()  # what the program calls in this order begins in this order
            self._last_batch = None
        return getattr(self.inner, name)(*arguments, **keywords)

    start_coalescing = _start_coalescing
    end_coalescing = _end_coalescing

    # --- what torch asks of a group ------------------------------------------------------------------------------------

    def getBackendName(self):
        return "mpath"

    def get_group_store(self):
        return self._store

    def name(self):
        return "mpath"

    def set_timeout(self, timeout):
        self._seconds = timeout.total_seconds()
        if hasattr(self.inner, "set_timeout"):  # in older releases torch tells the inner group's backends itself
            self.inner.set_timeout(timeout)

    def shutdown(self):
        """Ends the group on all its ranks: what was called is done, then the communicator is freed. False where calls have failed."""
        if self._closed:
            return True
        mpi.living(self, False)
        with self._order:
            self._closed = True
            refused = self._refused
        if refused is not None:
            text = self._queue.broken or self._queue.alarm.all_refused(refused, self._seconds)
            if text is not None:
                self._queue.give_up(text)
        ended = self._queue.close(self._comm.free)
        if ended:
            self.inner.shutdown()
        return ended

    def abort(self):
        """Gives up what is under way, here and on the other ranks."""
        self._queue.give_up(f"torch_mpath: rank {self._rank} has aborted the group")
        self.inner.abort()


def _inner_collective(name):
    def function(self, *arguments, **keywords):
        return self._by_inner(name, arguments, keywords)
    function.__name__ = name
    return function


def _inner_at_once(name):
    def function(self, *arguments, **keywords):
        return self._at_once(name, arguments, keywords)
    function.__name__ = name
    return function


for _name in _INNER_COLLECTIVES:
    if hasattr(ProcessGroup, _name):
        setattr(MpathGroup, _name, _inner_collective(_name))
for _name in _INNER_AT_ONCE:
    setattr(MpathGroup, _name, _inner_at_once(_name))


def create(options, own):
    if own is not None and not isinstance(own, Options):
        raise TypeError(f"torch_mpath: pg_options of backend mpath are torch_mpath.Options, not {type(own).__name__}")
    return MpathGroup(options, own or Options())
