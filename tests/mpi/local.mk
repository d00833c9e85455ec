# SPDX-License-Identifier: BSD-3-Clause
# Programs for mpi/run; built by `make mpi-programs`.
EXTRA_DIST += mpi/run mpi/lib.sh mpi/selection
if HAVE_MPI
# What most of them share.
EXTRA_LTLIBRARIES = mpi/libcases.la
mpi_libcases_la_SOURCES = mpi/cases.c mpi/cases.h mpi/memory.c mpi/memory.h
mpi_libcases_la_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
CLEANFILES += mpi/libcases.la
mpi_programs += mpi/conformance mpi/small_calls mpi/threads mpi/large mpi/killed
mpi_programs += mpi/reductions mpi/mixed mpi/nonblocking mpi/nonblocking_ends
mpi_nonblocking_ends_SOURCES = mpi/nonblocking_ends.c mpi/nonblocking_ops.c mpi/nonblocking_ops.h mpi/persistent.h
mpi_nonblocking_ends_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_nonblocking_ends_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_nonblocking_SOURCES = mpi/nonblocking.c mpi/nonblocking_life.c mpi/nonblocking_life.h mpi/nonblocking_ops.c mpi/nonblocking_ops.h mpi/persistent.h
mpi_nonblocking_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_nonblocking_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS) -lpthread
mpi_programs += mpi/random
mpi_random_SOURCES = mpi/random.c mpi/random.h mpi/random_call.c mpi/random_comm.c mpi/random_shape.c mpi/random_types.c mpi/random_reduce.c mpi/persistent.h
mpi_random_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_random_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS) -lpthread -lm
mpi_programs += mpi/lifetime
mpi_lifetime_SOURCES = mpi/lifetime.c
mpi_lifetime_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_lifetime_LDADD = mpi/libcases.la $(OMPI_LIBS)
mpi_programs += mpi/soak
mpi_soak_SOURCES = mpi/soak.c mpi/nonblocking_ops.c mpi/nonblocking_ops.h mpi/persistent.h
mpi_soak_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_soak_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/slow_links
mpi_slow_links_SOURCES = mpi/slow_links.c
mpi_slow_links_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_slow_links_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/one_node
mpi_one_node_SOURCES = mpi/one_node.c
mpi_one_node_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_one_node_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/node_memory
mpi_node_memory_SOURCES = mpi/node_memory.c
mpi_node_memory_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_node_memory_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/order
mpi_order_SOURCES = mpi/order.c
mpi_order_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_order_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/reset
mpi_reset_SOURCES = mpi/reset.c
mpi_reset_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_reset_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/owners
mpi_owners_SOURCES = mpi/owners.c
mpi_owners_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_owners_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/eager
mpi_eager_SOURCES = mpi/eager.c
mpi_eager_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_eager_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/inter
mpi_inter_SOURCES = mpi/inter.c
mpi_inter_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_inter_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/several
mpi_several_SOURCES = mpi/several.c
mpi_several_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_several_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/alltoallw
mpi_alltoallw_SOURCES = mpi/alltoallw.c
mpi_alltoallw_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_alltoallw_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/split
mpi_split_SOURCES = mpi/split.c
mpi_split_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_split_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/absent
mpi_absent_SOURCES = mpi/absent.c
mpi_absent_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_absent_LDADD = $(OMPI_LIBS)
mpi_programs += mpi/running
mpi_running_SOURCES = mpi/running.c
mpi_running_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_running_LDADD = $(OMPI_LIBS)
mpi_programs += mpi/no_memory
mpi_no_memory_SOURCES = mpi/no_memory.c
mpi_no_memory_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_no_memory_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_reductions_SOURCES = mpi/reductions.c mpi/reduction_checks.c mpi/reduction_checks.h mpi/reduction_types.c mpi/reduction_types.h mpi/reduction_user.c mpi/reduction_user.h \
	mpi/reduction_large.c mpi/reduction_large.h mpi/device_calls.c mpi/device_calls.h
mpi_reductions_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_reductions_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS) -lm
mpi_mixed_SOURCES = mpi/mixed.c
mpi_mixed_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_mixed_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_conformance_SOURCES = mpi/conformance.c
mpi_conformance_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_conformance_LDADD = mpi/libcases.la $(OMPI_LIBS)
mpi_small_calls_SOURCES = mpi/small_calls.c
mpi_small_calls_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_small_calls_LDADD = mpi/libcases.la $(OMPI_LIBS)
mpi_threads_SOURCES = mpi/threads.c
mpi_threads_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_threads_LDADD = mpi/libcases.la $(OMPI_LIBS) -lpthread
mpi_large_SOURCES = mpi/large.c
mpi_large_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_large_LDADD = mpi/libcases.la $(OMPI_LIBS)
mpi_programs += mpi/seen
mpi_seen_SOURCES = mpi/seen.c
mpi_seen_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_seen_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_programs += mpi/first_dead
mpi_first_dead_SOURCES = mpi/first_dead.c
mpi_first_dead_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_first_dead_LDADD = mpi/libcases.la $(OMPI_LIBS) $(DL_LIBS)
mpi_killed_SOURCES = mpi/killed.c
mpi_killed_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS)
mpi_killed_LDADD = mpi/libcases.la $(OMPI_LIBS)
endif
# The example on the host, with mpi/moe_gpu.c in the place of a GPU. Not a program of automake's: its objects would lie where
# `make examples` looks whether it was configured in place.
EXTRA_DIST += mpi/moe_gpu.c
moe_folder = $(top_srcdir)/examples/moe_layer
moe_sources = $(moe_folder)/moe_layer.c $(moe_folder)/layer.c $(moe_folder)/exchange.c
if HAVE_MOE_LAYER
moe_program = mpi/moe_layer
mpi/moe_layer: $(srcdir)/mpi/moe_gpu.c $(moe_sources) $(moe_folder)/moe.h
	@$(MKDIR_P) mpi
	$(AM_V_CCLD)$(MPICC) -std=gnu11 -Wall -Wextra -Werror $(CFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"' -isystem $(CUDA_DIR)/include -o $@ $(srcdir)/mpi/moe_gpu.c \
		$(moe_sources) -lm -ldl
CLEANFILES += mpi/moe_layer
endif
