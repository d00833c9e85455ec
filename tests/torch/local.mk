# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += \
	torch/demand_test.py \
	torch/ranks.py \
	torch/run \
	torch/stacks.py
