# SPDX-License-Identifier: BSD-3-Clause
# fuzz_programs += fuzz/NAME; fuzz_NAME_LDFLAGS = $(FUZZER_LDFLAGS); fuzz_NAME_LDADD = $(top_builddir)/src/libmpath.la
fuzz_programs +=
