/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A random program: collectives of every kind and form on communicators that come and go, of random sizes, types, places
 * and memory, of which every byte is checked, the ones around the buffers too. The same seed makes the same program. What
 * goes wrong ends the job with seed, step and operation.
 * Usage: random [--seed SEED] [--steps STEPS] [--threads THREADS] [--max-bytes BYTES] [--patience SECONDS]
 * [--end-before-free] [--trace]
 */
#include "mpi/memory.h"
#include "mpi/random.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 5, FLYING = 6, PERSISTENTS = 4, MAX_THREADS = 8, TEXT = 400 };

static uint64_t seed   = 1;
static long steps      = 150;
static int num_threads = 1, patience_s = 300, trace, end_before_free;
static size_t max_bytes = 2u << 20;
static int world_rank;
static char doing[MAX_THREADS][TEXT]; /* what each thread waits for; for the one that tells it when nothing moves */

typedef struct program {
    int thread;
    uint64_t seed;
    long step;
    sequence_t own; /* of what each rank does in its own way */
    slot_t base, slots[SLOTS];
    call_t *flying[FLYING]; /* started, not yet found to have ended */
    int num_flying;
    struct {
        int used, active, dead; /* the first is the same on all ranks; the last: not to be started any more */
        call_t *call;           /* NULL: of processes that this one does not belong to */
    } persistents[PERSISTENTS];
} program_t;

void random_fail(const call_t *call, const char *what)
{
    char text[TEXT];

    random_call_describe(call, text, sizeof(text));
    fprintf(stderr, "random: seed %llu, %s\nrandom: %s\n", (unsigned long long)seed, text, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* SIGALRM: nothing has moved for too long. */
static void tell(int signal)
{
    (void)signal;
    for (int i = 0; i < num_threads; i++) {
        char text[TEXT + 100];
        int length = snprintf(text, sizeof(text), "random: seed %llu, rank %d hangs in %s\n", (unsigned long long)seed,
                              world_rank, doing[i]);

        if (write(STDERR_FILENO, text, (size_t)length) < 0) {
            _exit(2);
        }
    }
    sleep(5); /* for the others, which tell as much */
    _exit(1);
}

static void note(const program_t *program, const call_t *call, const char *what)
{
    char text[TEXT - 50];

    text[0] = '\0';
    if (call != NULL) {
        random_call_describe(call, text, sizeof(text));
    }
    snprintf(doing[program->thread], TEXT, "step %ld, %s %s", program->step, what, text);
    if (trace) {
        fprintf(stderr, "rank %d thread %d: %s\n", world_rank, program->thread, doing[program->thread]);
    }
    alarm((unsigned)patience_s);
}

/* -- what is under way -- */

static void ended(program_t *program, int index)
{
    call_t *call = program->flying[index];

    program->flying[index] = program->flying[--program->num_flying];
    random_call_check(call);
    if (call->form != PERSISTENT) {
        random_call_free(call);
        return;
    }
    for (int i = 0; i < PERSISTENTS; i++) {
        if (program->persistents[i].call == call) {
            program->persistents[i].active = 0;
        }
    }
}

static void wait_for(program_t *program, const call_t *call)
{
    for (int i = 0; i < program->num_flying; i++) {
        if (program->flying[i] == call) {
            note(program, call, "MPI_Wait");
            MPI_Wait(&program->flying[i]->request, MPI_STATUS_IGNORE);
            ended(program, i);
            return;
        }
    }
}

typedef enum way { ANY, ALL, SOME, TEST_ANY, TEST_ALL, WAYS } way_t;

/* Waits for some of what is under way, or looks whether they have ended. */
static void end_some(program_t *program, way_t way)
{
    MPI_Request requests[FLYING];
    int indices[FLYING], done = 0, count = program->num_flying, flag = 1, all = way == ALL;

    for (int i = 0; i < count; i++) {
        requests[i] = program->flying[i]->request;
    }
    note(program, program->flying[0], "waits for some, among them");
    switch (way) {
    case ANY:
        MPI_Waitany(count, requests, &indices[0], MPI_STATUS_IGNORE);
        done = 1;
        break;
    case ALL:
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        break;
    case SOME:
        MPI_Waitsome(count, requests, &done, indices, MPI_STATUSES_IGNORE);
        break;
    case TEST_ANY:
        MPI_Testany(count, requests, &indices[0], &flag, MPI_STATUS_IGNORE);
        done = flag ? 1 : 0;
        break;
    default:
        MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE);
        all = flag;
    }
    for (int i = 0; i < count; i++) {
        program->flying[i]->request = requests[i];
    }
    for (int i = count - 1; i >= 0; i--) { /* the last ones first, which take no other's place */
        int is_done = all;

        for (int j = 0; j < done; j++) {
            is_done = is_done || indices[j] == i;
        }
        if (is_done) {
            ended(program, i);
        }
    }
}

static void end_in_some_order(program_t *program)
{
    uint32_t what = sequence_below(&program->own, 12);

    if (program->num_flying == 0) {
        return;
    }
    if (what < WAYS) {
        end_some(program, (way_t)what);
    } else if (what < WAYS + 2) {
        wait_for(program, program->flying[sequence_below(&program->own, (uint32_t)program->num_flying)]);
    }
}

static void end_all(program_t *program)
{
    if (program->num_flying > 0) {
        end_some(program, ALL);
    }
}

static void launch(program_t *program, call_t *call)
{
    note(program, call, "starts");
    random_call_start(call, random_mix(program->seed, (uint64_t)program->step));
    if (call->form == BLOCKING) {
        random_call_check(call);
        random_call_free(call);
    } else {
        program->flying[program->num_flying++] = call;
    }
}

static void make_room(program_t *program)
{
    while (program->num_flying == FLYING) {
        end_some(program, ANY);
    }
}

/* -- steps -- */

static uint64_t choose_shape(const slot_t *slot, sequence_t *sequence)
{
    uint32_t again = sequence_below(sequence, 2), number = sequence_below(sequence, again ? 4 : 1u << 30);

    return random_mix(slot->id, number); /* half of them are some of few, as in applications */
}

static void run_call(program_t *program, sequence_t *sequence)
{
    const slot_t *slot = &program->slots[sequence_below(sequence, SLOTS)];
    form_t form        = sequence_below(sequence, 5) < 2 ? NONBLOCKING : BLOCKING;
    uint64_t shape;
    call_t *call;

    if (slot->comm != MPI_COMM_NULL) {
        shape = choose_shape(slot, sequence);
        make_room(program);
        call          = random_call_new(slot->comm, form, shape, program->step, max_bytes);
        call->comm_id = slot->id;
        launch(program, call);
    }
}

static void run_persistent(program_t *program, sequence_t *sequence)
{
    uint32_t number = sequence_below(sequence, PERSISTENTS), what = sequence_below(sequence, 4);
    const slot_t *slot = &program->slots[sequence_below(sequence, SLOTS)];
    call_t *call       = program->persistents[number].call;

    if (call != NULL && program->persistents[number].active) {
        wait_for(program, call);
    }
    if (program->persistents[number].used && what == 0) {
        if (call != NULL) {
            MPI_Request_free(&call->request);
            random_call_free(call);
        }
        program->persistents[number].used = 0;
        program->persistents[number].dead = 0;
        program->persistents[number].call = NULL;
        return;
    }
    make_room(program);
    if (!program->persistents[number].used) {
        program->persistents[number].used = 1;
        if (slot->comm == MPI_COMM_NULL) {
            return;
        }
        call          = random_call_new(slot->comm, PERSISTENT, choose_shape(slot, sequence), program->step, max_bytes);
        call->comm_id = slot->id;
        program->persistents[number].call = call;
    }
    if (call != NULL && !program->persistents[number].dead) {
        program->persistents[number].active = 1;
        launch(program, call);
    }
}

/* Among the processes of another one. */
static void make_slot(program_t *program, slot_t *slot, sequence_t *sequence)
{
    slot_t *other = &program->slots[sequence_below(sequence, SLOTS)];
    slot_t parent = (sequence_below(sequence, 3) > 0 || other == slot) ? program->base : *other;

    note(program, NULL, "makes a communicator");
    random_slot_make(&parent, sequence, program->step, slot);
}

/*
 * Requests of libnbc must not be used when their communicator is gone: it keeps no reference. mpath leaves MPI_Alltoallw
 * to it, and hands it some short reductions and gathers, and with gate "auto" others, as they are.
 */
static int ends_with_communicator(const call_t *call)
{
    return end_before_free || call->function == ALLTOALLW || (call->form == NONBLOCKING && call->function > ALLTOALLW);
}

/* Operations of it may be under way. */
static void free_slot(program_t *program, slot_t *slot)
{
    if (slot->comm == MPI_COMM_NULL) {
        return;
    }
    for (int i = 0; i < PERSISTENTS; i++) {
        const call_t *call = program->persistents[i].call;

        if (call != NULL && call->comm_id == slot->id && ends_with_communicator(call)) {
            program->persistents[i].dead = 1;
        }
    }
    for (int i = program->num_flying - 1; i >= 0; i--) {
        call_t *call = program->flying[i];

        if (call->comm_id == slot->id && (ends_with_communicator(call) || sequence_below(&program->own, 2))) {
            wait_for(program, call);
        }
    }
    note(program, NULL, "frees a communicator");
    MPI_Comm_free(&slot->comm);
}

/* What mpath leaves alone, between what it serves. */
static void run_other(program_t *program, sequence_t *sequence)
{
    MPI_Comm comm  = program->slots[sequence_below(sequence, SLOTS)].comm;
    uint32_t what  = sequence_below(sequence, 4);
    int numbers[2] = {world_rank, -1}, rank, size;
    MPI_Request request;

    if (comm == MPI_COMM_NULL) {
        return;
    }
    note(program, NULL, "runs something else");
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    switch (what) {
    case 0:
        MPI_Barrier(comm);
        break;
    case 1:
        MPI_Bcast(numbers, 2, MPI_INT, size - 1, comm);
        break;
    case 2:
        MPI_Ibcast(numbers, 2, MPI_INT, size / 2, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    default:
        MPI_Sendrecv(&numbers[0], 1, MPI_INT, (rank + 1) % size, 3, &numbers[1], 1, MPI_INT, (rank + size - 1) % size,
                     3, comm, MPI_STATUS_IGNORE);
    }
}

static void run_step(program_t *program)
{
    sequence_t sequence = {random_mix(program->seed, (uint64_t)program->step)};
    uint32_t what       = sequence_below(&sequence, 100);

    if (sequence_below(&program->own, 12) == 0) {
        usleep(sequence_below(&program->own, 3000));
    }
    if (what < 74) {
        run_call(program, &sequence);
    } else if (what < 88) {
        run_persistent(program, &sequence);
    } else if (what < 92 && num_threads == 1) {
        slot_t *slot = &program->slots[sequence_below(&sequence, SLOTS)];

        free_slot(program, slot);
        make_slot(program, slot, &sequence);
    } else if (what < 97) {
        run_other(program, &sequence);
    } else {
        end_all(program);
    }
    end_in_some_order(program);
}

/*
 * All of them before any thread starts, and later only where there is one: in Open MPI 4.1 threads that make communicators
 * at the same time wait for each other.
 */
static void make_slots(program_t *program)
{
    for (int i = 0; i < SLOTS; i++) {
        program->slots[i].comm = MPI_COMM_NULL;
    }
    for (int i = 0; i < SLOTS; i++) {
        sequence_t sequence = {random_mix(program->seed, (uint64_t)i + (1ull << 40))};

        program->step = -1 - i;
        make_slot(program, &program->slots[i], &sequence);
    }
}

static void *run_program(void *argument)
{
    program_t *program = argument;

    for (program->step = 0; program->step < steps; program->step++) {
        run_step(program);
    }
    end_all(program);
    for (int i = 0; i < PERSISTENTS; i++) {
        if (program->persistents[i].call != NULL) {
            MPI_Request_free(&program->persistents[i].call->request);
            random_call_free(program->persistents[i].call);
            program->persistents[i].call = NULL;
        }
    }
    random_call_end();
    return NULL;
}

static void run_programs(void)
{
    static program_t programs[MAX_THREADS];
    pthread_t threads[MAX_THREADS];

    for (int i = 0; i < num_threads; i++) {
        programs[i].thread    = i;
        programs[i].seed      = random_mix(seed, (uint64_t)i);
        programs[i].own.state = random_mix(programs[i].seed, (uint64_t)world_rank);
        programs[i].base.id   = random_mix(programs[i].seed, 3);
        MPI_Comm_dup(MPI_COMM_WORLD, &programs[i].base.comm);
        make_slots(&programs[i]);
    }
    for (int i = 1; i < num_threads; i++) {
        pthread_create(&threads[i], NULL, run_program, &programs[i]);
    }
    run_program(&programs[0]);
    for (int i = 1; i < num_threads; i++) {
        pthread_join(threads[i], NULL);
    }
    alarm((unsigned)patience_s);
    for (int i = 0; i < num_threads; i++) {
        for (int j = 0; j < SLOTS; j++) {
            free_slot(&programs[i], &programs[i].slots[j]);
        }
        MPI_Comm_free(&programs[i].base.comm);
    }
}

/* From 1 to `most`; 0: it is no such number. */
static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0);

    return ((text[0] >= '0') && (text[0] <= '9') && (*end == '\0') && (value <= most)) ? value : 0;
}

static int read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = (i + 1 < argc) ? argv[i + 1] : "";

        if (strcmp(argv[i], "--trace") == 0) {
            trace = 1;
            continue;
        }
        if (strcmp(argv[i], "--end-before-free") == 0) {
            end_before_free = 1;
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "--seed") == 0) {
            seed = number(value, UINT64_MAX);
        } else if (strcmp(argv[i - 1], "--steps") == 0) {
            steps = (long)number(value, INT32_MAX);
        } else if (strcmp(argv[i - 1], "--threads") == 0) {
            num_threads = (int)number(value, MAX_THREADS);
        } else if (strcmp(argv[i - 1], "--max-bytes") == 0) {
            max_bytes = number(value, INT32_MAX);
        } else if (strcmp(argv[i - 1], "--patience") == 0) {
            patience_s = (int)number(value, 86400);
        } else {
            return 0;
        }
    }
    return seed > 0 && steps > 0 && num_threads > 0 && max_bytes > 0 && patience_s > 0;
}

int main(int argc, char **argv)
{
    int provided, world_size;

    if (!read_options(argc, argv)) {
        fprintf(stderr, "usage: random [--seed SEED] [--steps STEPS] [--threads THREADS] [--max-bytes BYTES] "
                        "[--patience SECONDS] [--end-before-free] [--trace]\n");
        return 2;
    }
    MPI_Init_thread(&argc, &argv, num_threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (world_size > MAX_RANKS || (num_threads > 1 && provided < MPI_THREAD_MULTIPLE)) {
        fprintf(stderr, "random: too many ranks, or no threads in this MPI\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    signal(SIGALRM, tell);
    if (world_rank == 0) {
        printf("random: seed %llu, %ld steps\n", (unsigned long long)seed, steps);
        fflush(stdout);
    }
    random_types_make();
    random_reductions_make();
    run_programs();
    random_types_free();
    random_reductions_free();
    case_end("random", 0);
    cases_print_calls();
    MPI_Finalize();
    return cases_failed();
}
