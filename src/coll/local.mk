# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += coll/alltoallv.c coll/alltoallv.h coll/gate.c coll/gate.h coll/plan_cache.c coll/plan_cache.h
libmpath_la_SOURCES += coll/alltoallv_order.c coll/alltoallv_order.h
