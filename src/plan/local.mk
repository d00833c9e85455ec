# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += plan/balance.h plan/demand.h plan/fixed.h plan/follow.h plan/internal.h plan/model.h plan/moe.h plan/moves.h \
	plan/plan.h plan/ports.h plan/rails.h plan/time_model.h
libmpath_la_SOURCES += plan/assign.c plan/balance.c plan/bound.c plan/demand.c plan/fixed.c plan/follow.c plan/general.c \
	plan/improve.c plan/keep.c plan/model.c plan/moe.c plan/moves.c plan/plan.c plan/policy.c plan/ports.c plan/ports_balance.c \
	plan/ports_count.c plan/ports_cuts.c plan/ports_emit.c plan/ports_move.c plan/ports_prove.c plan/ports_repair.c plan/ports_rivals.c plan/ports_setup.c \
	plan/ports_shed.c plan/ports_ways.c \
	plan/rails.c plan/rails_balance.c plan/rails_count.c plan/rails_emit.c plan/rails_move.c plan/rails_rivals.c \
	plan/rails_setup.c plan/rails_solve.c plan/rails_split.c plan/time_model.c plan/weights.c
