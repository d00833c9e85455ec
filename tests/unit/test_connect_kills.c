/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process is killed at some moment of a communicator's first call that moves chunks, while rails are opened and connect: the
 * others come out of the call, with their bytes or with an error. MPATH_KILLS: how often (6), MPATH_KILLS_SEED: from which moment
 * on; on demand, for minutes:
 *
 *   MPATH_KILLS=500 unit/test_connect_kills
 */
#include "a2a.h"
#include "coll/alltoallv.h"
#include "ranks.h"
#include "team/team_private.h"
#include "unit/capture.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define RANKS 4
#define KILLS 6
#define LATEST_US 30000 /* by then the call has ended on an idle machine */
#define TIMEOUT_S 25    /* of the call; a loaded machine needs more to set up the ranks */

typedef struct job {
    ranks_setup_t setup;
    int victim;
    unsigned delay_us;
} job_t;

static void *kill_later(void *argument)
{
    const job_t *job = argument;

    usleep(job->delay_us);
    raise(SIGKILL);
    return NULL;
}

static int kill_body(ranks_self_t *self, void *argument)
{
    job_t *job = argument;
    uint64_t demand[RANKS * RANKS];
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_status_t status;
    mpath_coll_t *coll;
    mpath_team_t *team;
    pthread_t thread;
    a2a_t a2a;

    ranks_drop_log();
    mpath_settings_init(&settings);
    settings.access       = MPATH_ACCESS_ALL;
    settings.gate         = MPATH_GATE_ALWAYS;
    settings.memory_bytes = 8 << 20;
    settings.timeout_s    = 100;
    context               = ranks_context(self, &settings);
    team                  = ranks_team(self, context);
    ranks_check(mpath_coll_create(team, &coll) == MPATH_OK);
    a2a_init(&a2a, self->rank, self->size);
    a2a_demand(A2A_EVEN, self->size, 400000, 1, demand);
    a2a_fill(&a2a, demand, 1);
    ranks_barrier(self);
    context->settings.timeout_s = TIMEOUT_S;
    if (self->rank == job->victim) {
        ranks_check(pthread_create(&thread, NULL, kill_later, job) == 0);
    }
    status = mpath_alltoallv(coll, &a2a.call);
    if (self->rank == job->victim) {
        pause();
    }
    ranks_check(status == MPATH_OK || mpath_status_is_error(status));
    ranks_check(status != MPATH_OK || a2a_check(&a2a) == 0);
    a2a_end(&a2a);
    mpath_coll_destroy(coll);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

/* Releases of UCX before 1.14 abort when a message that connects two processes is under way to one that dies. */
static int ucx_may_abort(void)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    return (major == 1) && (minor < 14);
}

static unsigned from_environment(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);

    return (text != NULL) ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void test_kills(void **state)
{
    unsigned kills = from_environment("MPATH_KILLS", KILLS), seed = from_environment("MPATH_KILLS_SEED", 1);

    (void)state;
    for (unsigned kill = seed; kill < seed + kills; kill++) {
        job_t job = {.setup    = {.size = RANKS, .nodes = 2, .nics = 2},
                     .victim   = (int)(kill % RANKS),
                     .delay_us = kill * 7919 % LATEST_US};

        job.setup.may_die   = 1u << job.victim;
        job.setup.may_abort = ucx_may_abort() ? (1u << RANKS) - 1 : 0;
        if (ranks_run(&job.setup, kill_body, &job) != 0) {
            fail_msg("rank %d killed after %u us (MPATH_KILLS_SEED=%u): not all others came out of it", job.victim,
                     job.delay_us, kill);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
