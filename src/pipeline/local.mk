# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += pipeline/arena.c pipeline/arena.h pipeline/cut.c pipeline/gpu.c pipeline/gpu.h pipeline/gpu_memory.c pipeline/lines.c pipeline/link.c pipeline/pipeline.c \
	pipeline/pipeline.h pipeline/pipeline_private.h pipeline/setup.c pipeline/steps.c
EXTRA_DIST += pipeline/README.md
