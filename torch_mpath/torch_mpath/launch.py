# SPDX-License-Identifier: BSD-3-Clause
"""What init_process_group reads from the environment, under mpirun."""
import os
import socket

from . import mpi


def _address():
    """Where other nodes reach this one: its name, if that is more than the machine's own."""
    name = mpi.host_name()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


def _free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def set_environment():
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun would, from MPI; what is set stays. All processes
    of the job call it, before init_process_group. Initialises MPI."""
    mpi.init()
    rank, size = mpi.world()
    mine = ""
    if rank == 0:
        mine = f"{os.environ.get('MASTER_ADDR') or _address()} {os.environ.get('MASTER_PORT') or _free_port()}"
    address, port = mpi.world_broadcast(mine).split()
    for name, value in (("RANK", rank), ("WORLD_SIZE", size), ("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")),
                        ("MASTER_ADDR", address), ("MASTER_PORT", port)):
        os.environ.setdefault(name, str(value))
