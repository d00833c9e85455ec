# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += exec/agree.c exec/agree.h exec/agree_layout.c exec/agree_own.c exec/agree_private.h \
	exec/agree_remote.c exec/agree_wait.c exec/attend.c exec/attend.h exec/channel.c exec/channel.h exec/context.c exec/exchange.c exec/exchange.h \
	exec/fabric.c exec/fabric.h exec/fabric_memory.c exec/fabric_peers.c exec/fabric_private.h exec/fabric_renew.c \
	exec/idle.c exec/idle.h exec/move.h exec/node_key.c exec/node_key.h exec/oob.h exec/rail_times.c exec/rail_times.h \
	exec/team.c exec/team.h exec/team_break.c exec/team_lost.c exec/team_nodes.c exec/team_nodes.h exec/team_private.h \
	exec/team_record.c exec/team_record.h
libmpath_la_SOURCES += exec/move.c exec/move_abandon.c exec/move_chunk.c exec/move_end.c exec/move_inbox.c exec/move_peers.c exec/move_private.h exec/move_retry.c \
	exec/move_setup.c exec/move_wait.c exec/schedule.c exec/schedule.h exec/schedule_sort.c
libmpath_la_SOURCES += exec/wire.c exec/wire.h exec/wire_private.h exec/wire_setup.c
libmpath_la_SOURCES += exec/relay.c exec/relay.h exec/relay_clocks.c exec/relay_clocks.h exec/relay_discover.c exec/relay_feed.c exec/relay_hop.c exec/relay_owners.c exec/relay_owners.h exec/relay_plan.c exec/relay_private.h exec/relay_rail.c \
	exec/relay_pool.c exec/relay_pool.h exec/relay_rail.h exec/relay_retry.c exec/relay_room.c exec/relay_room.h exec/relay_setup.c exec/relay_slots.c exec/relay_wait.c exec/relay_yield.c
libmpath_la_SOURCES += exec/gpu_rates.c exec/gpu_rates.h exec/gpu_rates_measure.c exec/gpu_rates_private.h
