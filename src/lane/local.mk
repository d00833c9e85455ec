# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += lane/lane.h lane/segment.c lane/segment.h lane/shm.c lane/shm.h
EXTRA_DIST += lane/README.md
