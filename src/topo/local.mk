# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += topo/machine.h topo/names.c topo/paths.c topo/topo.c topo/topo.h topo/topo_internal.h topo/xml.h
