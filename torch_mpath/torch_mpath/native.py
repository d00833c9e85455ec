# SPDX-License-Identifier: BSD-3-Clause
"""The package's library, worker.c, by ctypes: where it is, what its functions take, and the struct of a call.

`pip install` compiles it. In a tree of sources it is compiled at first use, into the user's cache, by $CC or cc: it needs no headers but
those of the C library.
"""
import ctypes
import glob
import hashlib
import os
import shlex
import subprocess
import tempfile

import torch
import torch.distributed as dist

_HERE = os.path.dirname(os.path.abspath(__file__))
# Of worker.c's enums.
BODY, ALLTOALLV, ALLGATHER, REDUCE_SCATTER_BLOCK, ALLREDUCE, BARRIER = range(6)
PENDING, DONE, FAILED, CUDA_FAILED, STOPPED, BROKEN, RAISED, ENDED = range(8)
NAMES = ("", "Alltoallv", "Allgather", "Reduce_scatter_block", "Allreduce", "Barrier")
_LAYOUT = 3  # raised with every change of worker.c's interface


class Call(ctypes.Structure):
    """What is to be called. `body`: Python's function, of a BODY; `after`: what is still to be done once MPI has done its part; `keep`: what
    else the fields point to."""

    _fields_ = [
        ("send", ctypes.c_void_p), ("send_counts", ctypes.c_void_p), ("send_places", ctypes.c_void_p), ("send_type", ctypes.c_void_p),
        ("receive", ctypes.c_void_p), ("receive_counts", ctypes.c_void_p), ("receive_places", ctypes.c_void_p), ("receive_type", ctypes.c_void_p),
        ("reduction", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("key", ctypes.c_int64), ("operation", ctypes.c_int32),
        ("count", ctypes.c_int32), ("device", ctypes.c_int32), ("rc", ctypes.c_int32), ("number", ctypes.c_int64), ("began_ns", ctypes.c_int64),
        ("is_told", ctypes.c_int32), ("state", ctypes.c_int32), ("event", ctypes.c_void_p), ("next", ctypes.c_void_p)]
    body = after = keep = None

    def __init__(self, operation):
        self.operation = operation
        self.device = -1
        self.at = ctypes.addressof(self)


START = ctypes.CFUNCTYPE(None)
MAKE_BODY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)
HAS_FAILED = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int, ctypes.c_int)
HAS_ENDED = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_AT, _NS = ctypes.c_void_p, ctypes.c_int64
_PLACE = ctypes.POINTER(ctypes.c_int64)
_OBJECT = ctypes.py_object
_SIZES = ctypes.POINTER(ctypes.c_int)
# Those that wait free the interpreter lock, the others keep it: to take it again may last as long as another thread computes. "exchange" does
# both.
_WAITING = {
    "open_mpi": (ctypes.c_char_p, _AT), "open_cuda": (ctypes.c_char_p,), "execute": (ctypes.c_int, _AT, _AT), "make": (ctypes.c_int, _AT, _AT),
    "wait": (ctypes.c_int, _AT, _AT, _NS, ctypes.c_int), "break": (ctypes.c_int64, _AT), "group_create": (_AT, _AT, ctypes.c_int, _AT, ctypes.c_int),
    "group_release": (ctypes.c_int, _AT), "group_end": (None, _AT)}
_QUICK = {
    "post": (ctypes.c_int, _AT, _AT), "state": (ctypes.c_int, _AT), "tell": (ctypes.c_int, _AT, _AT), "number": (ctypes.c_int64, _AT),
    "look": (ctypes.c_int, _AT, _PLACE, _PLACE, _PLACE), "layout": (ctypes.c_int64,), "open_tensors": (ctypes.c_char_p, _AT),
    "describe": (ctypes.c_int, _AT, _AT, _SIZES, _OBJECT, _OBJECT, _OBJECT, _OBJECT),
    "exchange": (ctypes.c_int, _AT, _AT, _SIZES, _OBJECT, _OBJECT, _OBJECT, _OBJECT),
    "group_free": (None, _AT),
    "group_functions": (None, _AT, START, MAKE_BODY, HAS_FAILED, HAS_ENDED)}


def _compile(source):
    """The library of this source in the user's cache, or in a folder of this process where there is none."""
    with open(source, "rb") as text:
        name = f"worker-{hashlib.sha256(text.read()).hexdigest()[:16]}-{os.uname().machine}.so"
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "torch_mpath")
    path = os.path.join(folder, name)
    if os.path.exists(path):
        return path
    try:
        os.makedirs(folder, exist_ok=True)
        handle, new = tempfile.mkstemp(dir=folder)
    except OSError:
        path = os.path.join(tempfile.mkdtemp(prefix="torch_mpath"), name)
        handle, new = os.open(path, os.O_CREAT, 0o700), path
    os.close(handle)
    command = [*shlex.split(os.environ.get("CC") or "cc"), "-O2", "-shared", "-fPIC", "-pthread", source, "-o", new, "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        failure = done.returncode != 0 and (done.stderr.strip() or f"exit code {done.returncode}")
    except OSError as error:
        failure = str(error)
    if failure:
        os.unlink(new)
        raise dist.DistBackendError(f"torch_mpath: its library cannot be compiled by '{command[0]}': {failure}; install a C compiler or set CC, or "
                                    "install the package by pip where there is one")
    os.rename(new, path)  # other ranks may be at it, too
    return path


def _capsule(table):
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = _AT, (_OBJECT, ctypes.c_char_p)
    return read(table, b"dlpack_exchange_api")


class _Library:
    def __init__(self):
        installed = glob.glob(os.path.join(glob.escape(_HERE), "_worker*.so"))
        path = installed[0] if installed else _compile(os.path.join(_HERE, "worker.c"))
        for kind, functions in ((ctypes.CDLL, _WAITING), (ctypes.PyDLL, _QUICK)):
            library = kind(path)
            for name, (result, *arguments) in functions.items():
                function = getattr(library, f"mpath_{name}")
                function.restype, function.argtypes = result, arguments
                setattr(self, f"{name}_" if name == "break" else name, function)
        if self.layout() != ctypes.sizeof(Call) * 1000 + _LAYOUT:
            raise dist.DistBackendError(f"torch_mpath: {path} is not of this release of the package; remove it, or install the package again")
        # Whether "describe" and "exchange" know tensors: PyTorch has that from 2.10 on.
        table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
        self.has_tensors = table is not None and self.open_tensors(_capsule(table)) is None


_library = None


def library():
    """Loaded at first use; by who holds mpi.py's lock."""
    global _library
    if _library is None:
        _library = _Library()
    return _library
