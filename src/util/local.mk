# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += util/log.c util/log.h util/param.h util/status.c util/status.h util/time.h
