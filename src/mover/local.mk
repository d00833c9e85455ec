# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += mover/clock.c mover/clock.h mover/mover.c mover/mover.h mover/pace.c mover/pace.h mover/relay.c \
	mover/relay.h mover/relay_hop.c mover/relay_owners.c mover/relay_owners.h mover/relay_private.h mover/relay_segment.c \
	mover/relay_segment.h mover/relay_setup.c mover/schedule.c mover/schedule.h
EXTRA_DIST += mover/README.md
