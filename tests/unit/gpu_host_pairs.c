/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a machine allows a rail through the host, without mpath's executor and without UCX: a process copies a GPU's
 * memory to pinned memory, another one copies from there with its processor, and on to its GPU, in chunks for which each
 * end has some slots. One, two and four such pairs at a time; the copies of the GPUs alone, those of the processors
 * alone, and both. No test: prints GB/s of all pairs together, median and extremes, the cases in turn. Arguments: bytes
 * of a pair, slots.
 * Processes 0 to 3 send, 4 to 7 receive; process p works on GPU p, modulo the number of GPUs, as the ranks of an
 * emulated cluster do. Runs on the driver of the machine unless MPATH_TEST_CUDA says else.
 */
#include "device/pinned.h"
#include "gpu_kinds.h"
#include "util/time.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIRS 4
#define CHUNK (UINT64_C(512) << 10)
#define SLOTS_MOST 64
#define ROUNDS 11 /* the first one is not counted */
#define LIMIT_S 60

enum { BY_GPUS = 1, BY_PROCESSORS = 2 };

typedef struct trial {
    const char *name;
    int pairs, stages;
} trial_t;

static const trial_t trials[] = {
    {"GPUs alone", 1, BY_GPUS},
    {"GPUs alone", 2, BY_GPUS},
    {"GPUs alone", 4, BY_GPUS},
    {"processors alone", 1, BY_PROCESSORS},
    {"processors alone", 2, BY_PROCESSORS},
    {"processors alone", 4, BY_PROCESSORS},
    {"both", 1, BY_GPUS | BY_PROCESSORS},
    {"both", 2, BY_GPUS | BY_PROCESSORS},
    {"both", 4, BY_GPUS | BY_PROCESSORS},
};
#define TRIALS ((int)(sizeof(trials) / sizeof(trials[0])))

/* Chunks so far, each counter written by one process. */
typedef struct pair {
    _Alignas(128) atomic_ulong filled; /* in the sender's slots */
    _Alignas(128) atomic_ulong taken;  /* out of them */
} pair_t;

typedef struct board {
    atomic_int ready, started, ended;
    pair_t pairs[PAIRS];
} board_t;

static board_t *board;
static char *slots[PAIRS]; /* of the senders */
static uint64_t chunks;    /* of a pair and trial */
static uint64_t num_slots = 8;

static void require(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "gpu_host_pairs: %s\n", what);
        exit(1);
    }
}

static void *shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    require(memory != MAP_FAILED, "no memory");
    return memory;
}

/* What a process works with: a chunk's slot is pinned host memory, its place memory of the GPU. */
typedef struct hand {
    pair_t *pair;
    mpath_stream_t *stream;
    char *slots, *from;
    mpath_pinned_t pinned;
    gpu_memory_t memory;
    mpath_mark_t marks[SLOTS_MOST];
} hand_t;

static void copy(hand_t *hand, uint64_t chunk, int to_host)
{
    mpath_cu_ptr_t slot  = mpath_pinned_device(&hand->pinned, hand->slots + chunk % num_slots * CHUNK);
    mpath_cu_ptr_t place = hand->memory.address + chunk % chunks * CHUNK;

    require(mpath_stream_copy(hand->stream, to_host ? slot : place, to_host ? place : slot, CHUNK) == MPATH_OK, "copy");
    require(mpath_stream_mark(hand->stream, &hand->marks[chunk % num_slots]) == MPATH_OK, "mark");
}

static int is_copied(hand_t *hand, uint64_t chunk)
{
    mpath_status_t status = mpath_stream_done(hand->stream, hand->marks[chunk % num_slots]);

    require((status == MPATH_OK) || (status == MPATH_INPROGRESS), "a copy failed");
    return status == MPATH_OK;
}

/* Others may need the processor, where there are fewer of these than processes. */
static void pause_after(int nothing_moved)
{
    if (nothing_moved) {
        sched_yield();
    }
}

static void send_all(hand_t *hand, int stages)
{
    uint64_t filled = atomic_load(&hand->pair->filled), end = filled + chunks, next = filled;

    while (filled < end) {
        uint64_t before = filled + next;

        if ((next < end) && (next - atomic_load(&hand->pair->taken) < num_slots)) {
            if (stages & BY_GPUS) {
                copy(hand, next, 1);
            }
            next++;
        }
        if ((filled < next) && (!(stages & BY_GPUS) || is_copied(hand, filled))) {
            atomic_store(&hand->pair->filled, ++filled);
        }
        pause_after(filled + next == before);
    }
}

static void receive_all(hand_t *hand, int stages)
{
    uint64_t taken = atomic_load(&hand->pair->taken), end = taken + chunks, placed = taken;

    while (placed < end) {
        uint64_t before = placed + taken;

        if ((taken < end) && (taken < atomic_load(&hand->pair->filled)) && (taken - placed < num_slots)) {
            if (stages & BY_PROCESSORS) {
                memcpy(hand->slots + taken % num_slots * CHUNK, hand->from + taken % num_slots * CHUNK, CHUNK);
            }
            if (stages & BY_GPUS) {
                copy(hand, taken, 0);
            }
            atomic_store(&hand->pair->taken, ++taken);
        }
        if ((placed < taken) && (!(stages & BY_GPUS) || is_copied(hand, placed))) {
            placed++;
        }
        pause_after(placed + taken == before);
    }
}

static void open_hand(hand_t *hand, int process)
{
    mpath_gpu_t *gpu;
    int device;

    gpu_application_starts();
    device     = process % mpath_gpu_count();
    hand->pair = &board->pairs[process % PAIRS];
    hand->from = slots[process % PAIRS];
    require((mpath_gpu_get(device, NULL, &gpu) == MPATH_OK) && (mpath_stream_get(gpu, 0, &hand->stream) == MPATH_OK),
            "no GPU");
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, chunks * CHUNK, 0, &hand->memory);
    hand->slots = (process < PAIRS) ? slots[process] : shared(num_slots * CHUNK);
    memset(hand->slots, process, num_slots * CHUNK);
    require(mpath_pinned_register(gpu, hand->slots, num_slots * CHUNK, &hand->pinned) == MPATH_OK, "pinned memory");
}

/* Ends with the process; trials start when the parent says so. */
static void work(int process)
{
    hand_t hand = {0};

    alarm(LIMIT_S);
    open_hand(&hand, process);
    atomic_fetch_add(&board->ready, 1);
    for (int round = 0; round < ROUNDS * TRIALS; round++) {
        const trial_t *trial = &trials[round % TRIALS];

        while (atomic_load(&board->started) <= round) {
        }
        if (process % PAIRS < trial->pairs) {
            ((process < PAIRS) ? send_all : receive_all)(&hand, trial->stages);
        }
        atomic_fetch_add(&board->ended, 1);
    }
    mpath_pinned_release(&hand.pinned);
    gpu_memory_free(&hand.memory);
    mpath_gpu_cleanup();
    exit(0);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static int ended_well;

/* A process that has failed ends the others. In the last trial some are through before others. */
static void watch(const pid_t *processes)
{
    int status;

    if (waitpid(-1, &status, WNOHANG) <= 0) {
        return;
    }
    if (status == 0) {
        ended_well++;
        return;
    }
    for (int process = 0; process < 2 * PAIRS; process++) {
        kill(processes[process], SIGKILL);
    }
    require(0, "a process has failed");
}

int main(int count, char **words)
{
    static double rates[TRIALS][ROUNDS];
    double one[BY_GPUS + BY_PROCESSORS + 1] = {0};
    pid_t processes[2 * PAIRS];
    int good = 1, status;

    setenv("MPATH_TEST_CUDA", "libcuda.so.1", 0);
    chunks    = ((count > 1) ? strtoull(words[1], NULL, 0) : UINT64_C(64) << 20) / CHUNK;
    num_slots = (count > 2) ? strtoull(words[2], NULL, 0) : num_slots;
    require((chunks > 0) && (num_slots > 0) && (num_slots <= SLOTS_MOST),
            "the bytes have to be 524288 at least, the slots 1 to 64; nothing was measured");
    board = shared(sizeof(*board));
    for (int pair = 0; pair < PAIRS; pair++) {
        slots[pair] = shared(num_slots * CHUNK);
    }
    for (int process = 0; process < 2 * PAIRS; process++) {
        processes[process] = fork();
        require(processes[process] >= 0, "no process");
        if (processes[process] == 0) {
            work(process);
        }
    }
    while (atomic_load(&board->ready) < 2 * PAIRS) {
        watch(processes);
        usleep(1000);
    }
    for (int round = 0; round < ROUNDS * TRIALS; round++) {
        const trial_t *trial = &trials[round % TRIALS];
        uint64_t start_ns    = mpath_time_ns();

        atomic_store(&board->started, round + 1);
        while (atomic_load(&board->ended) < (round + 1) * 2 * PAIRS) {
            if (mpath_time_ns() - start_ns > MPATH_NS_PER_S) {
                watch(processes);
            }
        }
        rates[round % TRIALS][round / TRIALS] = (double)((uint64_t)trial->pairs * chunks * CHUNK) /
                                                (double)(mpath_time_ns() - start_ns);
    }
    printf("through the host, %llu MiB a pair, %llu slots of 512 KiB at each end\n",
           (unsigned long long)(chunks * CHUNK >> 20), (unsigned long long)num_slots);
    for (int t = 0; t < TRIALS; t++) {
        double *sorted = &rates[t][1], median;

        qsort(sorted, ROUNDS - 1, sizeof(*sorted), compare);
        median = sorted[(ROUNDS - 1) / 2];
        if (trials[t].pairs == 1) {
            one[trials[t].stages] = median;
        }
        printf("%-16s  %d at a time  %7.2f GB/s  [%.2f, %.2f]  %.2f x one\n", trials[t].name, trials[t].pairs, median,
               sorted[0], sorted[ROUNDS - 2], median / one[trials[t].stages]);
    }
    while (good && (ended_well < 2 * PAIRS)) {
        good = (waitpid(-1, &status, 0) > 0) && (status == 0);
        ended_well++;
    }
    require(good, "a process has failed");
    return 0;
}
