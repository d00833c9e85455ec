# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += tune/doubt.c tune/doubt.h tune/function.c tune/function.h tune/history.c tune/history.h tune/history_file.c tune/history_file.h tune/nic_rates.c \
	tune/nic_rates.h tune/passing.c tune/passing.h tune/share.c tune/share.h tune/start.c tune/start.h tune/trial.c tune/trial.h
EXTRA_DIST += tune/README.md
