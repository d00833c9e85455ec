# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += rail/fabric.c rail/fabric.h rail/fabric_private.h rail/gpu_memory.c rail/gpu_memory.h rail/peer.c rail/rail.c \
	rail/rail.h rail/rail_private.h rail/socket.c rail/wire_format.c rail/wire_format.h
EXTRA_DIST += rail/README.md
