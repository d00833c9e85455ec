# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += coll/alltoallv.h
