# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += topo/machine.h topo/topo.h topo/xml.h
