# SPDX-License-Identifier: BSD-3-Clause
# The CUDA driver is found at run time: no CUDA header or library is needed. nvcc compiles the kernels where it is there.
libmpath_la_SOURCES += device/cleanup.c device/device.c device/device.h device/gpu.c device/gpu.h device/gpu_private.h device/graph.c \
	device/graph.h device/ipc_export.c device/ipc_export.h device/ipc_import.c device/ipc_import.h device/memory.c \
	device/memory.h device/names.h device/pinned.c device/pinned.h device/stream.c device/stream.h device/usage.c \
	device/usage.h device/cuda/cuda.c device/cuda/cuda_abi.h device/cuda/driver.c device/cuda/driver.h \
	device/kernels/copy.c device/kernels/copy.h device/kernels/eager_args.h \
	device/kernels/exchange.c device/kernels/exchange.h device/kernels/exchange_args.h device/kernels/fatbin.h \
	device/kernels/kernel_args.h device/kernels/reduce.c device/kernels/reduce.h device/kernels/reduce_args.h \
	device/kernels/reduce_eager_args.h device/kernels/reduce_writes_args.h
device_kernel_sources = device/kernels/kernels.cu device/kernels/access.cuh device/kernels/eager.cuh device/kernels/exchange.cuh \
	device/kernels/kernels_common.cuh device/kernels/reduce.cuh device/kernels/reduce_eager.cuh \
	device/kernels/reduce_eager_parts.cuh device/kernels/reduce_writes.cuh
EXTRA_DIST += $(device_kernel_sources)
if HAVE_NVCC
nodist_libmpath_la_SOURCES += device/kernels/image.c
EXTRA_DIST += device/kernels/fatbin.c
device/kernels/image.c: $(device_kernel_sources) \
		device/kernels/eager_args.h device/kernels/exchange_args.h device/kernels/kernel_args.h device/kernels/reduce_args.h device/kernels/reduce_eager_args.h device/kernels/reduce_writes_args.h
	$(AM_V_GEN)$(MKDIR_P) device/kernels && $(NVCC) $(NVCCFLAGS) -I$(srcdir) -Xfatbin=-compress-all -fatbin \
		-o device/kernels/kernels.fatbin $(srcdir)/device/kernels/kernels.cu && \
		echo '#include "device/kernels/fatbin.c"' >$@
CLEANFILES += device/kernels/image.c device/kernels/kernels.fatbin
else
libmpath_la_SOURCES += device/kernels/fatbin.c
endif
EXTRA_DIST += device/README.md
