# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += \
	tests/cluster/bind_rail.c \
	tests/cluster/cases.sh \
	tests/cluster/cluster \
	tests/cluster/helper \
	tests/cluster/mpirun \
	tests/cluster/nodes.c \
	tests/cluster/prio \
	tests/cluster/pump.c \
	tests/cluster/rank_env \
	tests/cluster/self_test
