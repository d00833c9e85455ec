/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: the machines of the job, the analytic bound of a matrix on their rails, and the bytes that each rail
 * carried.
 */
#include "tools/bench/bench.h"

#include "plan/plan.h"
#include "topo/discover/machine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Identity of the running kernel: ranks that share it share one monotonic clock, also from separate namespaces. */
static void read_boot_id(char *text, size_t size)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    memset(text, 0, size);
    if (file == NULL || fgets(text, (int)size, file) == NULL) {
        snprintf(text, size, "unknown");
    }
    if (file != NULL) {
        fclose(file);
    }
}

static int same_clock(void)
{
    char mine[64], first[64];
    int same, all;

    read_boot_id(mine, sizeof(mine));
    memcpy(first, mine, sizeof(first));
    MPI_Bcast(first, sizeof(first), MPI_CHAR, 0, MPI_COMM_WORLD);
    same = strcmp(mine, "unknown") != 0 && memcmp(mine, first, sizeof(mine)) == 0;
    MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

static void discover(const bench_options_t *options, mpath_machine_t *machine)
{
    char rails[1024], rates[1024];

    bench_cvar_string("coll_mpath_rails", rails, sizeof(rails));
    bench_cvar_string("coll_mpath_rail_rates", rates, sizeof(rates));
    if (mpath_machine_discover(options->rails ? options->rails : rails, options->rates ? options->rates : rates,
                               machine) != MPATH_OK) {
        memset(machine, 0, sizeof(*machine));
        gethostname(machine->host, sizeof(machine->host) - 1);
        machine->num_numa        = 1;
        machine->host_memory_bps = 1000000000;
    }
}

int bench_rails_bound(const bench_rails_t *rails, int size, const uint64_t *demand, uint64_t *bound_ns_p)
{
    const mpath_topo_params_t params = {.access = MPATH_REACH_ALL};
    mpath_topo_t *topo;

    *bound_ns_p = 0;
    if (rails->num_nodes < 2) {
        return 0;
    }
    if (mpath_topo_create(rails->machines, rails->num_nodes, rails->places, size, &params, &topo) != MPATH_OK) {
        return -1;
    }
    *bound_ns_p = mpath_plan_all_rails_bound_ns(topo, demand);
    mpath_topo_destroy(topo);
    return 0;
}

int bench_rails_create(const bench_options_t *options, bench_rails_t *rails)
{
    int rank, size;
    mpath_machine_t machine;

    memset(rails, 0, sizeof(*rails));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &rails->node_comm);
    MPI_Comm_rank(rails->node_comm, &rails->node_rank);
    MPI_Comm_split(MPI_COMM_WORLD, rails->node_rank == 0 ? 0 : MPI_UNDEFINED, rank, &rails->leaders);
    if (rails->leaders != MPI_COMM_NULL) {
        MPI_Comm_rank(rails->leaders, &rails->node);
        MPI_Comm_size(rails->leaders, &rails->num_nodes);
    }
    MPI_Bcast(&rails->node, 1, MPI_INT, 0, rails->node_comm);
    MPI_Bcast(&rails->num_nodes, 1, MPI_INT, 0, rails->node_comm);
    rails->one_clock = same_clock();
    rails->machines  = calloc((size_t)rails->num_nodes, sizeof(*rails->machines));
    rails->places    = calloc((size_t)size, sizeof(*rails->places));
    if (rails->machines == NULL || rails->places == NULL) {
        fprintf(stderr, "mpath_bench: rank %d: out of memory\n", rank);
        return -1;
    }
    if (rails->leaders != MPI_COMM_NULL) {
        discover(options, &machine);
        MPI_Allgather(&machine, sizeof(machine), MPI_BYTE, rails->machines, sizeof(machine), MPI_BYTE, rails->leaders);
    }
    MPI_Bcast(rails->machines, rails->num_nodes * (int)sizeof(machine), MPI_BYTE, 0, rails->node_comm);
    rails->places[rank].node = rails->node;
    rails->places[rank].nic  = rails->machines[rails->node].num_nics > 0
                                   ? rails->node_rank % rails->machines[rails->node].num_nics
                                   : -1;
    rails->places[rank].gpu  = -1;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, rails->places, sizeof(*rails->places), MPI_BYTE, MPI_COMM_WORLD);
    return 0;
}

void bench_rails_destroy(bench_rails_t *rails)
{
    if (rails->leaders != MPI_COMM_NULL) {
        MPI_Comm_free(&rails->leaders);
    }
    MPI_Comm_free(&rails->node_comm);
    free(rails->machines);
    free(rails->places);
    memset(rails, 0, sizeof(*rails));
}

static uint64_t read_counter(const char *nic, const char *which)
{
    char path[256];
    unsigned long long value = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/%s", nic, which);
    file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    if (fscanf(file, "%llu", &value) != 1) {
        value = 0;
    }
    fclose(file);
    return value;
}

void bench_rails_read(const bench_rails_t *rails, uint64_t *tx, uint64_t *rx)
{
    const mpath_machine_t *machine = &rails->machines[rails->node];
    int nic;

    memset(tx, 0, MPATH_MAX_NICS * sizeof(*tx));
    memset(rx, 0, MPATH_MAX_NICS * sizeof(*rx));
    for (nic = 0; nic < machine->num_nics; nic++) {
        tx[nic] = read_counter(machine->nics[nic].name, "tx_bytes");
        rx[nic] = read_counter(machine->nics[nic].name, "rx_bytes");
    }
}
