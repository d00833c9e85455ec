/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank on a node of GPUs, and its calls. */
#include "gpu_nodes.h"

#include <stdlib.h>
#include <string.h>

#define DEVICES 8

const mpath_reduce_how_t sums = {MPATH_REDUCE_SUM, MPATH_REDUCE_F64};

void side_alloc(side_t *side, int device, mpath_memory_kind_t kind, int blocks)
{
    uint64_t bytes = (4 * MOST + 64) * sizeof(double);

    gpu_memory_alloc(kind, device, bytes, blocks, &side->gpu);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)side->gpu.address, bytes, &side->memory) == MPATH_OK);
    side->host = zeroed(bytes);
}

void side_free(side_t *side)
{
    gpu_memory_free(&side->gpu);
    free(side->host);
}

void own_alloc(own_t *own, mpath_memory_kind_t kind)
{
    side_alloc(&own->send, own->self->rank % DEVICES, kind, 1);
    side_alloc(&own->recv, own->self->rank % DEVICES, kind, 1);
}

void own_free(own_t *own)
{
    side_free(&own->send);
    side_free(&own->recv);
}

void own_init(own_t *own, ranks_self_t *self, const job_t *job)
{
    setenv("FAKE_CUDA_DEVICES", "8", 1);
    gpu_application_starts();
    memset(own, 0, sizeof(*own));
    own->self = self;
    member_init(&own->member, self, job);
    own_alloc(own, MPATH_MEMORY_DEVICE);
}

void own_end(own_t *own)
{
    ranks_barrier(own->self);
    member_end(&own->member);
    own_free(own);
    mpath_gpu_cleanup();
}

static void store(const side_t *side, uint64_t bytes)
{
    gpu_memory_write(side->gpu.address, side->host, bytes);
}

static void load(const side_t *side, uint64_t bytes)
{
    gpu_memory_read(side->gpu.address, side->host, bytes);
}

mpath_symmetric_buffers_t buffers_of(const own_t *own, int in_place, uint64_t skip)
{
    const side_t *send = in_place ? &own->recv : &own->send;

    return (mpath_symmetric_buffers_t){.send        = (void *)(uintptr_t)(send->gpu.address + skip),
                                       .recv        = (void *)(uintptr_t)(own->recv.gpu.address + skip),
                                       .send_memory = &send->memory,
                                       .recv_memory = &own->recv.memory};
}

uint64_t gpu_calls(const own_t *own)
{
    mpath_coll_counters_t counters;

    mpath_symmetric_counters(own->member.symmetric, &counters);
    return counters.gpu.calls;
}

mpath_status_t allreduce(own_t *own, uint64_t elements, uint64_t round, uint64_t skip)
{
    mpath_symmetric_buffers_t buffers = buffers_of(own, (int)(round % 2), skip * sizeof(double));
    double *from                      = ((round % 2) ? &own->recv : &own->send)->host + skip;

    own->recv.host[skip + elements] = 4711;
    for (uint64_t i = 0; i < elements; i++) {
        from[i] = value_of(own->self->rank, i, round);
    }
    store(&own->send, (skip + elements) * sizeof(double));
    store(&own->recv, (skip + elements + 1) * sizeof(double));
    return mpath_allreduce_anywhere(own->member.symmetric, &buffers, elements, &doubles, &sums);
}

/* Of an element of `owner`'s part. Calls on device memory never travel in the agreement. */
static double expected_sum(const own_t *own, int owner, uint64_t position, uint64_t round)
{
    const member_t *member = &own->member;

    return has_steps(member) ? sum_in_steps(member, own->self->size, owner, position, round)
                             : sum_of(member, own->self->size, position, round);
}

void check_sums(own_t *own, uint64_t elements, uint64_t round, uint64_t skip)
{
    const double *data = own->recv.host + skip;
    int owner          = -1;

    load(&own->recv, (skip + elements + 1) * sizeof(double));
    if (elements != own->parted) { /* a call that was repeated, later, has parts of what was left */
        memcpy(own->parts, own->member.symmetric->elements, (size_t)own->self->size * sizeof(own->parts[0]));
        own->parted = elements;
    }
    for (uint64_t i = 0, end = 0; i < elements; i++) {
        double expected;

        while (i >= end) { /* they lie in the order of the ranks */
            end += own->parts[++owner];
        }
        expected = expected_sum(own, owner, i, round);
        ranks_check(memcmp(&data[i], &expected, sizeof(expected)) == 0);
    }
    ranks_check(data[elements] == 4711);
}

uint64_t block_of(int rank, uint64_t about, uint64_t round)
{
    return ((uint64_t)rank + round) % 3 == 0 ? 0 : about + (uint64_t)rank * (about / 5 + 1);
}

/* All blocks in elements; where this rank's begins. */
static uint64_t cut_blocks(const own_t *own, uint64_t about, uint64_t round, uint64_t *blocks, uint64_t *total_p)
{
    uint64_t first = 0;

    *total_p = 0;
    for (int rank = 0; rank < own->self->size; rank++) {
        blocks[rank] = block_of(rank, about, round);
        first += (rank < own->self->rank) ? blocks[rank] : 0;
        *total_p += blocks[rank];
    }
    return first;
}

mpath_status_t reduce_scatter(own_t *own, uint64_t about, uint64_t round)
{
    mpath_symmetric_buffers_t buffers = buffers_of(own, 0, 0);
    uint64_t blocks[RANKS_MAX], total, mine;

    (void)cut_blocks(own, about, round, blocks, &total);
    mine = blocks[own->self->rank];
    for (uint64_t i = 0; i < total; i++) {
        own->send.host[i] = value_of(own->self->rank, i, round);
    }
    own->recv.host[mine] = 4711;
    store(&own->send, total * sizeof(double));
    store(&own->recv, (mine + 1) * sizeof(double));
    if (mine == 0) { /* as glue tells of empty sides */
        buffers.recv        = NULL;
        buffers.recv_memory = NULL;
    }
    return mpath_reduce_scatter_anywhere(own->member.symmetric, &buffers, blocks, &doubles, &sums);
}

void check_blocks(own_t *own, uint64_t about, uint64_t round)
{
    uint64_t blocks[RANKS_MAX], total, first = cut_blocks(own, about, round, blocks, &total);
    uint64_t mine = blocks[own->self->rank];

    load(&own->recv, (mine + 1) * sizeof(double));
    for (uint64_t i = 0; i < mine; i++) {
        double expected = expected_sum(own, own->self->rank, first + i, round);

        ranks_check(memcmp(&own->recv.host[i], &expected, sizeof(expected)) == 0);
    }
    ranks_check(own->recv.host[mine] == 4711);
}

static unsigned char byte_of(int rank, uint64_t position, uint64_t round)
{
    return (unsigned char)((uint64_t)rank * 29 + position * 3 + (position >> 8) + round * 7 + 1);
}

/* Returns the end of all, with the guard bytes. */
static uint64_t place_blocks(const own_t *own, uint64_t about, uint64_t round, uint64_t *bytes, uint64_t *offsets)
{
    int size     = own->self->size;
    uint64_t gap = (round < 6) ? 1 : 16, total = gap;

    for (int i = 0; i < size; i++) {
        int rank      = (i + own->self->rank) % size;
        bytes[rank]   = (round < 6) ? block_of(rank, about, round) : block_of(rank, about / 16, round) * 16;
        offsets[rank] = total;
        total += bytes[rank] + gap;
    }
    return total;
}

mpath_status_t allgather(own_t *own, uint64_t about, uint64_t round)
{
    int in_place = (int)(round % 2), me = own->self->rank;
    mpath_symmetric_buffers_t buffers = buffers_of(own, in_place, 0);
    uint64_t bytes[RANKS_MAX], offsets[RANKS_MAX], total = place_blocks(own, about, round, bytes, offsets);
    unsigned char *send = (unsigned char *)own->send.host, *recv = (unsigned char *)own->recv.host;

    memset(recv, 0xA5, total);
    for (uint64_t i = 0; i < bytes[me]; i++) {
        send[i] = byte_of(me, i, round);
        if (in_place) {
            recv[offsets[me] + i] = send[i];
        }
    }
    store(&own->send, bytes[me]);
    store(&own->recv, total);
    buffers.send_memory = (bytes[me] > 0) ? buffers.send_memory : NULL;
    if (in_place) {
        buffers.send = NULL;
    }
    return mpath_allgather_anywhere(own->member.symmetric, &buffers, bytes, offsets);
}

void check_gathered(own_t *own, uint64_t about, uint64_t round)
{
    uint64_t bytes[RANKS_MAX], offsets[RANKS_MAX], total = place_blocks(own, about, round, bytes, offsets);
    const unsigned char *recv = (const unsigned char *)own->recv.host;

    load(&own->recv, total);
    for (int rank = 0; rank < own->self->size; rank++) {
        ranks_check(recv[offsets[rank] - 1] == 0xA5);
        for (uint64_t i = 0; i < bytes[rank]; i++) {
            ranks_check(recv[offsets[rank] + i] == byte_of(rank, i, round));
        }
    }
    ranks_check(recv[total - 1] == 0xA5);
}
