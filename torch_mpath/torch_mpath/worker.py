# SPDX-License-Identifier: BSD-3-Clause
"""The queue of a group, who makes its calls, and the handles that callers wait for.

All collectives of a group pass through its one queue, those of the inner group too, so that their order is the same on every
rank. One more thread in the process looks once a second whether a call has passed its deadline or has failed elsewhere.
"""
import queue
import threading
import time
import weakref

import torch
import torch.distributed as dist

from . import mpi

_TICK_S = 1.0
# Calls that MPI has not ended when their group was given up, with their tensors.
_abandoned = []


class Work(dist.Work):
    """A call: queued, under way, or finished. wait() blocks the host; then outputs are complete, on every stream. One of the inner
    group counts as finished here when it was started there, and is then what that group says of it."""

    def __init__(self, what, number, timeout_s, outputs, inner):
        super().__init__()
        self.what, self.number, self.timeout_s = what, number, timeout_s
        self.began = None                 # when MPI or the inner group was called
        self._outputs = outputs
        self.is_inner, self._inner = inner, None
        self._pending = threading.Lock()  # held until it is finished
        self._pending.acquire()
        self._change = threading.Lock()
        self._finished, self._error, self._future = False, None, None

    def finish(self, error=None, inner=None):
        """The first one counts: the thread that did it, or the one that gave it up."""
        with self._change:
            if self._finished:
                return
            self._error, self._inner, self._finished = error, inner, True
            future = self._future
        self._pending.release()
        if future is not None:
            self._settle(future)

    def _settle(self, future):
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._outputs)

    def _await_finish(self, seconds=None):
        if not self._pending.acquire(timeout=-1 if seconds is None else seconds):
            raise mpi.Error(f"torch_mpath: {self.what} (call {self.number}) has not ended within {seconds:.3f} s")
        self._pending.release()

    def _raise_error(self):
        if self._error is not None:
            raise type(self._error)(*self._error.args) from self._error

    def wait(self, timeout=None):
        self._await_finish(timeout.total_seconds() if timeout else None)
        self._raise_error()
        if self._inner is not None:
            return self._inner.wait(timeout) if timeout else self._inner.wait()
        return True

    def wait_until_begun(self):
        """Of the inner group: until it was started there, or has failed."""
        self._await_finish()

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._finished and (self._inner is None or self._inner.is_completed())

    def is_success(self):
        return self._finished and self._error is None and (self._inner is None or self._inner.is_success())

    def exception(self):
        return self._error

    def result(self):
        self.wait()
        return self._outputs if self._inner is None else self._inner.result()

    def get_future(self):
        if self.is_inner:
            self._await_finish()
            if self._inner is not None:
                return self._inner.get_future()
        with self._change:
            if self._future is not None:
                return self._future
            devices = sorted({t.device for t in self._outputs if t.is_cuda}, key=str)
            self._future = torch.futures.Future(devices=devices)
            finished = self._finished
        if finished:
            self._settle(self._future)
        return self._future


class Call:
    """A call that its caller makes itself, and is in until it has ended or is stopped."""

    __slots__ = ("what", "number", "timeout_s", "began")
    is_inner = False

    def __init__(self, what, number, timeout_s):
        self.what, self.number, self.timeout_s = what, number, timeout_s

    def finish(self, error=None, inner=None):
        pass


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

    def __init__(self, name, alarm, device, stop):
        """`stop` makes a call of MPI end that is under way in another thread, where that can be."""
        self.alarm, self.device, self._stop = alarm, device, stop
        self.broken = None                # why the group is of no more use
        self._change = threading.Lock()
        self._calls = queue.SimpleQueue()
        self._number_left = 0             # calls that are queued or under way
        self._turn = threading.Lock()     # held while a call is made
        self._current = None
        self._thread = threading.Thread(target=self._run, name=f"mpath {name}", daemon=True)
        self._thread.start()
        _watch(self)

    def put(self, work, body, event=None):
        """`body` returns None or the inner group's work. It starts when `event`, on a CUDA stream, has come."""
        with self._change:
            if self.broken is None:
                self._number_left += 1
                self._calls.put((work, body, event))
                return
        work.finish(mpi.Error(self.broken))

    def take_turn(self):
        """True if nothing is queued or under way: the caller makes its call itself, by make(). Others wait meanwhile."""
        with self._change:
            if self.broken is not None or self._number_left > 0 or not self._turn.acquire(blocking=False):
                return False
            self._number_left += 1
            return True

    def make(self, call, body, stream):
        """By the caller, whose turn it is; the call starts when what `stream` has is done."""
        error = self._call(call, body, stream)
        if error is not None:
            raise error

    def _run(self):
        if self.device is not None:
            # What is copied or started here must not wait behind what the application has on its streams.
            torch.cuda.set_device(self.device)
            torch.cuda.set_stream(torch.cuda.Stream(self.device))
        while True:
            work, body, event = self._calls.get()
            if work is None:
                return
            self._turn.acquire()
            self._call(work, body, event)
            work = body = event = None    # they hold tensors

    def _call(self, work, body, before):
        """`before`: an event or a stream. Ends the turn. The error, if there is one."""
        inner, error = None, None
        try:
            if self.broken is not None:
                raise mpi.Error(self.broken)
            if before is not None and work.is_inner:
                torch.cuda.current_stream().wait_event(before)
            elif before is not None:
                before.synchronize()
            work.began = time.monotonic()
            self._current = work
            inner = body()
        except mpi.Stopped:
            _abandoned.append((work, body))
            error = mpi.Error(self.broken)
        except mpi.Error as failure:
            error = failure
            self.give_up(f"torch_mpath: rank {self.alarm.rank}: {work.what} (call {work.number}): {failure}")
        except Exception as failure:  # noqa: BLE001 - what the inner group raises is its caller's
            error = failure
        self._current = None
        self._turn.release()
        with self._change:
            self._number_left -= 1
        work.finish(error, inner)
        return error

    def give_up(self, text):
        """The group is of no more use: all that wait learn it, and so do the other ranks."""
        with self._change:
            if self.broken is not None:
                return
            self.broken = text
        mpi.note_failure()
        self.alarm.ring(text)
        current = self._current
        if current is not None:
            current.finish(mpi.Error(text))
        self._stop()
        while True:
            try:
                work = self._calls.get_nowait()[0]
            except queue.Empty:
                break
            if work is not None:
                work.finish(mpi.Error(text))
        self._calls.put((None, None, None))

    def look(self):
        """Once a second: is the call under way past its deadline, or has it failed elsewhere?"""
        work = self._current
        if work is None or self.broken is not None:
            return
        seconds = time.monotonic() - work.began
        if seconds > work.timeout_s:
            self.give_up(f"torch_mpath: rank {self.alarm.rank}: {work.what} (call {work.number}) has not ended within "
                         f"{work.timeout_s:.0f} s: not all ranks have called it, or one is gone")
        elif seconds > _TICK_S:
            text = self.alarm.heard(work.number)
            if text is not None:
                self.give_up(text)

    def close(self, last):
        """Makes the calls that wait, `last` behind them, and ends the thread. False where that cannot be."""
        done = Work("end", -1, float("inf"), [], False)
        self.put(done, last)
        done._await_finish()
        self._calls.put((None, None, None))
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
