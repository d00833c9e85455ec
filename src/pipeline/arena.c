/* SPDX-License-Identifier: BSD-3-Clause */
/* The first page of an arena says who is in it; the rest is the users'. See arena.h. */
#include "pipeline/arena.h"

#include "util/log.h"
#include "util/process.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_PAGE 4096u
#define ARENA_OF_HEAP "heap"

typedef struct arena_header {
    _Atomic uint64_t inside;  /* number of a communicator, and ranks that have not left its calls; none: it is free */
    _Atomic uint32_t numbers; /* given out */
} arena_header_t;

#define INSIDE_NUMBER_SHIFT 32
#define INSIDE_RANKS UINT32_MAX

struct mpath_arena {
    mpath_arena_t *next;
    const mpath_context_t *context; /* of the rank, and its mates, in order */
    int num_local;
    mpath_process_t *mates;
    char name[MPATH_SEGMENT_NAME_MAX];
    mpath_segment_t segment;
    mpath_pinned_t pinned;
    int users;
};

static pthread_mutex_t arena_lock = PTHREAD_MUTEX_INITIALIZER; /* of: */
static mpath_arena_t *arenas;                                  /* the last one made is the first; users, pinned */

static arena_header_t *header_of(const mpath_arena_t *arena)
{
    return arena->segment.base;
}

static int process_compare(const void *a, const void *b)
{
    const mpath_process_t *first = a, *second = b;

    if (first->pid != second->pid) {
        return first->pid < second->pid ? -1 : 1;
    }
    return first->start_ticks < second->start_ticks ? -1 : first->start_ticks > second->start_ticks;
}

/* Of this rank with its mates in the team, without memory; it has one user. NULL: no memory. */
static mpath_arena_t *arena_new(const mpath_team_t *team)
{
    mpath_arena_t *arena = calloc(1, sizeof(*arena));

    if (arena == NULL) {
        return NULL;
    }
    arena->mates = mpath_team_mates(team, &arena->num_local);
    if (arena->mates == NULL) {
        free(arena);
        return NULL;
    }
    qsort(arena->mates, (size_t)arena->num_local, sizeof(*arena->mates), process_compare);
    arena->context = mpath_team_context(team);
    arena->users   = 1;
    return arena;
}

static void arena_free(mpath_arena_t *arena)
{
    if (arena->num_local > 1) {
        mpath_segment_unlink(&arena->segment); /* some rank has failed */
        mpath_segment_detach(&arena->segment);
    } else {
        free(arena->segment.base);
    }
    free(arena->mates);
    free(arena);
}

static void arena_list(mpath_arena_t *arena)
{
    pthread_mutex_lock(&arena_lock);
    arena->next = arenas;
    arenas      = arena;
    pthread_mutex_unlock(&arena_lock);
}

static int is_of_same(const mpath_arena_t *a, const mpath_arena_t *b)
{
    if ((a->context != b->context) || (a->num_local != b->num_local)) {
        return 0;
    }
    for (int i = 0; i < a->num_local; i++) {
        if (process_compare(&a->mates[i], &b->mates[i]) != 0) {
            return 0;
        }
    }
    return 1;
}

mpath_arena_t *mpath_arena_find(const mpath_team_t *team)
{
    mpath_arena_t *wanted = arena_new(team), *arena;

    if (wanted == NULL) {
        return NULL; /* as if there were none */
    }
    pthread_mutex_lock(&arena_lock);
    for (arena = arenas; (arena != NULL) && !is_of_same(arena, wanted); arena = arena->next) {
    }
    if (arena != NULL) {
        arena->users++;
    }
    pthread_mutex_unlock(&arena_lock);
    arena_free(wanted);
    return arena;
}

static mpath_status_t heap_make(size_t bytes, mpath_segment_t *segment)
{
    segment->base = aligned_alloc(ARENA_PAGE, (bytes + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE);
    if (segment->base == NULL) {
        mpath_error("no memory for %zu bytes to exchange data in", bytes);
        return MPATH_ERR_NO_MEMORY;
    }
    segment->bytes = bytes;
    memset(segment->base, 0, ARENA_PAGE);
    strcpy(segment->name, ARENA_OF_HEAP);
    return MPATH_OK;
}

/* `name` NULL: a new one. */
static mpath_status_t arena_make(const mpath_team_t *team, const char *name, size_t bytes, mpath_arena_t **arena_p)
{
    mpath_arena_t *arena  = arena_new(team);
    size_t all            = bytes + ARENA_PAGE;
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if (arena == NULL) {
        mpath_error("no memory to note what a node shares for reductions");
        return status;
    }
    if (name != NULL) {
        status = mpath_segment_attach(name, all, &arena->segment);
    } else {
        status = arena->num_local > 1 ? mpath_segment_create(all, &arena->segment) : heap_make(all, &arena->segment);
    }
    if (status != MPATH_OK) {
        arena_free(arena);
        return status;
    }
    memcpy(arena->name, arena->segment.name, sizeof(arena->name));
    arena_list(arena);
    *arena_p = arena;
    return MPATH_OK;
}

mpath_status_t mpath_arena_create(const mpath_team_t *team, size_t bytes, mpath_arena_t **arena_p)
{
    return arena_make(team, NULL, bytes, arena_p);
}

mpath_status_t mpath_arena_attach(const mpath_team_t *team, const char *name, size_t bytes, mpath_arena_t **arena_p)
{
    return arena_make(team, name, bytes, arena_p);
}

void mpath_arena_attached(mpath_arena_t *arena)
{
    if (arena->num_local > 1) {
        mpath_segment_note(&arena->segment, arena->num_local);
        mpath_segment_unlink(&arena->segment);
    }
}

void mpath_arena_put(mpath_arena_t *arena)
{
    mpath_arena_t **at;

    pthread_mutex_lock(&arena_lock);
    if (--arena->users > 0) {
        pthread_mutex_unlock(&arena_lock);
        return;
    }
    for (at = &arenas; *at != arena; at = &(*at)->next) {
    }
    *at = arena->next;
    pthread_mutex_unlock(&arena_lock);
    mpath_pinned_release(&arena->pinned);
    arena_free(arena);
}

const char *mpath_arena_name(const mpath_arena_t *arena)
{
    return arena->name;
}

size_t mpath_arena_bytes(const mpath_arena_t *arena)
{
    return arena->segment.bytes - ARENA_PAGE;
}

char *mpath_arena_base(const mpath_arena_t *arena)
{
    return (char *)arena->segment.base + ARENA_PAGE;
}

uint32_t mpath_arena_number(mpath_arena_t *arena)
{
    return atomic_fetch_add(&header_of(arena)->numbers, 1) + 1;
}

int mpath_arena_take(mpath_arena_t *arena, uint32_t number)
{
    uint64_t inside = atomic_load_explicit(&header_of(arena)->inside, memory_order_acquire), taken;

    do {
        uint64_t ranks = inside & INSIDE_RANKS;

        if (ranks > 0 && inside >> INSIDE_NUMBER_SHIFT != number) {
            return 0;
        }
        taken = (uint64_t)number << INSIDE_NUMBER_SHIFT | (ranks + (uint64_t)arena->num_local);
    } while (!atomic_compare_exchange_weak_explicit(&header_of(arena)->inside, &inside, taken, memory_order_acq_rel,
                                                    memory_order_acquire));
    return 1;
}

void mpath_arena_return(mpath_arena_t *arena)
{
    atomic_fetch_sub_explicit(&header_of(arena)->inside, (uint64_t)arena->num_local, memory_order_release);
}

void mpath_arena_leave(mpath_arena_t *arena)
{
    atomic_fetch_sub_explicit(&header_of(arena)->inside, 1, memory_order_release);
}

mpath_status_t mpath_arena_register(mpath_arena_t *arena, mpath_gpu_t *gpu)
{
    mpath_status_t status = MPATH_OK;

    pthread_mutex_lock(&arena_lock);
    mpath_pinned_release_lost(&arena->pinned);
    if (arena->pinned.base == NULL) {
        status = mpath_pinned_register(gpu, mpath_arena_base(arena), mpath_arena_bytes(arena), &arena->pinned);
    }
    pthread_mutex_unlock(&arena_lock);
    return status;
}

const mpath_pinned_t *mpath_arena_pinned(const mpath_arena_t *arena)
{
    return &arena->pinned;
}
