# SPDX-License-Identifier: BSD-3-Clause
"""The backend "mpath" of torch.distributed: see doc/torch.md of mpath.

    import torch_mpath
    torch_mpath.set_environment()                  # under mpirun; not needed where RANK and its like are set
    dist.init_process_group("mpath")
"""
import torch.distributed as dist

from .group import Options, create
from .launch import set_environment
from .mpi import Error, has_mpath

__all__ = ["Error", "Options", "has_mpath", "register", "set_environment"]


def register():
    """Makes the backend known to torch.distributed; once is enough."""
    if "MPATH" not in dist.Backend._plugins:
        dist.Backend.register_backend("mpath", create, extended_api=True, devices=["cpu", "cuda"])


register()
