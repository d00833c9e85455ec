/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of nonblocking.c about the life of requests, types, operations and communicators; numbers of errors. */
#ifndef MPATH_TESTS_MPI_NONBLOCKING_LIFE_H
#define MPATH_TESTS_MPI_NONBLOCKING_LIFE_H

/* Of the process in MPI_COMM_WORLD. */
extern int world_rank, world_size;

long case_freed(void);
long case_freed_types(void);
long case_numbers(void);
long case_no_send_type(void);
long case_self(void);
long case_communicators(void);
long case_persistent(void);
long case_persistent_freed(void);

#endif
