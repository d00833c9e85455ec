# SPDX-License-Identifier: BSD-3-Clause
# Of libmpath only the NICs, the planner and the file of rates: the transport may not drag in UCP, which is above it. UCX's own
# headers are not held to warnings about parts of structures that are left zero, nor its empty functions to those about their casts.
pkglib_LTLIBRARIES += libuct_mpath.la libmpath_ucx.la
libuct_mpath_la_SOURCES = compat.h control.c counters.c counters.h ep.h iface.c iface.h iface_shares.c lanes.c md.c md.h peer.c peer.h protocol.c \
	relay.c relay.h rma.c rma.h route.c send.c wire.h \
	../src/topo/beside.c ../src/topo/discover/machine.c ../src/topo/discover/rates.c ../src/topo/discover/sysfs.c ../src/topo/names.c \
	../src/tune/history_file.c ../src/topo/paths.c ../src/topo/topo.c \
	../src/util/cache.c ../src/util/file.c ../src/util/log.c ../src/util/number.c ../src/util/param.c ../src/util/param_table.c ../src/util/reserve.c ../src/util/secret.c ../src/util/spelling.c ../src/util/status.c
if HAVE_VERBS
libuct_mpath_la_SOURCES += ../src/topo/discover/verbs.c
else
libuct_mpath_la_SOURCES += ../src/topo/discover/noverbs.c
endif
libuct_mpath_la_CPPFLAGS = $(AM_CPPFLAGS) $(UCX_SOURCE_CPPFLAGS) $(HWLOC_CPPFLAGS) $(VERBS_CPPFLAGS)
libuct_mpath_la_CFLAGS = $(AM_CFLAGS) -Wno-missing-field-initializers -Wno-cast-function-type
libuct_mpath_la_LDFLAGS = -module -version-info 0:0:0 -shared -Wl,-z,nodelete $(MPATH_NO_UNDEFINED)
libuct_mpath_la_LIBADD = libmpath_spread.la $(planner_objects) $(UCX_TL_LIBS) $(HWLOC_LIBS) $(VERBS_LIBS)

# The planner is all of its room, so its own list is read.
planner_sources = $(filter plan/%.c,$(shell cat $(top_srcdir)/src/plan/local.mk))
planner_objects = $(planner_sources:plan/%.c=planner/%.lo)
libuct_mpath_la_DEPENDENCIES = libmpath_spread.la $(planner_objects)
planner/%.lo: $(top_srcdir)/src/plan/%.c $(wildcard $(top_srcdir)/src/plan/*.h $(top_srcdir)/src/plan/*/*.h $(top_srcdir)/src/topo/*.h)
	@$(MKDIR_P) $(@D)
	$(AM_V_CC)$(LTCOMPILE) -c -o $@ $<

libmpath_ucx_la_SOURCES = load.c load.h loader.c
libmpath_ucx_la_LDFLAGS = -module -avoid-version -shared

# Lies in Open MPI's folder of components, where MPI_Init finds it.
if HAVE_OMPI
mcacomponent_LTLIBRARIES = mca_hook_mpath.la
mca_hook_mpath_la_SOURCES = hook.c load.c load.h
mca_hook_mpath_la_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_DEV_CPPFLAGS) \
	-DMPATH_UCX_TRANSPORT_PATH='"$(pkglibdir)/" MPATH_UCX_TRANSPORT'
mca_hook_mpath_la_LDFLAGS = -module -avoid-version -shared -export-symbols-regex '^mca_hook_mpath_component$$' \
	$(MPATH_NO_UNDEFINED)
mca_hook_mpath_la_LIBADD = $(OMPI_DEV_LIBS)
endif
