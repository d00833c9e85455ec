# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += lane/lane.h lane/rail.c lane/rail.h lane/rail_gpu.c lane/rail_gpu.h lane/rail_memory.c lane/rail_memory.h \
	lane/rail_peer.c lane/rail_private.h lane/rail_transfer.c lane/rail_trial.c lane/rail_ucx.c lane/segment.c lane/segment.h \
	lane/shm.c lane/shm.h
libmpath_la_SOURCES += lane/pace.c lane/pace.h lane/peer.c lane/peer.h lane/peer_again.c lane/peer_again.h lane/staged.c lane/staged.h \
	lane/staged_hosts.c lane/staged_private.h lane/staged_streams.c
