# SPDX-License-Identifier: BSD-3-Clause
"""stacks.py SECONDS PROGRAM [ARGUMENTS]: runs the Python program; one that still runs after SECONDS tells where each of its threads is."""
import faulthandler
import os
import runpy
import sys
import time

deadline = time.monotonic() + float(sys.argv[1])


def watch():
    faulthandler.dump_traceback_later(max(deadline - time.monotonic(), 1))


# A child has not the thread that watches, and would wait for it at its end.
os.register_at_fork(before=faulthandler.cancel_dump_traceback_later, after_in_parent=watch)
watch()
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
