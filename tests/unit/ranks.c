/* SPDX-License-Identifier: BSD-3-Clause */
/* Test ranks: forks them, deals them to virtual nodes, waits for them and says which failed. */
#include "ranks.h"

#include "record/page.h"
#include "team/team_private.h"
#include "team/wait.h"
#include "child.h"
#include "ranks_mesh.h"
#include "util/log.h"
#include "util/time.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_LIMIT_S 600 /* whoever still runs then is killed, and has failed */
#define RANKS_LOST 99     /* exit code of a failed check */

static int my_rank = -1;

void ranks_fail(const char *file, int line, const char *text)
{
    fprintf(stderr, "ranks: rank %d: %s:%d: %s\n", my_rank, file, line, text);
    fflush(NULL);
    _exit(RANKS_LOST);
}

static int node_of(const ranks_setup_t *setup, int rank)
{
    int nodes = setup->nodes > 0 ? setup->nodes : 1;

    return setup->node_of != NULL ? setup->node_of[rank] : rank * nodes / setup->size;
}

static void make_machine(const ranks_setup_t *setup, int node, mpath_machine_t *machine)
{
    memset(machine, 0, sizeof(*machine));
    snprintf(machine->host, sizeof(machine->host), "virtual%d", node);
    machine->num_nics        = setup->nics;
    machine->num_numa        = 1;
    machine->host_memory_bps = 8000000000ull;
    for (int nic = 0; nic < setup->nics; nic++) {
        snprintf(machine->nics[nic].name, sizeof(machine->nics[nic].name), "%s",
                 setup->nic_name != NULL ? setup->nic_name : "lo");
        machine->nics[nic].rate_bps = setup->nic_bps > 0 ? setup->nic_bps : 1000000000ull;
        machine->nics[nic].numa     = -1;
        machine->nics[nic].rail     = (int16_t)nic;
        machine->nics[nic].up       = 1;
    }
}

static int run_rank(const ranks_setup_t *setup, int rank, ranks_shared_t *shared, ranks_body_t body, void *argument)
{
    ranks_self_t self = {.rank = rank, .size = setup->size, .node = node_of(setup, rank)};
    int result;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing is left behind when the test program is killed */
    my_rank = rank;
    mpath_log_set_rank(rank);
    for (int other = 0; other < rank; other++) {
        self.local_rank += node_of(setup, other) == self.node;
    }
    make_machine(setup, self.node, &self.machine);
    mpath_idle_set_load(setup->size, (int)sysconf(_SC_NPROCESSORS_ONLN)); /* virtual nodes have them in common */
    self.mesh = ranks_mesh_create(rank, setup->size, setup->deaf, shared);
    ranks_oob(&self, 0, NULL, setup->size, &self.oob);
    result = body(&self, argument);
    ranks_mesh_destroy(self.mesh);
    return result;
}

/* Says how a rank ended; 1 when that is a failure. */
static int judge(const ranks_setup_t *setup, int rank, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    if (WIFSIGNALED(status)) {
        if ((setup->may_die >> rank & 1) != 0 || (WTERMSIG(status) == SIGABRT && (setup->may_abort >> rank & 1) != 0)) {
            return 0;
        }
        fprintf(stderr, "ranks: rank %d of %d ended by signal %d (%s)\n", rank, setup->size, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
        return 1;
    }
    fprintf(stderr, "ranks: rank %d of %d failed with code %d\n", rank, setup->size, WEXITSTATUS(status));
    return 1;
}

static int has_ended(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/*
 * Dead children are reaped as they come: a process that nobody reaps looks alive to its mates. The control plane tells of
 * them before: nobody finds a process missing that is still there for the control plane.
 */
static int wait_all(const ranks_setup_t *setup, pid_t *pids, ranks_shared_t *shared)
{
    uint64_t start_ns = mpath_time_ns();
    int left = 0, failed = 0, killed = 0;

    for (int rank = 0; rank < setup->size; rank++) {
        left += pids[rank] > 0;
    }
    while (left > 0) {
        for (int rank = 0; rank < setup->size; rank++) {
            int status;

            if (pids[rank] > 0 && has_ended(pids[rank])) {
                ranks_shared_end(shared, rank);
                waitpid(pids[rank], &status, 0);
                pids[rank] = 0;
                left--;
                failed += killed ? 0 : judge(setup, rank, status);
            }
        }
        if (!killed && mpath_time_ns() - start_ns > RANKS_LIMIT_S * MPATH_NS_PER_S) {
            for (int rank = 0; rank < setup->size; rank++) {
                if (pids[rank] > 0) {
                    fprintf(stderr, "ranks: rank %d of %d still runs after %d s: killed\n", rank, setup->size,
                            RANKS_LIMIT_S);
                    kill(pids[rank], SIGKILL);
                    failed++;
                }
            }
            killed = 1;
        }
        usleep(2000);
    }
    return failed;
}

int ranks_run(const ranks_setup_t *setup, ranks_body_t body, void *argument)
{
    ranks_shared_t *shared;
    pid_t pids[RANKS_MAX] = {0};
    int failed            = 0;

    if (setup->size < 1 || setup->size > RANKS_MAX || (shared = ranks_shared_create()) == NULL) {
        return RANKS_MAX;
    }
    for (int rank = 0; rank < setup->size; rank++) {
        pids[rank] = child_fork();
        if (pids[rank] == 0) {
            exit(run_rank(setup, rank, shared, body, argument));
        }
        if (pids[rank] < 0) {
            perror("ranks: fork");
            ranks_shared_end(shared, rank);
            failed++;
        }
    }
    failed += wait_all(setup, pids, shared);
    ranks_shared_destroy(shared);
    return failed;
}

static void drop_line(mpath_log_level_t level, const char *line)
{
    (void)level;
    (void)line;
}

uint64_t ranks_sent_bytes(int nic)
{
    return atomic_load(&mpath_page()->rails[nic].sent_bytes);
}

void ranks_drop_log(void)
{
    mpath_log_set_sink(drop_line);
}

mpath_context_t *ranks_context(ranks_self_t *self, const mpath_settings_t *settings)
{
    mpath_context_t *context;

    ranks_check(mpath_context_create_on(settings, &self->machine, self->local_rank, &context) == MPATH_OK);
    return context;
}

mpath_team_t *ranks_team(ranks_self_t *self, mpath_context_t *context)
{
    mpath_team_t *team;

    ranks_check(mpath_team_create(context, &self->oob, &team) == MPATH_OK);
    return team;
}

void ranks_stay_lost(mpath_team_t *team)
{
    team->next_probe_ns          = UINT64_MAX;
    team->context->lost_until_ns = UINT64_MAX;
}

void ranks_barrier(ranks_self_t *self)
{
    mpath_oob_request_t requests[RANKS_MAX];
    char in[RANKS_MAX], out = 0;
    mpath_oob_t oob;

    ranks_oob(self, 1000000, NULL, self->size, &oob); /* never meets the messages of the control planes in use */
    for (int peer = 0; peer < self->size; peer++) {
        mpath_oob_request_t sent;

        ranks_check(oob.isend(oob.context, peer, &out, 1, &sent) == MPATH_OK);
        ranks_check(oob.irecv(oob.context, peer, &in[peer], 1, &requests[peer]) == MPATH_OK);
    }
    for (int peer = 0; peer < self->size; peer++) {
        mpath_status_t status;

        while ((status = oob.test(oob.context, &requests[peer], NULL)) == MPATH_INPROGRESS) {
            oob.progress(oob.context);
            usleep(100);
        }
        ranks_check(status == MPATH_OK);
    }
}
