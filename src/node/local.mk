# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += node/board.c node/board.h node/choose.c node/flagged.c node/flagged.h node/history.c node/history.h \
	node/launches.c node/launches.h node/node.c node/node.h node/node_private.h node/order.c node/order.h node/peer.c \
	node/peer.h node/rates.c node/rates.h node/reduce.c node/reduce.h node/reduce_predict.c \
	node/reduce_predict.h node/reduce_private.h node/staged.c node/staged.h node/streams.c node/streams.h node/window.c node/window.h
EXTRA_DIST += node/README.md
