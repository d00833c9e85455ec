# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += lane/lane.h lane/process.c lane/process.h lane/rail.h lane/segment.c lane/segment.h \
	lane/shm.c lane/shm.h
