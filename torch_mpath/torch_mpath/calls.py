# SPDX-License-Identifier: BSD-3-Clause
"""The collectives that MPI carries: what is checked before, on this rank alone, and the MPI call.

Each function checks its arguments, raises where they are wrong, and returns the call that is to be made in its turn (native.Call).
Nothing here decides whether MPI carries the call: that follows from the operation, the type and the kind of device (group.py), which
all ranks share.
"""
import ctypes
import itertools
import math
import operator

import torch

from . import mpi, native


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
        self._arrays = mpi.ints(sizes), mpi.ints([0, *itertools.accumulate(sizes[:-1])])
        self.counts, self.places = map(ctypes.addressof, self._arrays)


def _function(body):
    """A call that Python makes, as its turn comes."""
    call = native.Call(native.BODY)
    call.body = body
    return call


def _alltoallv(what, comm, output, inp, received, sent):
    """The call that moves so many bytes from and to each rank."""
    received, sent = _Pieces(what, received), _Pieces(what, sent)
    call = native.Call(native.ALLTOALLV)
    call.send_counts, call.send_places = sent.counts, sent.places
    call.receive_counts, call.receive_places = received.counts, received.places
    call.send, call.receive = inp.data_ptr(), output.data_ptr()
    call.keep = received, sent, output, inp
    if sent.unit == received.unit == 1:
        call.send_type = call.receive_type = mpi.handle("ompi_mpi_byte").value
        return call

    def in_units():
        with mpi.Bytes(sent.unit) as send_type, mpi.Bytes(received.unit) as receive_type:
            call.send_type, call.receive_type = send_type.value, receive_type.value
            comm.execute(call)
    return _function(in_units)


def described(output, inp, out_splits, in_splits):
    """Whether the library may look at them (mpath_describe)."""
    return type(output) is type(inp) is torch.Tensor and type(out_splits) is type(in_splits) is list and native.library().has_tensors


def all_to_all_single(comm, size, output, inp, out_splits, in_splits):
    what = "all_to_all_single"
    out_splits, in_splits = list(out_splits or ()), list(in_splits or ())
    if described(output, inp, out_splits, in_splits):
        call = native.Call(native.ALLTOALLV)
        call.keep = sizes = (ctypes.c_int * (4 * size))()
        if native.library().describe(comm.at, call.at, sizes, output, inp, out_splits, in_splits):
            return call
    _same_kind(what, output, inp)
    out_rows, out_row = _rows(what, output, list(map(operator.index, out_splits)), size)
    in_rows, in_row = _rows(what, inp, list(map(operator.index, in_splits)), size)
    return _alltoallv(what, comm, output, inp, [n * out_row for n in out_rows], [n * in_row for n in in_rows])


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
    call = _alltoallv(what, comm, output, inp, [t.numel() * unit for t in outputs], [t.numel() * unit for t in inputs])

    def after():
        with torch.no_grad():
            for to, piece in zip(outputs, output.split([t.numel() for t in outputs])):
                to.copy_(piece.view_as(to))
        if output.is_cuda:
            torch.cuda.current_stream(output.device).synchronize()
    if scatter:
        call.after = after
    return call


def all_gather_single(comm, size, output, inp):
    what = "all_gather_into_tensor"
    _same_kind(what, output, inp)
    if output.numel() != inp.numel() * size:
        raise ValueError(f"{what}: {output.numel()} elements to receive, and {size} ranks send {inp.numel()} each; nothing was sent")
    nbytes = inp.numel() * inp.element_size()
    call = native.Call(native.ALLGATHER)
    call.send, call.receive = inp.data_ptr(), output.data_ptr()
    if nbytes <= mpi.INT_MAX:
        call.count, call.send_type = nbytes, mpi.handle("ompi_mpi_byte").value
        return call

    def in_blocks():
        with mpi.Bytes(nbytes) as datatype:
            call.count, call.send_type = 1, datatype.value
            comm.execute(call)
    return _function(in_blocks)


def reduce_scatter_single(size, output, inp, reduction):
    what = "reduce_scatter_tensor"
    _same_kind(what, output, inp)
    if inp.numel() != output.numel() * size:
        raise ValueError(f"{what}: {inp.numel()} elements for {size} ranks that receive {output.numel()} each; nothing was sent")
    if output.numel() > mpi.INT_MAX:
        raise ValueError(f"{what}: {output.numel()} elements for each rank are more than MPI can count; nothing was sent")
    call = native.Call(native.REDUCE_SCATTER_BLOCK)
    call.send, call.receive, call.count = inp.data_ptr(), output.data_ptr(), output.numel()
    call.send_type, call.reduction = reduction
    return call


def allreduce(comm, tensor, reduction):
    what = "all_reduce"
    _same_kind(what, tensor)
    call, count = native.Call(native.ALLREDUCE), tensor.numel()
    call.send, call.receive, call.count = mpi.IN_PLACE, tensor.data_ptr(), min(count, mpi.INT_MAX)
    call.send_type, call.reduction = reduction
    if count <= mpi.INT_MAX:
        return call

    def in_parts():
        for first in range(0, count, mpi.INT_MAX):
            call.receive, call.count = tensor.data_ptr() + first * tensor.element_size(), min(count - first, mpi.INT_MAX)
            comm.execute(call)
    return _function(in_parts)


def barrier():
    return native.Call(native.BARRIER)
