/* SPDX-License-Identifier: BSD-3-Clause */
/* See random.h: communicators of all kinds, over some ranks of another one and in another order. */
#include "mpi/random.h"

static MPI_Comm make_subset(const slot_t *parent, sequence_t *sequence, int how, long step)
{
    int members[MAX_RANKS], count = 0, size, rank, begin = (int)sequence_below(sequence, MAX_RANKS);
    MPI_Group all, group;
    MPI_Comm comm = MPI_COMM_NULL;

    MPI_Comm_size(parent->comm, &size);
    MPI_Comm_rank(parent->comm, &rank);
    for (int i = 0; i < size; i++) {
        if (sequence_below(sequence, 4) > 0) {
            members[count++] = (begin + (how % 2 ? i : size - i)) % size;
        }
    }
    MPI_Comm_group(parent->comm, &all);
    MPI_Group_incl(all, count, members, &group);
    MPI_Group_rank(group, &rank);
    if (how < 2) {
        MPI_Comm_create(parent->comm, group, &comm);
    } else if (rank != MPI_UNDEFINED) {
        MPI_Comm_create_group(parent->comm, group, (int)((step + 100) % 1000), &comm);
    }
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    return comm;
}

void random_slot_make(const slot_t *parent, sequence_t *sequence, long step, slot_t *slot)
{
    uint32_t how = sequence_below(sequence, 8), colors = 1 + sequence_below(sequence, 3);
    uint64_t id = random_mix(parent->id, (uint64_t)step), color = 0;
    int rank;

    *slot = (slot_t){MPI_COMM_NULL, id};
    if (parent->comm == MPI_COMM_NULL) {
        return;
    }
    MPI_Comm_rank(parent->comm, &rank);
    if (how < 3) {
        MPI_Comm_dup(parent->comm, &slot->comm);
    } else if (how < 6) {
        int key = (int)(random_mix(id, (uint64_t)rank) % 7) - 3;

        color = random_mix(id, (uint64_t)rank + 100) % colors * 1000 + 7;
        MPI_Comm_split(parent->comm, random_mix(id, (uint64_t)rank + 200) % 8 ? (int)color : MPI_UNDEFINED, key,
                       &slot->comm);
    } else {
        slot->comm = make_subset(parent, sequence, (int)sequence_below(sequence, 4), step);
    }
    slot->id = random_mix(id, color);
}
