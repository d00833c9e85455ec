# SPDX-License-Identifier: BSD-3-Clause
golden_scripts += golden/run
EXTRA_DIST += golden/run golden/cases golden/expected
