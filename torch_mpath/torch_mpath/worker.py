# SPDX-License-Identifier: BSD-3-Clause
"""The queue of a group, and the handles that callers wait for.

All collectives of a group pass through its one queue, those of the inner group too, so that their order is the same on every
rank. It is the library's (worker.c), whose thread comes here only for what Python itself has to do. One more thread in the process
looks once a second whether a call has passed its deadline or has failed elsewhere.
"""
import ctypes
import itertools
import threading
import time
import weakref

import torch
import torch.distributed as dist

from . import mpi, native

_TICK_S = 1.0
# A wait in the library is interrupted so often, for Python's signals.
_SLICE_NS = 200_000_000
# Calls that MPI has not ended when their group was given up, with their tensors; and queues of such groups, whose threads may be in them.
_abandoned = []


class Turns:
    """The order in which calls of several queues begin: that in which this process has posted them."""

    def __init__(self):
        self._change = threading.Condition()
        self._left = {}  # works that have not begun, in that order

    def post(self, work):
        with self._change:
            self._left[work] = None
            return work.queue.post(work)

    def wait(self, work):
        """Until all that were posted before it have begun, or its queue is broken. At once, if it has not been posted here."""
        with self._change:
            self._change.wait_for(lambda: work.queue.broken is not None or work not in self._left or next(iter(self._left)) is work)

    def end(self, work):
        """It has begun, or never will."""
        with self._change:
            if self._left.pop(work, work) is None:
                self._change.notify_all()

    def wake(self):
        """A queue is broken: what waits in it waits no more."""
        with self._change:
            self._change.notify_all()


# NCCL wants the calls of all its communicators begun in one order on all ranks that share some: the program's.
turns = Turns()


def _limit_s(call):
    """How long the call may take: as its options say, or its group."""
    timeout = getattr(call.opts, "timeout", None)
    seconds = timeout.total_seconds() if timeout is not None else -1
    return seconds if seconds > 0 else call.seconds


class Work(dist.Work):
    """A call: queued, under way, or finished. wait() blocks the host; then outputs are complete, on every stream. One of the inner
    group counts as finished here when it was started there, and is then what that group says of it."""

    def __init__(self, queue, what, call, keep, outputs, seconds, opts, is_inner=False, before=None):
        """`keep`: all tensors, which live until it is finished. `before`: an event on a stream, which one of the inner group comes after."""
        super().__init__()
        self.queue, self.what, self.call, self.keep, self._outputs = queue, what, call, keep, outputs
        self.seconds, self.opts, self.is_inner, self.before = seconds, opts, is_inner, before
        self.inner, self.raised = None, None  # what Python's function has returned, or raised
        self._change = threading.Lock()
        self._finished, self._error, self._future, self._settled = False, None, None, False

    @property
    def number(self):
        return self.call.number

    def finish(self, state):
        """By whoever sees that it is no more pending."""
        with self._change:
            if not self._finished:
                if state == native.RAISED:
                    self._error = self.raised
                elif state != native.DONE:
                    self._error = self.queue.error(self.what, state)
                self._finished = True
                self.keep = self.before = self.call.keep = self.call.body = self.call.after = None
            settle = self._future is not None and not self._settled
            self._settled = self._settled or settle
        self.queue.forget(self.call.key)
        turns.end(self)
        if settle and self._error is not None:
            self._future.set_exception(self._error)
        elif settle:
            self._future.set_result(self._outputs)

    def look(self):
        """Whether it is finished."""
        if not self._finished:
            state = self.queue.native.state(self.call.at)
            if state == native.PENDING:
                return False
            self.finish(state)
        return True

    def _await_finish(self, seconds=None):
        if self._finished:
            return
        state = self.queue.await_call(self.call, seconds)
        if state == native.PENDING:
            raise mpi.Error(f"torch_mpath: {self.what} (call {self.number}) has not ended within {seconds:.3f} s")
        self.finish(state)

    def _raise_error(self):
        if self._error is not None:
            raise type(self._error)(*self._error.args) from self._error

    def wait(self, timeout=None):
        self._await_finish(timeout.total_seconds() if timeout else None)
        self._raise_error()
        if self.inner is not None:
            return self.inner.wait(timeout) if timeout else self.inner.wait()
        return True

    def wait_until_begun(self):
        """Of the inner group: until it was started there, or has failed."""
        self._await_finish()

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self.look() and (self.inner is None or self.inner.is_completed())

    def is_success(self):
        return self.look() and self._error is None and (self.inner is None or self.inner.is_success())

    def exception(self):
        self.look()
        return self._error

    def result(self):
        self.wait()
        return self._outputs if self.inner is None else self.inner.result()

    def get_future(self):
        if self.is_inner:
            self._await_finish()
            if self.inner is not None:
                return self.inner.get_future()
        with self._change:
            if self._future is None:
                devices = sorted({t.device for t in self._outputs if t.is_cuda}, key=str)
                self._future = torch.futures.Future(devices=devices)
        if self._finished or not self.queue.native.tell(self.queue.at, self.call.at):
            self.finish(self.queue.native.state(self.call.at))
        return self._future


class Made:
    """A call that its caller makes itself, and is in until it has ended or is stopped."""

    __slots__ = ("what", "call", "keep", "seconds", "opts", "left")

    def __init__(self, what, call, keep, seconds, opts):
        self.what, self.call, self.keep, self.seconds, self.opts = what, call, keep, seconds, opts
        self.left = None  # the queue, once the caller has left it there, by an interrupt

    def look(self):
        if self.left is None or self.left.native.state(self.call.at) == native.PENDING:
            return False
        self.left.forget(self.call.key)
        return True


class Together(dist.Work):
    """Several works as one."""

    def __init__(self, works):
        super().__init__()
        self.works = works

    def wait(self, timeout=None):
        for work in self.works:
            work.wait(timeout) if timeout else work.wait()
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return all(work.is_completed() for work in self.works)


class Queue:
    """The calls of one group: made one after the other, by a thread, or by the caller itself if it would wait and nothing is before it."""

    def __init__(self, alarm, device, comm, size):
        self.alarm, self._device, self._comm = alarm, device, comm
        self.native, self.at = native.library(), comm.at
        # Of exchange(): one is under way at most.
        self._exchange, self._sizes = Made("all_to_all_single", native.Call(native.ALLTOALLV), None, 0, None), (ctypes.c_int * (4 * size))()
        self.broken = None    # why the group is of no more use
        self._change = threading.Lock()
        self._pending = {}    # calls that are not known to be finished, by their keys
        self._keys = itertools.count(1)
        self._looked = [ctypes.c_int64() for _ in range(3)]
        start = native.START()
        if device is not None:
            start = native.START(self._start)
            missing = self.native.open_cuda()
            if missing is not None:
                raise mpi.Error(f"torch_mpath: CUDA's driver has no {missing.decode()}")
        self._functions = start, native.MAKE_BODY(self._make_body), native.HAS_FAILED(self._has_failed), native.HAS_ENDED(self._has_ended)
        self.native.group_functions(self.at, *self._functions)
        self._free = self.native.group_free
        _watch(self)

    def __del__(self):
        if hasattr(self, "_free"):
            self._free(self.at)

    # --- by callers ------------------------------------------------------------------------------------------------------

    def make(self, what, call, keep, seconds, opts):
        """To its end, by the caller where nothing is before it. `keep`: its tensors."""
        key = call.key = next(self._keys)
        self._pending[key] = made = Made(what, call, keep, seconds, opts)
        state = self.native.make(self.at, call.at)
        if state == native.PENDING:
            try:
                state = self.await_call(call)
            except BaseException:
                made.left = self
                raise
        if state == native.DONE:
            del self._pending[key]
            return
        failure = self._failure(made, state)
        self.forget(key)
        raise failure

    def exchange(self, output, inp, out_splits, in_splits, seconds, opts):
        """make() for an all_to_all_single of tensors that the library may look at (calls.described), without a step in Python. False: the
        library left it, and nothing was done."""
        made = self._exchange
        made.seconds, made.opts = seconds, opts  # of the last caller, where several threads call at once
        state = self.native.exchange(self.at, made.call.at, self._sizes, output, inp, out_splits, in_splits)
        if state == native.DONE:
            return True
        if state == native.PENDING:
            return False
        _abandoned.append((output, inp))
        raise self._failure(made, state)

    def _failure(self, made, state):
        """The exception of a call that its caller has made; the group is given up."""
        if state in (native.FAILED, native.CUDA_FAILED):
            failure = mpi.Error(self._comm.failure(made.call, state))
            self._give_up_for(made, failure)
            return failure
        return self.error(made.what, state)

    def post(self, work):
        """Queues a call, and returns its handle."""
        call = work.call
        if self._pending:
            self._reap()
        key = call.key = next(self._keys)
        self._pending[key] = work
        state = self.native.post(self.at, call.at)
        if state == native.CUDA_FAILED:
            self._give_up_for(work, mpi.Error(self._comm.failure(call, state)))
        if state != native.PENDING:
            work.finish(state)
        return work

    def await_call(self, call, seconds=None):
        """The call's state once it is not pending, or after so long. Without a limit the caller makes the call if nobody has begun it."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _SLICE_NS if deadline is None else min(_SLICE_NS, int((deadline - time.monotonic()) * 1e9))
            state = self.native.wait(self.at, call.at, left, deadline is None)
            if state != native.PENDING or left <= 0:
                return state

    def number(self):
        """That of a call which is refused before it is made."""
        return self.native.number(self.at)

    def error(self, what, state):
        """Of a call that was not made, or was given up."""
        if state == native.ENDED:
            return RuntimeError(f"torch_mpath: {what}: the process group was destroyed")
        return mpi.Error(self.broken)

    def forget(self, key):
        self._pending.pop(key, None)

    def _reap(self):
        """Lets go of what is finished and was not waited for; calls end in their order."""
        while self._pending:
            try:
                if not self._pending[next(iter(self._pending))].look():
                    return
            except (KeyError, StopIteration, RuntimeError):
                return  # another thread did

    # --- by who makes a call of the queue, mostly the library's thread --------------------------------------------------------------------------------------------

    def _start(self):
        # What is copied or started here must not wait behind what the application has on its streams.
        torch.cuda.set_device(self._device)
        torch.cuda.set_stream(torch.cuda.Stream(self._device))

    def _make_body(self, key):
        work = self._pending.get(key)
        try:
            if self.broken is None:
                turns.wait(work)
            if self.broken is not None:
                return native.BROKEN
            if work.before is not None:
                torch.cuda.current_stream().wait_event(work.before)
            work.inner = work.call.body()
            return native.DONE
        except mpi.Stopped:
            return native.STOPPED
        except mpi.Error as failure:
            self._give_up_for(work, failure)
            return native.STOPPED
        except BaseException as failure:  # noqa: BLE001 - what the inner group raises is its caller's
            work.raised = failure
            return native.RAISED
        finally:
            turns.end(work)

    def _has_failed(self, key, state, rc):
        work = self._pending[key]
        self._give_up_for(work, mpi.Error(self._comm.failure(work.call, state)))

    def _has_ended(self, key):
        work = self._pending.get(key)
        if work is not None:
            work.look()

    # --- when something goes wrong, and at the end ------------------------------------------------------------------------------

    def _give_up_for(self, work, failure):
        self.give_up(f"torch_mpath: rank {self.alarm.rank}: {work.what} (call {work.call.number}): {failure}", work.call.key)

    def give_up(self, text, ended=None):
        """The group is of no more use: all that wait learn it, and so do the other ranks. `ended`: the key of a call which MPI is not in."""
        with self._change:
            if self.broken is not None:
                return
            self.broken = text
        _abandoned.append(self)
        mpi.note_failure()
        self.alarm.ring(text)
        held = {key: (work, work.keep, work.call.keep, work.call.body) for key, work in list(self._pending.items())}
        turns.wake()
        key = self.native.break_(self.at)
        if key != ended:
            _abandoned.append(held.get(key))
        for work in list(self._pending.values()):
            work.look()

    def look(self):
        """Once a second: is the call under way past its deadline, or has it failed elsewhere?"""
        self._reap()
        key, number, ns = self._looked
        if self.broken is not None or not self.native.look(self.at, key, number, ns):
            return
        call, seconds = self._pending.get(key.value) if key.value else self._exchange, ns.value / 1e9
        if call is None:
            return
        if seconds > _limit_s(call):
            self.give_up(f"torch_mpath: rank {self.alarm.rank}: {call.what} (call {number.value}) has not ended within "
                         f"{_limit_s(call):.0f} s: not all ranks have called it, or one is gone")
        elif seconds > _TICK_S:
            text = self.alarm.heard(number.value)
            if text is not None:
                self.give_up(text)

    def close(self, last):
        """Makes the calls that wait, `last` behind them, and ends the thread. False where that cannot be."""
        call = native.Call(native.BODY)
        call.body = last
        done = Work(self, "end", call, None, [], float("inf"), None)
        self.post(done)
        done.wait_until_begun()
        self.native.group_end(self.at)
        return self.broken is None and done.is_success()


_watched = weakref.WeakSet()
_watched_lock = threading.Lock()
_watcher = None


def _watch(group_queue):
    global _watcher
    with _watched_lock:
        _watched.add(group_queue)
        if _watcher is None:
            _watcher = threading.Thread(target=_watch_all, name="mpath watch", daemon=True)
            _watcher.start()


def _watch_all():
    while True:
        time.sleep(_TICK_S)
        with _watched_lock:
            queues = list(_watched)
        for group_queue in queues:
            group_queue.look()
        queues = group_queue = None  # they may end
