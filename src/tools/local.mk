# SPDX-License-Identifier: BSD-3-Clause
# bin_PROGRAMS += tools/NAME; tools_NAME_SOURCES = ...; tools_NAME_LDADD = $(LDADD) $(JANSSON_LIBS).
# An MPI program goes inside `if HAVE_MPI`, with tools_NAME_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS) and $(OMPI_LIBS).
