/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process is killed at any point of the set-up of a team: all others come out of it with an error, or out of the first call
 * of the team where they had it already, long before any deadline; and no shared memory stays behind.
 */
#include "team/team_private.h"
#include "ranks.h"
#include "unit/capture.h"
#include "util/process.h"
#include "util/time.h"

#include <glob.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANKS 5
#define NODES 2
#define SENDS_LEAST 10

/* What the ranks of a communicator know of each other, as the glue arranges it. */
typedef struct shared {
    _Atomic uint64_t words[RANKS];
    atomic_int parted; /* somebody has given up, or found out: messages tell the others */
    atomic_int survived;
    atomic_int sends; /* of a victim that came through */
} shared_t;

typedef struct scene {
    shared_t *shared;
    int victim, at_send;
} scene_t;

static const scene_t *scene;
static const ranks_self_t *me;
static int num_sends;

static int node_of(int rank)
{
    return rank * NODES / RANKS;
}

static mpath_status_t look(void *context)
{
    shared_t *shared = scene->shared;

    (void)context;
    for (int rank = 0; rank < RANKS; rank++) {
        if (node_of(rank) == me->node && !mpath_process_word_alive(shared->words[rank])) {
            mpath_segment_sweep();
            shared->parted = MPATH_ERR_UNREACHABLE;
        }
    }
    return (mpath_status_t)shared->parted;
}

static void give_up(void *context, mpath_status_t reason, int peer)
{
    (void)context;
    (void)peer;
    scene->shared->parted = reason;
}

static mpath_status_t (*really_send)(void *context, int to, const void *data, size_t bytes,
                                     mpath_oob_request_t *request);

static mpath_status_t deadly_send(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    if (me->rank == scene->victim && ++num_sends == scene->at_send) {
        kill(getpid(), SIGKILL);
    }
    return really_send(context, to, data, bytes, request);
}

static void open_plane(ranks_self_t *self, int channel, mpath_oob_t *oob)
{
    ranks_oob(self, channel, NULL, RANKS, oob);
    really_send  = oob->isend;
    oob->isend   = deadly_send;
    oob->look    = look;
    oob->give_up = give_up;
}

/* As the glue makes a team and uses it: all learn whether all have it. */
static int setup_body(ranks_self_t *self, void *argument)
{
    int mine = 7, all[RANKS];
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team = NULL;
    mpath_oob_t oob, after;
    mpath_status_t status, voted;
    uint64_t start_ns;

    scene = argument;
    me    = self;
    atomic_store(&scene->shared->words[self->rank], mpath_process_word());
    ranks_drop_log();
    mpath_settings_init(&settings);
    settings.memory_bytes = 4 << 20;
    context               = ranks_context(self, &settings);
    ranks_barrier(self);
    start_ns = mpath_time_ns();
    open_plane(self, 1, &oob);
    open_plane(self, 2, &after);
    status = mpath_team_create(context, &oob, &team);
    voted  = mpath_exchange_agree(&after, mpath_patience_here(&settings), status);
    if (voted == MPATH_OK) {
        if (self->rank == scene->victim) { /* it did not come to so many messages */
            atomic_store(&scene->shared->sends, num_sends);
            kill(getpid(), SIGKILL);
        }
        status = mpath_team_allgather(team, &mine, sizeof(mine), all);
    } else {
        if (team != NULL) {
            mpath_team_break(team, voted);
        }
        status = voted;
    }
    ranks_check(status == MPATH_ERR_UNREACHABLE);
    ranks_check(mpath_time_ns() - start_ns < (uint64_t)settings.timeout_s * MPATH_NS_PER_S / 2);
    atomic_fetch_add(&scene->shared->survived, 1);
    _exit(0); /* as it is, without waiting for anybody */
}

static void check_nothing_left(const shared_t *shared)
{
    char pattern[64];
    glob_t found;

    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(pattern, sizeof(pattern), "/dev/shm/mpath-%llu-*", (unsigned long long)(shared->words[rank] >> 42));
        assert_int_equal(glob(pattern, 0, NULL, &found), GLOB_NOMATCH);
    }
}

/* Every message of the victim, until it does not come to that many. */
static void kill_everywhere(int victim, int step)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = NODES, .deaf = 1, .may_die = 1u << victim};
    shared_t *shared          = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    scene_t this              = {.shared = shared, .victim = victim};

    assert_true(shared != MAP_FAILED);
    memset(shared, 0, sizeof(*shared));
    for (this.at_send = 1; shared->sends == 0; this.at_send += step) {
        memset(shared, 0, sizeof(*shared));
        assert_int_equal(ranks_run(&setup, setup_body, &this), 0);
        assert_int_equal(shared->survived, RANKS - 1);
        check_nothing_left(shared);
    }
    assert_true(this.at_send > SENDS_LEAST);
    munmap(shared, sizeof(*shared));
}

static void test_leader(void **state)
{
    (void)state;
    kill_everywhere(0, 1);
}

static void test_leader_of_second_node(void **state)
{
    (void)state;
    kill_everywhere(3, 3);
}

static void test_mate(void **state)
{
    (void)state;
    kill_everywhere(1, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leader),
        cmocka_unit_test(test_leader_of_second_node),
        cmocka_unit_test(test_mate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
