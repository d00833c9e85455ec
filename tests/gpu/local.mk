# SPDX-License-Identifier: BSD-3-Clause
# tests/gpu/run is for a machine with GPUs. Beside the fake driver (fake_cuda) lie a fake NVML and a fake NCCL, so that
# discovery and mpath_bench are tested without one.
EXTRA_DIST += gpu/fake_nccl.c gpu/fake_nvml.c gpu/goals.py gpu/kernel_targets gpu/mpi_parts.py gpu/nodes.py gpu/pack gpu/pytorch.py gpu/relays.py gpu/run gpu/sanitize.py gpu/takes.py gpu/test_run
golden_scripts += gpu/test_run
fake_gpu_libraries = fake_cuda/libnvidia-ml.so.1
if HAVE_MPI
fake_gpu_libraries += fake_cuda/libnccl.so.2
endif
fake_link = $(AM_V_CC)$(MKDIR_P) fake_cuda && $(CC) $(CPPFLAGS) -I$(top_srcdir)/src $(MPATH_CFLAGS) $(CFLAGS) $(LDFLAGS) \
	-fPIC -fvisibility=hidden -shared
fake_cuda/libnvidia-ml.so.1: gpu/fake_nvml.c
	$(fake_link) -Wl,-soname,libnvidia-ml.so.1 -o $@ $(srcdir)/gpu/fake_nvml.c
fake_cuda/libnccl.so.2: gpu/fake_nccl.c $(top_srcdir)/src/tools/bench/nccl.h
	$(fake_link) $(OMPI_CPPFLAGS) -Wl,-soname,libnccl.so.2 -o $@ $(srcdir)/gpu/fake_nccl.c $(OMPI_LIBS) -ldl
