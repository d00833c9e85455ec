# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += exec/agree.h exec/fabric.c exec/fabric.h exec/idle.h exec/move.h exec/oob.h exec/team.h exec/team_private.h
libmpath_la_SOURCES += exec/move.c exec/move_abandon.c exec/move_chunk.c exec/move_inbox.c exec/move_private.h \
	exec/move_setup.c exec/move_wait.c exec/schedule.c exec/schedule.h
