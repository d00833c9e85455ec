/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent collectives under their name in each MPI: Open MPI has them since 5.0; 4.1 has them as an extension. */
#ifndef MPATH_TESTS_MPI_PERSISTENT_H
#define MPATH_TESTS_MPI_PERSISTENT_H

#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION) && (OMPI_MAJOR_VERSION < 5)
#include <mpi-ext.h>
#endif

#if (MPI_VERSION >= 4) || (defined(OMPI_MAJOR_VERSION) && (OMPI_MAJOR_VERSION >= 5))
#define OPS_PERSISTENT 1
#define OPS_INIT(_name) MPI_##_name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define OPS_PERSISTENT 1
#define OPS_INIT(_name) MPIX_##_name##_init
#else
#define OPS_PERSISTENT 0
#endif

#endif
