# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += tune/choice.c tune/choice.h tune/doubt.c tune/doubt.h tune/history.c tune/history.h tune/nic_rates.c \
	tune/nic_rates.h tune/share.c tune/share.h tune/start.c tune/start.h tune/way_choice.c tune/way_choice.h
EXTRA_DIST += tune/README.md
