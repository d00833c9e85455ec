# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += \
	cluster/alternate.c \
	cluster/bind_rail.c \
	cluster/cases.sh \
	cluster/cluster \
	cluster/failures \
	cluster/figures \
	cluster/follow.c \
	cluster/helper \
	cluster/in_root \
	cluster/mechanisms \
	cluster/mpath_test \
	cluster/mpirun \
	cluster/nodes.c \
	cluster/prio \
	cluster/pump.c \
	cluster/rank_env \
	cluster/reduction_survivor.c \
	cluster/reductions_figures \
	cluster/self_test \
	cluster/survivor.c \
	cluster/survivor_cuda.h \
	cluster/ucx_exchange.c \
	cluster/ucx_figures \
	cluster/ucx_late.c \
	cluster/ucx_lossy.c \
	cluster/ucx_open_next.h \
	cluster/ucx_pair.c \
	cluster/ucx_relay.c \
	cluster/ucx_relays.sh \
	cluster/ucx_release \
	cluster/ucx_test \
	cluster/ucx_uct.c
