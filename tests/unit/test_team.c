/* SPDX-License-Identifier: BSD-3-Clause */
/* Teams: who forms a node, what all ranks must share, several teams at a time, and what is left behind (nothing). */
#include "team/agree.h"
#include "team/team_private.h"
#include "ranks.h"
#include "util/log.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Every rank sends its number to every rank. */
static void check_works(mpath_team_t *team)
{
    int mine = mpath_team_rank(team), all[RANKS_MAX];

    ranks_check(mpath_team_allgather(team, &mine, sizeof(mine), all) == MPATH_OK);
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        ranks_check(all[rank] == rank);
    }
}

/* Rank 2 settles with a mark; the others follow with theirs when they see one, wherever they are. */
static int settle_body(ranks_self_t *self, void *argument)
{
    int mine = self->rank, all[RANKS_MAX], marked = -1;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;

    (void)argument;
    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    for (int round = 0; round < 3; round++) {
        int marks = (self->rank == 2) && (round != 1);

        while (!marks && (round != 1) && !mpath_team_marked(team)) {
            ranks_check(mpath_team_status(team) == MPATH_OK);
            usleep(100);
        }
        ranks_check(mpath_team_settle(team, round != 1, &mine, sizeof(mine), all, &marked) == MPATH_OK);
        ranks_check(marked == (round != 1));
        for (int rank = 0; rank < self->size; rank++) {
            ranks_check(all[rank] == rank);
        }
    }
    check_works(team);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_settle(void **state)
{
    const int dealt[]   = {2, 0, 1, 0, 2, 0, 0};
    const int many[]    = {2, 0, 1, 0, 2, 0, 0, 3, 4, 5, 5, 1};
    ranks_setup_t setup = {.size = 7, .node_of = dealt, .nics = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, settle_body, NULL), 0);
    setup = (ranks_setup_t){.size = 12, .node_of = many, .nics = 2};
    assert_int_equal(ranks_run(&setup, settle_body, NULL), 0);
}

static int nodes_body(ranks_self_t *self, void *argument)
{
    const int *dealt       = argument;
    const int nodes_seen[] = {0, 1, 2, 1, 0, 1, 1}; /* dealt 2, 0, 1, 0, 2, 0, 0, numbered as they appear */
    const int leaders[]    = {0, 1, 2};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    uint64_t ids[RANKS_MAX];

    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    ranks_check(mpath_team_size(team) == self->size && mpath_team_rank(team) == self->rank);
    ranks_check(team->num_nodes == 3 && team->local_rank == self->local_rank);
    for (int rank = 0, next = 0; rank < self->size; rank++) {
        ranks_check(team->node_of[rank] == nodes_seen[rank]);
        ranks_check(mpath_topo_place(mpath_team_topo(team), rank)->node == nodes_seen[rank]);
        if (dealt[rank] == dealt[self->rank]) {
            ranks_check(team->local[next++] == rank);
        }
    }
    for (int node = 0; node < 3; node++) {
        char host[16];

        snprintf(host, sizeof(host), "virtual%d", dealt[leaders[node]]);
        ranks_check(team->leaders[node] == leaders[node]);
        ranks_check(strcmp(mpath_topo_host(mpath_team_topo(team), node), host) == 0);
    }
    ranks_check(mpath_team_memory_bytes(team) > 0);
    ranks_check(mpath_team_memory_bytes(team) <= settings.memory_bytes);
    ranks_check(mpath_team_allgather(team, &team->id, sizeof(team->id), ids) == MPATH_OK);
    for (int rank = 0; rank < self->size; rank++) {
        ranks_check(ids[rank] == team->id);
    }
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_nodes(void **state)
{
    const int dealt[]   = {2, 0, 1, 0, 2, 0, 0};
    ranks_setup_t setup = {.size = 7, .node_of = dealt, .nics = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, nodes_body, (void *)(uintptr_t)dealt), 0);
}

/* NICs are spread over the ranks of a node, and stay a rank's own in every team. */
static int nics_body(ranks_self_t *self, void *argument)
{
    const int members[] = {7, 6, 5, 3, 1}; /* in another order, and not all */
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team, *part;
    mpath_oob_t oob;

    (void)argument;
    mpath_settings_init(&settings);
    settings.access = MPATH_ACCESS_AFFINE;
    context         = ranks_context(self, &settings);
    team            = ranks_team(self, context);
    ranks_check(mpath_topo_params(mpath_team_topo(team))->access == MPATH_REACH_AFFINE);
    for (int rank = 0; rank < self->size; rank++) {
        ranks_check(mpath_topo_place(mpath_team_topo(team), rank)->nic == rank % 4);
    }
    ranks_oob(self, 1, members, 5, &oob);
    if (oob.rank >= 0) {
        ranks_check(mpath_team_create(context, &oob, &part) == MPATH_OK);
        ranks_check(part->id != team->id);
        for (int rank = 0; rank < 5; rank++) {
            ranks_check(mpath_topo_place(mpath_team_topo(part), rank)->nic == members[rank] % 4);
        }
        check_works(part);
    }
    check_works(team);
    if (oob.rank >= 0) {
        check_works(part);
        mpath_team_destroy(part);
    }
    check_works(team);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_nics(void **state)
{
    ranks_setup_t setup = {.size = 8, .nodes = 2, .nics = 4};

    (void)state;
    assert_int_equal(ranks_run(&setup, nics_body, NULL), 0);
}

/* Something about one rank differs: all decline. */
typedef enum difference {
    SAME,
    SMALL_BYTES,
    ACCESS,
    MEMORY,
    CHUNK,
    GPU_MEMORY,
    GPU_HOST_MIN,
    CONTEXT_UNUSABLE,
    TOPOLOGY,
    TIMEOUT /* each may have its own */
} difference_t;

static int settings_body(ranks_self_t *self, void *argument)
{
    difference_t difference = self->rank == 2 ? *(const difference_t *)argument : SAME;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_status_t status, expected;
    mpath_team_t *team = NULL;

    mpath_settings_init(&settings);
    settings.small_bytes += difference == SMALL_BYTES;
    settings.access = difference == ACCESS ? MPATH_ACCESS_AFFINE : MPATH_ACCESS_ALL;
    settings.memory_bytes *= difference == MEMORY ? 2 : 1;
    settings.chunk_bytes *= difference == CHUNK ? 2 : 1;
    settings.gpu_memory_bytes *= difference == GPU_MEMORY ? 2 : 1;
    settings.gpu_host_min_bytes += difference == GPU_HOST_MIN;
    settings.timeout_s += difference == TIMEOUT;
    context = ranks_context(self, &settings);
    if (difference == CONTEXT_UNUSABLE) {
        context->usable = MPATH_ERR_PARAM;
    }
    context->topo_key += difference == TOPOLOGY;
    expected = *(const difference_t *)argument == SAME || *(const difference_t *)argument == TIMEOUT ? MPATH_OK
                                                                                                     : MPATH_DECLINED;
    status   = mpath_team_create(context, &self->oob, &team);
    ranks_check(status == expected && (team != NULL) == (expected == MPATH_OK));
    if (team != NULL) {
        check_works(team);
        mpath_team_destroy(team);
    }
    mpath_context_destroy(context);
    return 0;
}

static void test_settings(void **state)
{
    ranks_setup_t setup = {.size = 5, .nodes = 2};

    (void)state;
    for (difference_t difference = SAME; difference <= TIMEOUT; difference++) {
        assert_int_equal(ranks_run(&setup, settings_body, &difference), 0);
    }
}

static int declined_body(ranks_self_t *self, void *argument)
{
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_oob_t oob;
    int alone[] = {self->rank};

    (void)argument;
    mpath_settings_init(&settings);
    settings.memory_bytes = 4096; /* not even the cells fit */
    context               = ranks_context(self, &settings);
    ranks_check(mpath_team_create(context, &self->oob, &team) == MPATH_DECLINED);
    ranks_oob(self, 1 + self->rank, alone, 1, &oob);
    ranks_check(mpath_team_create(context, &oob, &team) == MPATH_DECLINED); /* one process */
    mpath_context_destroy(context);
    return 0;
}

static void test_declined(void **state)
{
    ranks_setup_t setup = {.size = 16, .nodes = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, declined_body, NULL), 0);
}

/* Segments of this process that still have a name. */
static int count_segments(void)
{
    char prefix[32];
    struct dirent *entry;
    int count = 0;
    DIR *dir  = opendir("/dev/shm");

    snprintf(prefix, sizeof(prefix), "mpath-%d-", (int)getpid());
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static int count_files(void)
{
    int count = 0;
    DIR *dir  = opendir("/proc/self/fd");

    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

/* Many teams one after the other, two alive at a time. */
static int many_body(ranks_self_t *self, void *argument)
{
    mpath_team_t *team, *previous = NULL;
    mpath_settings_t settings;
    mpath_context_t *context;
    int files = 0;

    (void)argument;
    mpath_settings_init(&settings);
    settings.memory_bytes = 1 << 20;
    context               = ranks_context(self, &settings);
    for (int i = 0; i < 40; i++) {
        mpath_oob_t oob;

        ranks_oob(self, i, NULL, self->size, &oob);
        ranks_check(mpath_team_create(context, &oob, &team) == MPATH_OK);
        ranks_check(count_segments() == 0);
        if (previous != NULL) {
            ranks_check(previous->id != team->id);
            check_works(previous);
            mpath_team_destroy(previous);
        }
        check_works(team);
        previous = team;
        if (i == 2) {
            files = count_files();
        }
    }
    ranks_check(count_files() == files);
    mpath_team_destroy(previous);
    mpath_context_destroy(context);
    return 0;
}

static void test_many(void **state)
{
    ranks_setup_t setup = {.size = 4, .nodes = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, many_body, NULL), 0);
}

/* Two threads, each with its team. */
typedef struct thread_job {
    mpath_context_t *context;
    mpath_oob_t oobs[5];
} thread_job_t;

static void *thread_main(void *argument)
{
    thread_job_t *job = argument;

    for (int i = 0; i < 5; i++) {
        mpath_team_t *team;

        ranks_check(mpath_team_create(job->context, &job->oobs[i], &team) == MPATH_OK);
        for (int k = 0; k < 50; k++) {
            check_works(team);
        }
        mpath_team_destroy(team);
    }
    return NULL;
}

static int threads_body(ranks_self_t *self, void *argument)
{
    mpath_settings_t settings;
    thread_job_t jobs[2];
    pthread_t threads[2];
    mpath_context_t *context;

    (void)argument;
    mpath_settings_init(&settings);
    settings.memory_bytes = 1 << 20;
    context               = ranks_context(self, &settings);
    for (int i = 0; i < 2; i++) {
        jobs[i].context = context;
        for (int k = 0; k < 5; k++) {
            ranks_oob(self, 1 + 5 * i + k, NULL, self->size, &jobs[i].oobs[k]);
        }
    }
    for (int i = 0; i < 2; i++) {
        ranks_check(pthread_create(&threads[i], NULL, thread_main, &jobs[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    mpath_context_destroy(context);
    return 0;
}

static void test_threads(void **state)
{
    ranks_setup_t setup = {.size = 4, .nodes = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, threads_body, NULL), 0);
}

/* A topology file that makes two nodes of one host; the team is a part of the job. */
typedef struct file_job {
    char path[64];
    mpath_status_t expected;
    int nodes;
} file_job_t;

static void file_write(file_job_t *job, const char *text)
{
    FILE *file;
    int fd;

    strcpy(job->path, "/tmp/mpath-test-XXXXXX");
    fd = mkstemp(job->path);
    assert_true(fd >= 0);
    file = fdopen(fd, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int file_body(ranks_self_t *self, void *argument)
{
    const file_job_t *job = argument;
    const int members[]   = {3, 2, 1};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_oob_t oob;

    mpath_settings_init(&settings);
    settings.topo_file = job->path;
    ranks_check(mpath_context_create(&settings, self->rank, self->local_rank, &context) == MPATH_OK);
    ranks_check(mpath_team_create(context, &self->oob, &team) == job->expected);
    if (job->expected == MPATH_OK) {
        ranks_check(team->num_nodes == job->nodes);
        check_works(team);
        mpath_team_destroy(team);
    }
    ranks_oob(self, 1, members, 3, &oob);
    if (job->expected == MPATH_OK && oob.rank >= 0) {
        ranks_check(mpath_team_create(context, &oob, &team) == MPATH_OK);
        ranks_check(team->num_nodes == job->nodes);
        if (job->nodes == 2) { /* places follow the job's ranks */
            ranks_check(team->node_of[0] == 0 && team->node_of[1] == 0 && team->node_of[2] == 1);
            ranks_check(strcmp(mpath_topo_host(mpath_team_topo(team), 0), "second") == 0);
            ranks_check(mpath_topo_place(mpath_team_topo(team), 0)->nic == 1);
            ranks_check(mpath_topo_params(mpath_team_topo(team))->access == MPATH_REACH_AFFINE);
        }
        mpath_team_destroy(team);
    }
    mpath_context_destroy(context);
    return 0;
}

static void test_file(void **state)
{
    static const char nodes[] = "<mpath version=\"1\" access=\"affine\">\n"
                                "<node host=\"first\" host-memory-bps=\"8000000000\">"
                                "<nic name=\"a\" rail=\"0\" rate-bps=\"25000000\"/>"
                                "<nic name=\"b\" rail=\"1\" rate-bps=\"25000000\"/></node>\n"
                                "<node host=\"second\" host-memory-bps=\"8000000000\">"
                                "<nic name=\"a\" rail=\"0\" rate-bps=\"25000000\"/>"
                                "<nic name=\"b\" rail=\"1\" rate-bps=\"25000000\"/></node>\n";
    static const char ranks[] = "<rank node=\"0\" nic=\"0\"/><rank node=\"0\" nic=\"1\"/>"
                                "<rank node=\"1\" nic=\"0\"/>";
    ranks_setup_t setup       = {.size = 4};
    char text[2048];
    file_job_t job;

    (void)state;
    snprintf(text, sizeof(text), "%s%s<rank node=\"1\" nic=\"1\"/></mpath>\n", nodes, ranks);
    job.expected = MPATH_OK;
    job.nodes    = 2;
    file_write(&job, text);
    assert_int_equal(ranks_run(&setup, file_body, &job), 0);
    unlink(job.path);

    snprintf(text, sizeof(text), "%s%s</mpath>\n", nodes, ranks); /* a rank is missing: all decline */
    job.expected = MPATH_DECLINED;
    file_write(&job, text);
    assert_int_equal(ranks_run(&setup, file_body, &job), 0);
    unlink(job.path);

    snprintf(text, sizeof(text), "%s</mpath>\n", nodes); /* no node of this name */
    file_write(&job, text);
    assert_int_equal(ranks_run(&setup, file_body, &job), 0);
    unlink(job.path);

    job.expected = MPATH_OK; /* reported and not used */
    job.nodes    = 1;
    file_write(&job, "<mpath version=\"1\"><node></mpath>\n");
    assert_int_equal(ranks_run(&setup, file_body, &job), 0);
    unlink(job.path);
}

/* Of nodes with very many NICs the same ones are driven on all ranks, and places follow. */
static int crowded_body(ranks_self_t *self, void *argument)
{
    const file_job_t *job = argument;
    const mpath_machine_t *machine;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;

    mpath_settings_init(&settings);
    settings.topo_file = job->path;
    ranks_check(mpath_context_create(&settings, self->rank, self->local_rank, &context) == MPATH_OK);
    ranks_check(mpath_team_create(context, &self->oob, &team) == MPATH_OK);
    for (int node = 0; node < 2; node++) {
        machine = mpath_topo_machine(mpath_team_topo(team), node);
        ranks_check(machine->num_nics == MPATH_MAX_NICS);
        for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
            ranks_check(machine->nics[nic].rail == nic);
        }
    }
    for (int rank = 0; rank < 4; rank++) {
        ranks_check(mpath_topo_place(mpath_team_topo(team), rank)->nic == ((rank % 2 == 0) ? 0 : MPATH_MAX_NICS - 1));
    }
    check_works(team);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_crowded(void **state)
{
    ranks_setup_t setup = {.size = 4};
    char text[8192]     = "<mpath version=\"1\">";
    file_job_t job;

    (void)state;
    for (int node = 0; node < 2; node++) {
        sprintf(text + strlen(text), "<node host=\"n%d\" host-memory-bps=\"8000000000\">", node);
        for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
            sprintf(text + strlen(text), "<nic name=\"e%d\" rate-bps=\"25000000\"/>", nic);
        }
        strcat(text, "</node>");
    }
    for (int rank = 0; rank < 4; rank++) {
        sprintf(text + strlen(text), "<rank node=\"%d\" nic=\"%d\"/>", rank / 2,
                (rank % 2 == 0) ? 0 : MPATH_MAX_NICS - 1);
    }
    strcat(text, "</mpath>");
    file_write(&job, text);
    assert_int_equal(ranks_run(&setup, crowded_body, &job), 0);
    unlink(job.path);
}

#define SAY_BYTES 12

/* Every rank says other numbers, and something to its node: all hear the most of them, and from their mates what these say. */
static void check_most(const ranks_self_t *self, mpath_team_t *team, int round)
{
    int size = mpath_team_size(team), loud = round % size, num_mates, rank = -1;
    uint64_t most[MPATH_TEAM_NUMBERS] = {
        (uint64_t)(self->rank == loud) << 50, (uint64_t)self->rank,
        mpath_team_most_fails(team, self->rank < loud ? MPATH_OK : MPATH_ERR_TIMED_OUT)};
    char mine[MPATH_TEAM_MATE_BYTES]            = {(char)self->rank, (char)round};
    char all[RANKS_MAX * MPATH_TEAM_MATE_BYTES] = {0};
    mpath_process_t *mates                      = mpath_team_mates(team, &num_mates);
    const mpath_topo_t *topo                    = mpath_team_topo(team);

    free(mates);
    mine[sizeof(mine) - 1] = 7;
    ranks_check(mpath_team_most_and_mates(team, most, mine, sizeof(mine), all) == MPATH_OK);
    ranks_check(most[0] == UINT64_C(1) << 50 && most[1] == (uint64_t)size - 1);
    ranks_check(mpath_team_most_failed(most[2], &rank) == MPATH_ERR_TIMED_OUT && rank == loud);
    for (int other = 0, mate = 0; other < size; other++) {
        if (mpath_topo_place(topo, other)->node == mpath_topo_place(topo, self->rank)->node) {
            const char *said = all + (size_t)mate++ * sizeof(mine);

            ranks_check(said[0] == other && said[1] == round && said[sizeof(mine) - 1] == 7 && mate <= num_mates);
        }
    }
    most[0] = 1;
    ranks_check(mpath_team_most(team, most) == MPATH_OK && most[0] == 1);
    ranks_check(mpath_team_most_failed(0, &rank) == MPATH_OK);
}

/* Every node says a number in each round, and some an entry: all ranks hear the most of any, and each entry once. */
static int say_body(ranks_self_t *self, void *argument)
{
    char entries[RANKS_MAX * MPATH_TEAM_ENTRY_BYTES];
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    int node, num_nodes;

    (void)argument;
    mpath_settings_init(&settings);
    context   = ranks_context(self, &settings);
    team      = ranks_team(self, context);
    node      = mpath_topo_place(mpath_team_topo(team), self->rank)->node;
    num_nodes = mpath_topo_num_nodes(mpath_team_topo(team));
    for (int round = 0; round < 20; round++) {
        uint32_t mine[SAY_BYTES / 4] = {(uint32_t)node, (uint32_t)(7 * round + node), 5}, theirs[SAY_BYTES / 4];
        mpath_team_few_t said        = {.most        = {(uint64_t)node, (uint64_t)(node == round % num_nodes) << 40, 0},
                                        .entry_bytes = SAY_BYTES,
                                        .num_entries = (round >> node & 1) != 0,
                                        .entries     = entries};
        unsigned seen                = 0;

        memcpy(entries, mine, SAY_BYTES);
        ranks_check(mpath_team_gather_few(team, &said) == MPATH_OK);
        ranks_check(said.most[0] == (uint64_t)num_nodes - 1 && said.most[1] == UINT64_C(1) << 40 && said.most[2] == 0);
        for (size_t i = 0; i < said.num_entries; i++) {
            memcpy(theirs, entries + i * SAY_BYTES, SAY_BYTES);
            ranks_check(theirs[0] < (uint32_t)num_nodes && theirs[1] == 7 * (uint32_t)round + theirs[0] &&
                        theirs[2] == 5);
            ranks_check((seen >> theirs[0] & 1) == 0);
            seen |= 1u << theirs[0];
        }
        ranks_check(seen == ((unsigned)round & ((1u << num_nodes) - 1)));
        check_most(self, team, round);
        if (round % 3 == 0) {
            check_works(team);
        }
    }
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_say(void **state)
{
    const int two[] = {0, 1}, three[] = {2, 0, 1, 0, 2, 0, 0}, four[] = {0, 1, 2, 3}, five[] = {0, 0, 1, 2, 3, 4, 4};
    const int eight[]    = {0, 1, 2, 3, 4, 5, 6, 7};
    ranks_setup_t jobs[] = {{.size = 2, .node_of = two, .nics = 2},
                            {.size = 7, .node_of = three, .nics = 2},
                            {.size = 4, .node_of = four, .nics = 2},
                            {.size = 7, .node_of = five, .nics = 2},
                            {.size = 8, .node_of = eight, .nics = 2}};

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        assert_int_equal(ranks_run(&jobs[i], say_body, NULL), 0);
    }
}

static void test_node_key(void **state)
{
    (void)state;
    assert_true(mpath_node_key("a") == mpath_node_key("a"));
    assert_true(mpath_node_key("a") != mpath_node_key("b"));
    assert_true(mpath_key_mix(0, "ab", 2) != mpath_key_mix(mpath_key_mix(0, "a", 1), "b", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_node_key), cmocka_unit_test(test_nodes),    cmocka_unit_test(test_nics),
        cmocka_unit_test(test_settings), cmocka_unit_test(test_declined), cmocka_unit_test(test_many),
        cmocka_unit_test(test_threads),  cmocka_unit_test(test_file),     cmocka_unit_test(test_settle),
        cmocka_unit_test(test_crowded),  cmocka_unit_test(test_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
