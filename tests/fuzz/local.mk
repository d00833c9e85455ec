# SPDX-License-Identifier: BSD-3-Clause
# fuzz_programs += fuzz/NAME; fuzz_NAME_LDFLAGS = $(FUZZER_LDFLAGS); fuzz_NAME_LDADD = $(top_builddir)/src/libmpath.la
fuzz_programs +=
fuzz_programs += fuzz/fuzz_topo
fuzz_fuzz_topo_SOURCES = fuzz/fuzz_topo.c
fuzz_fuzz_topo_LDFLAGS = $(FUZZER_LDFLAGS)
fuzz_fuzz_topo_LDADD = $(top_builddir)/src/libmpath.la
EXTRA_DIST += fuzz/corpus/fuzz_topo
fuzz_programs += fuzz/fuzz_matrix
fuzz_fuzz_matrix_SOURCES = fuzz/fuzz_matrix.c
fuzz_fuzz_matrix_LDFLAGS = $(FUZZER_LDFLAGS)
fuzz_fuzz_matrix_LDADD = $(top_builddir)/src/libmpath.la
EXTRA_DIST += fuzz/corpus/fuzz_matrix
fuzz_programs += fuzz/fuzz_probe
fuzz_fuzz_probe_SOURCES = fuzz/fuzz_probe.c
fuzz_fuzz_probe_LDFLAGS = $(FUZZER_LDFLAGS)
fuzz_fuzz_probe_LDADD = $(top_builddir)/src/libmpath.la
EXTRA_DIST += fuzz/corpus/fuzz_probe
fuzz_programs += fuzz/fuzz_store
fuzz_fuzz_store_SOURCES = fuzz/fuzz_store.c
fuzz_fuzz_store_LDFLAGS = $(FUZZER_LDFLAGS)
fuzz_fuzz_store_LDADD = $(top_builddir)/src/libmpath.la
EXTRA_DIST += fuzz/corpus/fuzz_store
