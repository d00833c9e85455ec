/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench, and tests: looks performance variables of the MPI tool interface up by name. */
#ifndef MPATH_TOOLS_BENCH_PVAR_H
#define MPATH_TOOLS_BENCH_PVAR_H

#include <mpi.h>

#include <string.h>

/* -1: there is none. Open MPI offers no look-up by name and class that all its releases answer, so the list is read. */
static inline int mpath_pvar_find(const char *wanted)
{
    char name[256], text[512];
    int count = 0, index, name_length, text_length, verbosity, class, bind, readonly, continuous, atomic;
    MPI_Datatype datatype;
    MPI_T_enum enumtype;

    MPI_T_pvar_get_num(&count);
    for (index = 0; index < count; index++) {
        name_length = sizeof(name);
        text_length = sizeof(text);
        if (MPI_T_pvar_get_info(index, name, &name_length, &verbosity, &class, &datatype, &enumtype, text, &text_length,
                                &bind, &readonly, &continuous, &atomic) == MPI_SUCCESS &&
            strcmp(name, wanted) == 0) {
            return index;
        }
    }
    return -1;
}

#endif
