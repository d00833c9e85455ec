/* SPDX-License-Identifier: BSD-3-Clause */
/* User-defined operations of the reductions' test; errors. */
#ifndef MPATH_TESTS_MPI_REDUCTION_USER_H
#define MPATH_TESTS_MPI_REDUCTION_USER_H

long reductions_user(void);

#endif
