# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += node/beside_host.c node/board.c node/board.h node/choose.c node/copy.c node/flagged.c node/flagged.h \
	node/flagged_reduce.c node/help.c node/kept.c node/kept.h node/launches.c node/launches.h node/node.c node/node.h node/node_private.h node/open.c \
	node/order.c node/order.h node/peer.c node/peer.h node/rates.c node/rates.h node/rates_private.h node/reduce.c \
	node/reduce.h node/reduce_predict.c node/reduce_predict.h node/reduce_private.h node/scratch.c node/scratch.h \
	node/staged.c node/staged.h node/staged_private.h node/staged_slots.c node/staged_streams.c node/streams.c
EXTRA_DIST += node/README.md
