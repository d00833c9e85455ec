# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += plan/demand.h plan/plan.h
