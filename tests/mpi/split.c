/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several GPUs in a process: what a rank sends lies on one and what it receives on the next, and both on others in every
 * call, with long and short messages in all of the usual shapes.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <stdio.h>
#include <string.h>

#define RANKS_MAX 16
#define LONG_BYTES 1500001

static int rank, size, units[RANKS_MAX * RANKS_MAX];

static long run(int in_place, uint32_t round)
{
    exchange_t exchange;

    exchange_init(&exchange, MPI_COMM_WORLD, units);
    exchange.send_placement    = (round % 2 == 0) ? PLACE_ASCENDING : PLACE_DESCENDING;
    exchange.receive_placement = (round % 2 == 0) ? PLACE_SHUFFLED : PLACE_ASCENDING;
    exchange.in_place          = in_place;
    exchange.round             = round;
    return exchange_run(&exchange);
}

static int equal(int source, int destination)
{
    return LONG_BYTES + (source + destination) % 7;
}

/* All send to rank 0, which sends nothing. */
static int hot(int source, int destination)
{
    return (source == 0) ? 0 : (destination == 0) ? 2 * LONG_BYTES : 333;
}

static int pair(int source, int destination)
{
    return (source == 0 && destination == size - 1) ? 4 * LONG_BYTES : 0;
}

static int mixed(int source, int destination)
{
    return ((source * 5 + destination * 3) % 4) * ((source + destination) % 3 == 0 ? LONG_BYTES : 70);
}

static void run_case(const char *name, int (*bytes)(int source, int destination), int in_place)
{
    long errors = 0;

    for (int source = 0; source < size; source++) {
        for (int destination = 0; destination < size; destination++) {
            units[source * size + destination] = bytes(source, destination);
        }
    }
    for (uint32_t round = 0; round < 3; round++) {
        errors += run(in_place, round);
    }
    case_end(name, errors);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > RANKS_MAX || !memory_split()) {
        if (rank == 0) {
            printf("case skip split: there are too many ranks, or there is one GPU only\n");
        }
    } else {
        run_case("equal", equal, 0);
        run_case("hot", hot, 0);
        run_case("pair", pair, 0);
        run_case("mixed", mixed, 0);
        run_case("in_place", equal, 1);
    }
    cases_print_calls();
    MPI_Finalize();
    return cases_failed() > 0;
}
