# SPDX-License-Identifier: BSD-3-Clause
golden_scripts +=
