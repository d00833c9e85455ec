# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += lane/lane.h lane/rail.h lane/segment.h lane/shm.h
