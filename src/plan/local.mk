# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += plan/demand.h plan/fixed.h plan/internal.h plan/model.h plan/plan.h
libmpath_la_SOURCES += plan/assign.c plan/bound.c plan/demand.c plan/fixed.c plan/general.c plan/improve.c plan/model.c \
	plan/plan.c plan/policy.c plan/weights.c
