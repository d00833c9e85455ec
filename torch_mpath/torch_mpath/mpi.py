# SPDX-License-Identifier: BSD-3-Clause
"""libmpi by ctypes: handles, datatypes, errors, communicators, start and end of MPI.

Needs Open MPI (4.1, 5.0, 6.0), whose handles are addresses of exported objects. Nothing is loaded before the first use.
"""
import atexit
import contextlib
import ctypes
import os
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist

from . import native

IN_PLACE = 1
INT_MAX = 2**31 - 1
_THREAD_MULTIPLE = 3
_MAX_STRING = 512
# A rank whose call has failed stays so long before it ends: it may hold the store in which others look for the news once a second.
_LINGER_S = 3
_ENABLE = b"coll_mpath_enable"
# Of a type larger than what an int counts in bytes.
_BLOCK_BYTES = 1 << 30

# Of each type its MPI datatype: what MPI can reduce. The others move as bytes.
_TYPES = {
    torch.float32: "ompi_mpi_float",
    torch.float64: "ompi_mpi_double",
    torch.int8: "ompi_mpi_int8_t",
    torch.uint8: "ompi_mpi_uint8_t",
    torch.int16: "ompi_mpi_int16_t",
    torch.int32: "ompi_mpi_int32_t",
    torch.int64: "ompi_mpi_int64_t",
}
_ARITHMETIC = ((dist.ReduceOp.SUM, "ompi_mpi_op_sum"), (dist.ReduceOp.PRODUCT, "ompi_mpi_op_prod"),
               (dist.ReduceOp.MIN, "ompi_mpi_op_min"), (dist.ReduceOp.MAX, "ompi_mpi_op_max"))
_BITWISE = ((dist.ReduceOp.BAND, "ompi_mpi_op_band"), (dist.ReduceOp.BOR, "ompi_mpi_op_bor"),
            (dist.ReduceOp.BXOR, "ompi_mpi_op_bxor"))


class Error(dist.DistBackendError):
    """What MPI or mpath reports; the group it happened in is of no more use."""


class Stopped(Error):
    """The thread that was in a call has been told to leave it: MPI may still read and write its tensors."""


class _Library:
    """libmpi and the state of MPI in this process."""

    def __init__(self):
        self.lock = threading.Lock()
        self.mpi = None         # the library
        self.handles = {}       # of predefined objects, by name
        self.pid = None         # that has initialised MPI: a forked child must not touch it
        self.ours = False       # this package initialised MPI, and finalises it
        self.has_mpath = False  # coll/mpath was loaded
        self.groups = []        # process groups that live
        self.failed = False     # a call has failed or hangs: MPI_Finalize would not come back


_library = _Library()


def _load():
    name = os.environ.get("TORCH_MPATH_LIBMPI", "libmpi.so.40")
    try:
        # Open MPI's components look for its symbols in the global scope.
        mpi = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Error(f"torch_mpath: cannot load {name}: {error}; set TORCH_MPATH_LIBMPI to Open MPI's libmpi") from error
    if not hasattr(mpi, "ompi_mpi_comm_world"):
        raise Error(f"torch_mpath: {name} is not Open MPI's; set TORCH_MPATH_LIBMPI to Open MPI's libmpi")
    missing = native.library().open_mpi(mpi._handle)
    if missing is not None:
        raise Error(f"torch_mpath: {name} has no {missing.decode()}")
    return mpi


def handle(name):
    """The handle of a predefined object."""
    found = _library.handles.get(name)
    if found is None:
        found = _library.handles[name] = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(_library.mpi, name)))
    return found


def call(name, *arguments):
    """Calls an MPI function and makes an exception of its error. The interpreter lock is free meanwhile."""
    rc = getattr(_library.mpi, name)(*arguments)
    if rc != 0:
        raise Error(f"{name}: {error_text(rc)}")


def error_text(rc):
    text, length = ctypes.create_string_buffer(_MAX_STRING), ctypes.c_int()
    if _library.mpi.MPI_Error_string(rc, text, ctypes.byref(length)) != 0:
        return f"MPI error {rc}"
    return text.value.decode(errors="replace")


def refuse_in_child():
    """A process forked after MPI_Init, as data loaders are, shares connections and memory with its parent."""
    if _library.pid is not None and _library.pid != os.getpid():
        raise RuntimeError("torch_mpath: this process was forked after MPI was initialised and cannot communicate; "
                           "let the process that called init_process_group do it, or start this one by 'spawn'")


def init():
    """Initialises MPI unless the process has, once."""
    with _library.lock:
        refuse_in_child()
        if _library.pid is not None:
            return
        _library.mpi = _load()
        flag = ctypes.c_int()
        call("MPI_Finalized", ctypes.byref(flag))
        if flag.value:
            raise Error("torch_mpath: MPI was finalised in this process and cannot be started again")
        call("MPI_Initialized", ctypes.byref(flag))
        given = ctypes.c_int()
        if flag.value:
            call("MPI_Query_thread", ctypes.byref(given))
        else:
            call("MPI_Init_thread", None, None, _THREAD_MULTIPLE, ctypes.byref(given))
        if given.value < _THREAD_MULTIPLE:
            raise Error(f"torch_mpath: MPI gives thread level {given.value} and MPI_THREAD_MULTIPLE is needed; "
                        "initialise MPI with it, or let torch_mpath do it")
        _library.pid = os.getpid()
        _library.ours = not flag.value
        _library.has_mpath = _find_mpath()
        call("MPI_Comm_set_errhandler", handle("ompi_mpi_comm_world"), handle("ompi_mpi_errors_return"))
        if _library.ours:
            atexit.register(_finalize)


def _find_mpath():
    """Whether coll/mpath was loaded, by one of its control variables."""
    given, index = ctypes.c_int(), ctypes.c_int()
    call("MPI_T_init_thread", _THREAD_MULTIPLE, ctypes.byref(given))
    return _library.mpi.MPI_T_cvar_get_index(_ENABLE, ctypes.byref(index)) == 0


def _set_variable(name, value):
    """Writes a control variable of MPI_T."""
    index, count, variable, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(value)
    call("MPI_T_cvar_get_index", name, ctypes.byref(index))
    call("MPI_T_cvar_handle_alloc", index, None, ctypes.byref(variable), ctypes.byref(count))
    try:
        call("MPI_T_cvar_write", variable, ctypes.byref(number))
    finally:
        call("MPI_T_cvar_handle_free", ctypes.byref(variable))


@contextlib.contextmanager
def selection(use_mpath):
    """Communicators made inside are with or without mpath."""
    with _library.lock:
        change = _library.has_mpath and not use_mpath
        if change:
            _set_variable(_ENABLE, 0)
        try:
            yield
        finally:
            if change:
                _set_variable(_ENABLE, 1)


def has_mpath():
    """Whether Open MPI has loaded coll/mpath."""
    return _library.has_mpath


def _keep_groups():
    """In a forked child: its groups are never destroyed, since gloo's destructor waits for threads that only the parent has."""
    for group in _library.groups:
        for each in (group, group.inner):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


os.register_at_fork(after_in_child=_keep_groups)


def living(group, lives):
    """Notes that a process group lives, or no more."""
    if lives:
        _library.groups.append(group)
    elif group in _library.groups:
        _library.groups.remove(group)


def _finalize():
    """At exit, before the libraries below (CUDA's context among them) are torn down.

    MPI_Finalize waits for all processes. One that ends by an exception, or whose groups failed, must not wait: others may
    wait for it in a call, and mpirun ends the job once it sees a process leave without MPI_Finalize.
    """
    if _library.pid != os.getpid():
        return
    if _library.failed:
        time.sleep(_LINGER_S)
    if getattr(sys, "last_type", None) is not None:
        return
    healthy = True
    for group in list(_library.groups):
        healthy = group.shutdown() and healthy
    if healthy and not _library.failed:
        call("MPI_T_finalize")
        call("MPI_Finalize")


def note_failure():
    """A call has failed or hangs: MPI_Finalize would not come back."""
    _library.failed = True


def world():
    """(rank, size) in MPI_COMM_WORLD."""
    rank, size = ctypes.c_int(), ctypes.c_int()
    call("MPI_Comm_rank", handle("ompi_mpi_comm_world"), ctypes.byref(rank))
    call("MPI_Comm_size", handle("ompi_mpi_comm_world"), ctypes.byref(size))
    return rank.value, size.value


def world_broadcast(text):
    """What rank 0 of MPI_COMM_WORLD gives, on all; 256 bytes at most."""
    buffer = ctypes.create_string_buffer(text.encode(), 256)
    call("MPI_Bcast", buffer, 256, handle("ompi_mpi_byte"), 0, handle("ompi_mpi_comm_world"))
    return buffer.value.decode()


def host_name():
    return socket.gethostname()


class Communicator:
    """Of some processes of MPI_COMM_WORLD, made by those alone. Errors return. One thread at a time is in a call.

    With `stops`, that thread can be told to leave its call, which MPI's blocking functions do not let happen: the call is MPI's
    non-blocking one, and MPI_Waitany waits for its request and for one more, which giving the group up completes (a generalized
    request). Blocking and non-blocking calls of different ranks do not match: `stops` is the same on
    all of them.
    """

    def __init__(self, members, tag, stops):
        self.handle = ctypes.c_void_p()
        self.stops = stops
        everyone, group = ctypes.c_void_p(), ctypes.c_void_p()
        call("MPI_Comm_group", handle("ompi_mpi_comm_world"), ctypes.byref(everyone))
        try:
            call("MPI_Group_incl", everyone, len(members), ints(members), ctypes.byref(group))
            try:
                call("MPI_Comm_create_group", handle("ompi_mpi_comm_world"), group, tag, ctypes.byref(self.handle))
            finally:
                call("MPI_Group_free", ctypes.byref(group))
        finally:
            call("MPI_Group_free", ctypes.byref(everyone))
        call("MPI_Comm_set_errhandler", self.handle, handle("ompi_mpi_errors_return"))
        self.at = native.library().group_create(self.handle, len(members), handle("ompi_mpi_byte"), stops)
        if not self.at:
            raise Error("torch_mpath: no memory, or MPI_Grequest_start has failed")

    def execute(self, call):
        """The call by MPI, to its end, by who has the group's turn."""
        state = native.library().execute(self.at, call.at)
        if state == native.STOPPED:
            raise Stopped(f"{self.function(call)} was given up")
        if state != native.DONE:
            raise Error(self.failure(call, state))

    def function(self, call):
        name = native.NAMES[call.operation]
        return f"MPI_I{name.lower()}" if self.stops else f"MPI_{name}"

    def failure(self, call, state):
        """What went wrong in a call."""
        if state == native.CUDA_FAILED:
            return f"CUDA error {call.rc} while the call waited for its stream"
        return f"{self.function(call)}: {error_text(call.rc)}"

    def free(self):
        call("MPI_Comm_free", ctypes.byref(self.handle))
        rc = native.library().group_release(self.at)
        if rc != 0:
            raise Error(f"MPI_Request_free: {error_text(rc)}")


def ints(values):
    return (ctypes.c_int * len(values))(*values)


def reduction(dtype, op):
    """(datatype, operation) of MPI, as numbers, for what torch calls so, or None where MPI has no such. `op` is compared, since objects of
    ReduceOp have no hash of their own."""
    if dtype not in _TYPES:
        return None
    integer = not dtype.is_floating_point
    for ours, name in _ARITHMETIC + (_BITWISE if integer else ()):
        if op == ours:
            return handle(_TYPES[dtype]).value, handle(name).value
    return None


class Bytes:
    """A datatype of `size` bytes: MPI_BYTE where that is 1, else one that lives as long as the block of `with`."""

    def __init__(self, size):
        self.size = size
        self.made = []

    def __enter__(self):
        byte = handle("ompi_mpi_byte")
        if self.size == 1:
            return byte
        try:
            if self.size <= _BLOCK_BYTES:
                return self._contiguous(self.size, byte, commit=True)
            blocks, rest = divmod(self.size, _BLOCK_BYTES)
            whole = self._contiguous(blocks, self._contiguous(_BLOCK_BYTES, byte))
            if rest == 0:
                call("MPI_Type_commit", ctypes.byref(whole))
                return whole
            both, new = (ctypes.c_void_p * 2)(whole.value, byte.value), ctypes.c_void_p()
            places = (ctypes.c_ssize_t * 2)(0, blocks * _BLOCK_BYTES)
            call("MPI_Type_create_struct", 2, ints([1, rest]), places, both, ctypes.byref(new))
            self.made.append(new)
            call("MPI_Type_commit", ctypes.byref(new))
            return new
        except BaseException:
            self.__exit__()
            raise

    def _contiguous(self, count, of, commit=False):
        new = ctypes.c_void_p()
        call("MPI_Type_contiguous", count, of, ctypes.byref(new))
        self.made.append(new)
        if commit:
            call("MPI_Type_commit", ctypes.byref(new))
        return new

    def __exit__(self, *_):
        for datatype in self.made:
            call("MPI_Type_free", ctypes.byref(datatype))
        self.made = []
