# SPDX-License-Identifier: BSD-3-Clause
# A CUDA driver without a GPU: libcuda.so.1 in the build's folder tests/fake_cuda, for LD_LIBRARY_PATH or dlopen.
fake_cuda_sources = fake_cuda/attributes.c fake_cuda/context.c fake_cuda/device.c fake_cuda/eager.c fake_cuda/exchange.c fake_cuda/kernels.c \
	fake_cuda/launch.c fake_cuda/memory.c fake_cuda/reduce.c \
	fake_cuda/stream.c fake_cuda/vmm.c fake_cuda/writes.c
fake_cuda_headers = fake_cuda/fake.h fake_cuda/fake_kernel.h
EXTRA_DIST += $(fake_cuda_sources) $(fake_cuda_headers)
fake_cuda/libcuda.so.1: $(fake_cuda_sources) $(fake_cuda_headers) $(top_srcdir)/src/gpu/cuda_abi.h \
		$(top_srcdir)/src/gpu/kernel_args.h $(top_srcdir)/src/gpu/reduce_args.h \
		$(top_srcdir)/src/gpu/eager_args.h $(top_srcdir)/src/gpu/exchange_args.h \
		$(top_srcdir)/src/gpu/reduce_eager_args.h $(top_srcdir)/src/gpu/reduce_writes_args.h
	$(AM_V_CC)$(MKDIR_P) fake_cuda && $(CC) $(CPPFLAGS) -I$(top_srcdir)/src -I$(srcdir)/fake_cuda $(MPATH_CFLAGS) $(CFLAGS) \
		$(LDFLAGS) -fPIC -fvisibility=hidden -shared -Wl,-soname,libcuda.so.1 -o $@ \
		$(fake_cuda_sources:%=$(srcdir)/%) -lpthread
