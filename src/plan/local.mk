# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += plan/block.c plan/block.h plan/cache.c plan/cache.h plan/demand.c plan/demand.h plan/fixed.c plan/fixed.h plan/follow.c plan/follow.h \
	plan/gate.c plan/gate.h plan/internal.h plan/keep.c plan/matrix.c plan/matrix.h plan/pairs.c plan/pairs.h plan/pairs_block.c plan/pairs_part.c plan/pairs_price.c plan/pairs_private.h plan/pairs_whole.c plan/plan.c plan/plan.h plan/policy.c plan/prices.c plan/prices.h plan/spine.c plan/spine.h plan/time_model.c \
	plan/time_model.h plan/workload.c plan/workload.h plan/construct/construct.c plan/construct/construct.h plan/construct/moves.c \
	plan/construct/moves.h plan/construct/repair.c plan/construct/setup.c \
	plan/construct/shed.c \
	plan/search/model.c plan/search/model.h plan/search/search.c plan/search/weights.c
EXTRA_DIST += plan/README.md
