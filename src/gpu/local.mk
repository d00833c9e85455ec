# SPDX-License-Identifier: BSD-3-Clause
# The CUDA driver is found at run time: no CUDA header or library is needed. nvcc compiles the kernels where it is there.
libmpath_la_SOURCES += gpu/cuda_abi.h gpu/device.c gpu/device.h gpu/direct.c gpu/direct.h gpu/driver.c gpu/drain.c gpu/drain.h gpu/driver.h gpu/eager_args.h gpu/exchange.c \
	gpu/exchange.h gpu/exchange_args.h gpu/export.c gpu/export.h gpu/export_pieces.c gpu/export_pieces.h gpu/fatbin.h gpu/import.c gpu/import.h gpu/import_open.c gpu/import_open.h gpu/import_pieces.c gpu/kernel_args.h \
	gpu/launch.c gpu/launch.h gpu/memory.c gpu/memory.h gpu/pinned.c gpu/pinned.h gpu/pinned_blocks.c gpu/private.h \
	gpu/reduce.c gpu/reduce.h gpu/reduce_args.h gpu/reduce_eager.c gpu/reduce_eager.h gpu/reduce_eager_args.h gpu/reduce_writes.c \
	gpu/reduce_writes.h gpu/reduce_writes_args.h gpu/repeat.c gpu/repeat.h gpu/slow.c gpu/slow.h gpu/stream.c gpu/stream.h gpu/turns.c gpu/turns.h \
	gpu/usage.c gpu/usage.h
gpu_kernel_sources = gpu/kernels.cu gpu/kernels_common.cuh gpu/eager.cuh gpu/exchange.cuh gpu/reduce.cuh gpu/reduce_eager.cuh gpu/reduce_eager_parts.cuh gpu/reduce_writes.cuh
EXTRA_DIST += $(gpu_kernel_sources)
if HAVE_NVCC
nodist_libmpath_la_SOURCES += gpu/image.c
EXTRA_DIST += gpu/fatbin.c
gpu/image.c: $(gpu_kernel_sources) gpu/kernel_args.h gpu/eager_args.h gpu/exchange_args.h gpu/reduce_args.h gpu/reduce_eager_args.h gpu/reduce_writes_args.h
	$(AM_V_GEN)$(MKDIR_P) gpu && $(NVCC) $(NVCCFLAGS) -I$(srcdir) -Xfatbin=-compress-all -fatbin -o gpu/kernels.fatbin $(srcdir)/gpu/kernels.cu && \
		echo '#include "gpu/fatbin.c"' >$@
CLEANFILES += gpu/image.c gpu/kernels.fatbin
else
libmpath_la_SOURCES += gpu/fatbin.c
endif
