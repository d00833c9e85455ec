# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += vm/cases vm/guest vm/init vm/jobs.sh vm/nodes.sh vm/one_sided.c vm/rank_env vm/run
