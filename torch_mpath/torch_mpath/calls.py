# SPDX-License-Identifier: BSD-3-Clause
"""The collectives that MPI carries: what is checked before, on this rank alone, and the MPI call.

Each function checks its arguments, raises where they are wrong, and returns what is to be done in the call's turn: a function.
Nothing here decides whether MPI carries the call: that follows from the operation, the type and the kind of device (group.py), which
all ranks share.
"""
import ctypes
import itertools
import math
import operator

import torch

from . import mpi


def _same_kind(what, *tensors):
    dtype, device = tensors[0].dtype, tensors[0].device
    for tensor in tensors:
        if tensor.dtype != dtype or tensor.device != device:
            raise ValueError(f"{what}: all tensors need one type and one device, and these are of {dtype} on {device} and "
                             f"{tensor.dtype} on {tensor.device}; nothing was sent")
        if tensor.layout != torch.strided or not tensor.is_contiguous():
            raise ValueError(f"{what}: tensors must be dense and contiguous; nothing was sent")


def _rows(what, tensor, splits, size):
    """(rows per rank, bytes of a row)"""
    if tensor.dim() == 0:
        raise ValueError(f"{what}: a tensor of no dimension cannot be split; nothing was sent")
    rows = tensor.shape[0]
    if not splits:
        if rows % size != 0:
            raise ValueError(f"{what}: {rows} rows cannot be split evenly over {size} ranks; nothing was sent")
        splits = [rows // size] * size
    elif len(splits) != size:
        raise ValueError(f"{what}: {len(splits)} split sizes for {size} ranks; nothing was sent")
    elif min(splits) < 0 or sum(splits) != rows:
        raise ValueError(f"{what}: split sizes {list(splits)[:16]} must be 0 or more and sum up to the {rows} rows; nothing was sent")
    return splits, tensor.numel() // rows * tensor.element_size() if rows else 0


class _Pieces:
    """Bytes for each rank, one piece behind the other: counts, displacements and datatype for MPI, whose int they must fit in."""

    def __init__(self, what, sizes):
        total = sum(sizes)
        self.unit = 1
        if total > mpi.INT_MAX:
            self.unit = math.gcd(*sizes)
            if total // self.unit > mpi.INT_MAX:
                raise ValueError(f"{what}: {total} bytes in multiples of {self.unit} are more pieces than MPI can count; "
                                 "use longer rows; nothing was sent")
            sizes = [n // self.unit for n in sizes]
        self.counts, self.places = mpi.ints(sizes), mpi.ints([0, *itertools.accumulate(sizes[:-1])])


def _exchange(comm, output, inp, received, sent):
    def exchange(send_type, receive_type):
        comm.collective("Alltoallv", mpi.pointer(inp), sent.counts, sent.places, send_type, mpi.pointer(output),
                        received.counts, received.places, receive_type)

    def body():
        if sent.unit == received.unit == 1:
            byte = mpi.handle("ompi_mpi_byte")
            exchange(byte, byte)
        else:
            with mpi.Bytes(sent.unit) as send_type, mpi.Bytes(received.unit) as receive_type:
                exchange(send_type, receive_type)
    return body


class Shapes:
    """What all_to_all_single has found out about shapes and split sizes of former calls."""

    _MOST = 64

    def __init__(self, size):
        self._size = size
        self._found = {}

    def pieces(self, what, output, inp, out_splits, in_splits):
        """What is received, what is sent."""
        out_splits, in_splits = (tuple(map(operator.index, splits or ())) for splits in (out_splits, in_splits))
        key = (output.shape, inp.shape, inp.element_size(), out_splits, in_splits)
        found = self._found.get(key)
        if found is None:
            out_rows, out_row = _rows(what, output, out_splits, self._size)
            in_rows, in_row = _rows(what, inp, in_splits, self._size)
            found = _Pieces(what, [n * out_row for n in out_rows]), _Pieces(what, [n * in_row for n in in_rows])
            if len(self._found) >= self._MOST:
                self._found.clear()
            self._found[key] = found
        return found


def all_to_all_single(comm, shapes, output, inp, out_splits, in_splits):
    what = "all_to_all_single"
    _same_kind(what, output, inp)
    return _exchange(comm, output, inp, *shapes.pieces(what, output, inp, out_splits, in_splits))


def _joined(tensors):
    """The tensors as one if they lie one behind the other in memory, as those of split() do; else None."""
    at = None
    for tensor in tensors:
        if tensor.numel() > 0:
            if at is not None and tensor.data_ptr() != at:
                return None
            at = tensor.data_ptr() + tensor.numel() * tensor.element_size()
    some = [t for t in tensors if t.numel() > 0]
    if not some:
        return tensors[0].reshape(-1)
    total = sum(t.numel() for t in some)
    if some[0].untyped_storage().data_ptr() != some[-1].untyped_storage().data_ptr():
        return None
    return some[0].as_strided((total,), (1,))


def alltoall(comm, size, outputs, inputs):
    """Tensors that lie anywhere pass through one buffer on each side: two copies."""
    what = "all_to_all"
    if len(outputs) != size or len(inputs) != size:
        raise ValueError(f"{what}: {len(inputs)} tensors to send and {len(outputs)} to receive for {size} ranks; nothing was sent")
    _same_kind(what, *outputs, *inputs)
    inp, output = _joined(inputs), _joined(outputs)
    if inp is None:
        inp = torch.cat([t.reshape(-1) for t in inputs])
    scatter = output is None
    if scatter:
        output = torch.empty(sum(t.numel() for t in outputs), dtype=inp.dtype, device=inp.device)
    unit = inp.element_size()
    exchange = _exchange(comm, output, inp, _Pieces(what, [t.numel() * unit for t in outputs]),
                         _Pieces(what, [t.numel() * unit for t in inputs]))

    def body():
        exchange()
        if scatter:
            with torch.no_grad():
                for to, piece in zip(outputs, output.split([t.numel() for t in outputs])):
                    to.copy_(piece.view_as(to))
            if output.is_cuda:
                torch.cuda.current_stream(output.device).synchronize()
    return body


def all_gather_single(comm, size, output, inp):
    what = "all_gather_into_tensor"
    _same_kind(what, output, inp)
    if output.numel() != inp.numel() * size:
        raise ValueError(f"{what}: {output.numel()} elements to receive, and {size} ranks send {inp.numel()} each; nothing was sent")
    nbytes = inp.numel() * inp.element_size()
    count, unit = (nbytes, 1) if nbytes <= mpi.INT_MAX else (1, nbytes)

    def body():
        with mpi.Bytes(unit) as datatype:
            comm.collective("Allgather", mpi.pointer(inp), count, datatype, mpi.pointer(output), count, datatype)
    return body


def reduce_scatter_single(comm, size, output, inp, reduction):
    what = "reduce_scatter_tensor"
    _same_kind(what, output, inp)
    if inp.numel() != output.numel() * size:
        raise ValueError(f"{what}: {inp.numel()} elements for {size} ranks that receive {output.numel()} each; nothing was sent")
    if output.numel() > mpi.INT_MAX:
        raise ValueError(f"{what}: {output.numel()} elements for each rank are more than MPI can count; nothing was sent")
    datatype, op = reduction

    def body():
        comm.collective("Reduce_scatter_block", mpi.pointer(inp), mpi.pointer(output), output.numel(), datatype, op)
    return body


def allreduce(comm, tensor, reduction):
    what = "all_reduce"
    _same_kind(what, tensor)
    datatype, op = reduction

    def body():
        # In parts that an int can count.
        for first in range(0, max(tensor.numel(), 1), mpi.INT_MAX):
            count = min(tensor.numel() - first, mpi.INT_MAX)
            at = ctypes.c_void_p(tensor.data_ptr() + first * tensor.element_size())
            comm.collective("Allreduce", mpi.IN_PLACE, at, count, datatype, op)
    return body


def barrier(comm):
    def body():
        comm.collective("Barrier")
    return body
