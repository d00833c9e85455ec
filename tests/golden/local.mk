# SPDX-License-Identifier: BSD-3-Clause
golden_scripts += golden/run golden/compilers
EXTRA_DIST += golden/run golden/compilers golden/cases golden/expected
