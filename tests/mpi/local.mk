# SPDX-License-Identifier: BSD-3-Clause
# Inside if HAVE_MPI: mpi_programs += mpi/NAME; mpi_NAME_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS);
# mpi_NAME_LDADD = $(OMPI_LIBS)
mpi_programs +=
