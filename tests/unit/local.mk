# SPDX-License-Identifier: BSD-3-Clause
unit_programs +=
unit_programs += unit/test_topo
unit_test_topo_SOURCES = unit/test_topo.c unit/capture.h
