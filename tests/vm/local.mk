# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += vm/cases vm/guest vm/init vm/nodes.sh vm/rank_env vm/run
