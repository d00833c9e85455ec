/* SPDX-License-Identifier: BSD-3-Clause */
/* The control plane of the test ranks: messages of every size, from several threads, and what is seen of the end of a rank. */
#include "unit/ranks.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define RANKS 4
#define THREADS 3
#define LARGE_BYTES 300000 /* more than what lies between two ranks at a time */

static mpath_status_t wait_for(const mpath_oob_t *oob, mpath_oob_request_t *request, size_t *bytes_p)
{
    mpath_status_t status;

    while ((status = oob->test(oob->context, request, bytes_p)) == MPATH_INPROGRESS) {
        oob->progress(oob->context);
        usleep(100);
    }
    return status;
}

static void send_to(const mpath_oob_t *oob, int to, const void *data, size_t bytes)
{
    mpath_oob_request_t request;

    ranks_check(oob->isend(oob->context, to, data, bytes, &request) == MPATH_OK);
}

static void receive_from(const mpath_oob_t *oob, int from, void *data, size_t bytes)
{
    mpath_oob_request_t request;
    size_t got;

    ranks_check(oob->irecv(oob->context, from, data, bytes, &request) == MPATH_OK);
    ranks_check(wait_for(oob, &request, &got) == MPATH_OK);
    ranks_check(got == bytes);
}

static char byte_at(int channel, int from, size_t bytes, size_t at)
{
    return (char)(at * 7 + at / 251 + bytes + (size_t)(31 * from + 5 * channel));
}

typedef struct thread_job {
    mpath_oob_t oob;
    int channel;
} thread_job_t;

/* All send before they receive. */
static void *thread_main(void *argument)
{
    static const size_t sizes[] = {0, 1, 8191, 65527, 65528, 65529, LARGE_BYTES, 3};
    const thread_job_t *job     = argument;
    char *data                  = malloc(LARGE_BYTES);

    ranks_check(data != NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t at = 0; at < sizes[i]; at++) {
            data[at] = byte_at(job->channel, job->oob.rank, sizes[i], at);
        }
        for (int to = 0; to < job->oob.size; to++) {
            send_to(&job->oob, to, data, sizes[i]);
        }
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int from = 0; from < job->oob.size; from++) {
            receive_from(&job->oob, from, data, sizes[i]);
            for (size_t at = 0; at < sizes[i]; at++) {
                ranks_check(data[at] == byte_at(job->channel, from, sizes[i], at));
            }
        }
    }
    free(data);
    return NULL;
}

static int threads_body(ranks_self_t *self, void *argument)
{
    thread_job_t jobs[THREADS];
    pthread_t threads[THREADS];

    (void)argument;
    for (int i = 0; i < THREADS; i++) {
        jobs[i].channel = 1 + i;
        ranks_oob(self, jobs[i].channel, NULL, self->size, &jobs[i].oob);
    }
    for (int i = 0; i < THREADS; i++) {
        ranks_check(pthread_create(&threads[i], NULL, thread_main, &jobs[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    return 0;
}

static void test_threads(void **state)
{
    ranks_setup_t setup = {.size = RANKS};

    (void)state;
    assert_int_equal(ranks_run(&setup, threads_body, NULL), 0);
}

typedef enum ending { ENDS_BODY, ENDS_EXIT, ENDS_AT_ONCE, ENDS_ABORT, ENDS_KILLED, ENDINGS } ending_t;

typedef struct end_job {
    ending_t ending;
    int is_deaf; /* see ranks_setup_t */
    int is_cut;  /* rank 0 is, see ranks_cut() */
} end_job_t;

static int end_in(ending_t ending)
{
    switch (ending) {
    case ENDS_EXIT:
        exit(0);
    case ENDS_AT_ONCE:
        _exit(0);
    case ENDS_ABORT:
        abort();
    case ENDS_KILLED:
        raise(SIGKILL);
        break;
    default:
        break;
    }
    return 0;
}

/* Rank 0 outlives rank 1: it has what rank 1 sent before, and once there is no such process it knows of the end. */
static int end_body(ranks_self_t *self, void *argument)
{
    const end_job_t *job   = argument;
    const mpath_oob_t *oob = &self->oob;
    const int is_told      = !job->is_deaf && !job->is_cut;
    mpath_oob_request_t request;
    mpath_status_t status;
    char word = 'w';
    pid_t pid = getpid();

    if (self->rank == 1) {
        send_to(oob, 0, &pid, sizeof(pid));
        receive_from(oob, 0, &word, 1);
        ranks_check(word == 'c');
        send_to(oob, 0, "before", 6);
        return end_in(job->ending);
    }
    receive_from(oob, 1, &pid, sizeof(pid));
    if (job->is_cut) {
        ranks_cut(self);
    }
    send_to(oob, 1, "c", 1);
    while (kill(pid, 0) == 0) {
        usleep(100);
    }
    ranks_check(errno == ESRCH);
    if (!job->is_cut) {
        char before[6];

        receive_from(oob, 1, before, sizeof(before));
        ranks_check(memcmp(before, "before", sizeof(before)) == 0);
    }
    ranks_check(oob->irecv(oob->context, 1, &word, 1, &request) == MPATH_OK);
    oob->progress(oob->context);
    status = oob->test(oob->context, &request, NULL);
    ranks_check(status == (is_told ? MPATH_ERR_UNREACHABLE : MPATH_INPROGRESS));
    if (!is_told) {
        oob->cancel(oob->context, &request);
    }
    ranks_check(oob->isend(oob->context, 1, &word, 1, &request) == (is_told ? MPATH_ERR_UNREACHABLE : MPATH_OK));
    return 0;
}

static void test_ends(void **state)
{
    (void)state;
    for (int ending = 0; ending < ENDINGS; ending++) {
        for (int kind = 0; kind < 3; kind++) {
            end_job_t job             = {.ending = (ending_t)ending, .is_deaf = kind == 1, .is_cut = kind == 2};
            const ranks_setup_t setup = {.size = 2, .may_die = 1u << 1, .may_abort = 1u << 1, .deaf = job.is_deaf};

            assert_int_equal(ranks_run(&setup, end_body, &job), 0);
        }
    }
}

/* Who waits for a message is told of the end, and what nobody takes any more holds up nobody who ends. */
static int large_body(ranks_self_t *self, void *argument)
{
    char *data = calloc(1, LARGE_BYTES);

    (void)argument;
    ranks_check(data != NULL);
    for (int to = 0; to < self->size; to++) {
        send_to(&self->oob, to, data, LARGE_BYTES);
    }
    if (self->rank == 0) {
        mpath_oob_request_t request;
        char word;

        receive_from(&self->oob, 1, data, LARGE_BYTES);
        ranks_check(self->oob.irecv(self->oob.context, 1, &word, 1, &request) == MPATH_OK);
        ranks_check(wait_for(&self->oob, &request, NULL) == MPATH_ERR_UNREACHABLE);
    }
    free(data);
    return 0;
}

static void test_large_at_end(void **state)
{
    ranks_setup_t setup = {.size = 3};

    (void)state;
    assert_int_equal(ranks_run(&setup, large_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_large_at_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
