# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += record/names.c record/names.h record/page.c record/page.h record/reason.c record/reason.h \
	record/record.c record/record.h record/summary.c record/summary.h record/trace.c record/trace.h
EXTRA_DIST += record/README.md
