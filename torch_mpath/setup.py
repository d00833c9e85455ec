# SPDX-License-Identifier: BSD-3-Clause
"""The library that torch_mpath/native.py loads: plain C, without Python's headers or MPI's."""
from setuptools import Extension, setup

setup(ext_modules=[Extension("torch_mpath._worker", ["torch_mpath/worker.c"], extra_compile_args=["-O2", "-pthread"], extra_link_args=["-pthread"],
                             libraries=["dl"])])
