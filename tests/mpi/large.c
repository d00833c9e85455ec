/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More than 2 GiB in one call: counts stay below 2^31, but offsets in bytes and sums do not. One large element type
 * keeps counts and displacements small. Rank 0 receives 1.1 GiB from each of two others. Needs about 6 GiB of memory.
 */
#include "mpi/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ELEMENT_BYTES 4096
#define ELEMENTS 288000 /* 1.1 GiB */

static uint64_t word_at(int source, uint64_t index)
{
    return ((uint64_t)(unsigned)source + index * 4) * 0x9e3779b97f4a7c15ull;
}

int main(int argc, char **argv)
{
    uint64_t words = (uint64_t)ELEMENTS * ELEMENT_BYTES / 8, i, *send = NULL, *receive = NULL;
    int rank, size, counts[2][16] = {{0}}, offsets[2][16] = {{0}}, source;
    MPI_Datatype element;
    long errors = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 3 || size > 16) {
        fprintf(stderr, "large: needs 3 to 16 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if ((double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) < 8e9) {
        if (rank == 0) {
            printf("case skip large: less than 8 GB of memory are free\n");
        }
        MPI_Finalize();
        return 0;
    }
    MPI_Type_contiguous(ELEMENT_BYTES, MPI_BYTE, &element);
    MPI_Type_commit(&element);
    if (rank == 1 || rank == 2) {
        counts[0][0] = ELEMENTS;
        send         = malloc(words * 8);
        for (i = 0; send != NULL && i < words; i++) {
            send[i] = word_at(rank, i);
        }
    }
    if (rank == 0) {
        counts[1][1]  = ELEMENTS;
        counts[1][2]  = ELEMENTS;
        offsets[1][2] = ELEMENTS;
        receive       = calloc(words, 16);
    }
    if ((rank == 0 && receive == NULL) || ((rank == 1 || rank == 2) && send == NULL)) {
        fprintf(stderr, "large: rank %d: out of memory\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    errors += MPI_Alltoallv(send, counts[0], offsets[0], element, receive, counts[1], offsets[1], element,
                            MPI_COMM_WORLD) != MPI_SUCCESS;
    for (source = 1; rank == 0 && source <= 2; source++) {
        for (i = 0; i < words; i++) {
            errors += receive[(uint64_t)(source - 1) * words + i] != word_at(source, i);
        }
    }
    case_end("large", errors);
    cases_print_calls();
    free(send);
    free(receive);
    MPI_Type_free(&element);
    MPI_Finalize();
    return cases_failed() != 0;
}
