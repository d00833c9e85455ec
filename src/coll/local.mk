# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += coll/algorithm.c coll/algorithm.h coll/alltoallv.c coll/alltoallv.h coll/alltoallv_private.h coll/alltoallv_relay.c coll/alltoallv_relay.h \
	coll/entry.c coll/entry.h \
	coll/dump.c coll/dump.h coll/learn.c coll/parts.c coll/parts.h coll/plans.c coll/plans.h coll/reduction.c coll/reduction.h coll/reduction_private.h coll/staging.c coll/staging.h coll/tuning.c coll/tuning.h
EXTRA_DIST += coll/README.md
