# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += team/agree.c team/agree.h team/agree_nodes.c team/agree_private.h team/agree_remote.c team/agree_wait.c team/attend.c team/attend.h team/call.h team/channel.h \
	team/context.c team/exchange.c team/exchange.h team/lost.c team/lost.h team/outbox.c team/outbox.h team/setup.c team/team.c team/team.h \
	team/team_private.h team/wait.c team/wait.h
EXTRA_DIST += team/README.md
