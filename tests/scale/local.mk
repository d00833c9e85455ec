# SPDX-License-Identifier: BSD-3-Clause
# The runtime at scale in one process, and what it may cost there. Only the network and the operating system are replaced.
golden_programs += scale/ranks
scale_ranks_SOURCES = scale/ranks.c scale/control.c scale/memory.c scale/rails.c scale/scale.h unit/fake_device.c unit/fake_device.h
scale_ranks_LDFLAGS = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc -Wl,--wrap=free \
	-Wl,--wrap=clock_gettime -Wl,--wrap=posix_fallocate -Wl,--wrap=statvfs -Wl,--wrap=fstatvfs \
	-Wl,--wrap=mpath_reserve -Wl,--wrap=mpath_unreserve
scale_ranks_LDADD = $(top_builddir)/src/libmpath.la
golden_scripts += scale/growth
EXTRA_DIST += scale/growth
