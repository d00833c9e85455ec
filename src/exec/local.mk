# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += exec/agree.h exec/fabric.c exec/fabric.h exec/idle.h exec/move.h exec/oob.h exec/team.h exec/team_private.h
