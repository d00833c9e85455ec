# SPDX-License-Identifier: BSD-3-Clause
"""stacks.py SECONDS PROGRAM [ARGUMENTS]: runs the Python program; one that still runs after SECONDS tells where each of its threads is."""
import faulthandler
import runpy
import sys

faulthandler.dump_traceback_later(float(sys.argv[1]))
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
