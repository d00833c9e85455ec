# SPDX-License-Identifier: BSD-3-Clause
# A CUDA driver without a GPU: libcuda.so.1 in the build's folder tests/fake_cuda, for LD_LIBRARY_PATH or dlopen.
fake_cuda_sources = fake_cuda/attributes.c fake_cuda/context.c fake_cuda/device.c fake_cuda/launch.c fake_cuda/memory.c \
	fake_cuda/stream.c fake_cuda/vmm.c
fake_cuda_headers = fake_cuda/fake.h fake_cuda/fake_kernel.h
# The kernels, which are C++, from their own sources, and what runs them: many stacks, of which a sanitizer of addresses knows nothing.
fake_kernel_objects = fake_cuda/grid.o fake_cuda/kernels.o
fake_kernel_flags = $(CFLAGS) -O1 -g0 -fPIC -ftls-model=initial-exec -fvisibility=hidden $(fake_kernel_sanitizers) $(CPPFLAGS) -I$(top_srcdir)/src -I$(srcdir)/fake_cuda
if SANITIZERS
fake_kernel_sanitizers = -fno-sanitize=address -DFAKE_SANITIZED
endif
EXTRA_DIST += $(fake_cuda_sources) $(fake_cuda_headers) fake_cuda/cuda_fp16.h fake_cuda/grid.c fake_cuda/kernels.cc fake_cuda/nvcc.h
fake_cuda/grid.o: fake_cuda/grid.c fake_cuda/fake_kernel.h
	$(AM_V_CC)$(MKDIR_P) fake_cuda && $(CC) $(MPATH_CFLAGS) $(fake_kernel_flags) -c -o $@ $(srcdir)/fake_cuda/grid.c
# The host's compiler has no fused operations, no "pragma unroll" and no liking for variables of which a loop's first turn is the start.
fake_cuda/kernels.o: fake_cuda/kernels.cc fake_cuda/cuda_fp16.h fake_cuda/fake_kernel.h fake_cuda/nvcc.h $(top_srcdir)/src/device/kernels/*.cu \
		$(top_srcdir)/src/device/kernels/*.cuh $(top_srcdir)/src/device/kernels/*_args.h
	$(AM_V_CC)$(MKDIR_P) fake_cuda && $(CC) $(MPATH_CXXFLAGS) $(fake_kernel_flags) -fno-exceptions -fno-rtti -fno-strict-aliasing \
		-ffp-contract=off -Wno-unknown-pragmas -Wno-maybe-uninitialized -c -o $@ $(srcdir)/fake_cuda/kernels.cc
fake_cuda/libcuda.so.1: $(fake_cuda_sources) $(fake_cuda_headers) $(top_srcdir)/src/device/cuda/cuda_abi.h $(top_srcdir)/src/device/names.h $(fake_kernel_objects)
	$(AM_V_CC)$(MKDIR_P) fake_cuda && $(CC) $(CPPFLAGS) -I$(top_srcdir)/src -I$(srcdir)/fake_cuda $(MPATH_CFLAGS) $(CFLAGS) \
		$(LDFLAGS) -fPIC -fvisibility=hidden -shared -Wl,-z,now,-soname,libcuda.so.1 -o $@ \
		$(fake_cuda_sources:%=$(srcdir)/%) $(fake_kernel_objects) -lpthread
CLEANFILES += $(fake_kernel_objects)
