/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rates of GPUs in the component, on the driver without a GPU: the ranks of the first job measure them together and
 * leave a file, later ones read it; every rank has the same. They decide which way a call takes, and are the capacities
 * of the topology that plans are made for.
 */
#include "a2a.h"
#include "coll/alltoallv.h"
#include "node/rates.h"
#include "team/team_private.h"
#include "gpu_kinds.h"
#include "ranks.h"
#include "topo/discover/gpus.h"
#include "unit/capture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RANKS 4
#define GBPS 1000000000ull

typedef struct job {
    ranks_setup_t setup;
    int probe;          /* mpath_gpu_probe_use_t */
    const char *file;   /* gpu_probe_file */
    const char *full;   /* FAKE_CUDA_FULL */
    const char *links;  /* FAKE_NVML_LINKS; NULL: no NVML */
    int alone;          /* every process sees its own GPU only */
    int known;          /* what is to come out: whether figures are known, */
    uint64_t ring_bps;  /* and this one; 0: any but 0 */
    int by_engine;      /* of a call: what has to carry it; -1: no call */
    uint64_t odd_bytes; /* of each allocation beyond a multiple of 64 KiB */
} job_t;

static char folder[] = "/tmp/mpath-rates.XXXXXX";

/* --- files ------------------------------------------------------------------------------------------------------- */

static int count_files(void)
{
    struct dirent *entry;
    DIR *files = opendir(folder);
    int count  = 0;

    assert_non_null(files);
    while ((entry = readdir(files)) != NULL) {
        count += strncmp(entry->d_name, "gpus-", 5) == 0;
    }
    closedir(files);
    return count;
}

static void remove_files(void)
{
    char path[512];
    struct dirent *entry;
    DIR *files = opendir(folder);

    assert_non_null(files);
    while ((entry = readdir(files)) != NULL) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
            unlink(path);
        }
    }
    closedir(files);
}

/* A file as mpath_info --probe leaves it, with these figures. */
static void write_file(const char *file, uint64_t copy_bps, uint64_t ring_bps, uint64_t kernel_bps, uint64_t up_bps)
{
    FILE *out = fopen(file, "w");
    int g, p;

    assert_non_null(out);
    fprintf(out, "driver 13000\n");
    for (g = 0; g < RANKS; g++) {
        fprintf(out, "gpu %d GPU-66616b65-2067-7075-0000-00000000000%d 0000:1%d:00.0\n", g, g, g);
    }
    fprintf(out, "device-to-host %llu 1 1 1\nkernel %llu %llu %llu %llu\nring %llu\nhost 9000000000\n",
            (unsigned long long)up_bps, (unsigned long long)kernel_bps, (unsigned long long)kernel_bps,
            (unsigned long long)kernel_bps, (unsigned long long)kernel_bps, (unsigned long long)ring_bps);
    for (g = 0; g < RANKS; g++) {
        fprintf(out, "copy-from %d", g);
        for (p = 0; p < RANKS; p++) {
            fprintf(out, " %llu", (p == g) ? 0ull : (unsigned long long)copy_bps);
        }
        fputc('\n', out);
    }
    fclose(out);
}

/* --- a job ------------------------------------------------------------------------------------------------------- */

static mpath_team_t *make_team(ranks_self_t *self, const job_t *job, mpath_context_t **context_p)
{
    mpath_settings_t settings;
    char text[16];

    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("FAKE_CUDA_FULL", (job->full != NULL) ? job->full : "", 1);
    if (job->alone) {
        snprintf(text, sizeof(text), "%d", self->rank);
        setenv("CUDA_VISIBLE_DEVICES", text, 1);
    }
    gpu_application_starts();
    if (job->links != NULL) {
        gpu_nvml_starts(job->links);
    }
    mpath_settings_init(&settings);
    settings.gate             = MPATH_GATE_ALWAYS;
    settings.gpu_probe        = job->probe;
    settings.gpu_probe_file   = (job->file != NULL) ? job->file : "";
    settings.timeout_s        = 100;
    settings.gpu_memory_bytes = 512 << 10; /* also what is measured with */
    *context_p                = ranks_context(self, &settings);
    return ranks_team(self, *context_p);
}

static mpath_gpu_t *my_gpu(const ranks_self_t *self, const job_t *job)
{
    mpath_gpu_t *gpu;

    ranks_check(mpath_gpu_get(job->alone ? 0 : self->rank, NULL, &gpu) == MPATH_OK);
    return gpu;
}

/* All ranks have come to the same. */
static void check_same(mpath_team_t *team, const mpath_node_rates_t *mine)
{
    mpath_node_rates_t *all = calloc((size_t)mpath_team_size(team), sizeof(*all));

    ranks_check(mpath_team_allgather(team, mine, sizeof(*mine), all) == MPATH_OK);
    for (int rank = 0; rank < mpath_team_size(team); rank++) {
        ranks_check(memcmp(&all[rank], mine, sizeof(*mine)) == 0);
    }
    free(all);
}

static int rates_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_context_t *context;
    mpath_team_t *team = make_team(self, job, &context);
    mpath_gpu_t *gpu   = my_gpu(self, job);
    mpath_node_rates_t node, again;

    ranks_check(mpath_gpu_rates_agree(team, gpu, &node) == MPATH_OK);
    check_same(team, &node);
    ranks_check(node.known == job->known);
    if (job->known) {
        ranks_check((node.num_gpus == RANKS) && (node.probe.num_gpus == RANKS));
        ranks_check((job->ring_bps > 0) ? (node.probe.ring_bps == job->ring_bps) : (node.probe.ring_bps > 0));
        ranks_check((node.probe.up_bps[0] > 0) && (node.probe.copy_bps[2][3] > 0) && (node.probe.kernel_bps[1] > 0));
        ranks_check((job->file != NULL) || ((node.probe.both_bps[1] > 0) && (node.probe.beside_bps[2] > 0)));
        for (int g = 0; g < RANKS; g++) { /* in the order of their addresses, however processes number them */
            ranks_check(node.uuids[g].bytes[15] == g);
        }
    }
    /* Again, from memory. */
    ranks_check(mpath_gpu_rates_agree(team, gpu, &again) == MPATH_OK);
    ranks_check(memcmp(&again, &node, sizeof(node)) == 0);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void run(const job_t *job)
{
    job_t copy = *job;

    copy.setup.size = RANKS;
    assert_int_equal(ranks_run(&copy.setup, rates_body, &copy), 0);
}

static void test_the_first_job_measures_and_later_ones_read(void **state)
{
    char path[512];

    (void)state;
    remove_files();
    run(&(job_t){.probe = MPATH_GPU_PROBE_FILE, .known = 0});
    run(&(job_t){.probe = MPATH_GPU_PROBE_OFF, .known = 0});
    assert_int_equal(count_files(), 0);
    run(&(job_t){.probe = MPATH_GPU_PROBE_AUTO, .known = 1});
    assert_int_equal(count_files(), 1);
    run(&(job_t){.probe = MPATH_GPU_PROBE_FILE, .known = 1});
    snprintf(path, sizeof(path), "%s/mine.txt", folder);
    write_file(path, 90 * GBPS, 123456789, 80 * GBPS, 7 * GBPS);
    run(&(job_t){.probe = MPATH_GPU_PROBE_AUTO, .file = path, .known = 1, .ring_bps = 123456789});
    assert_int_equal(count_files(), 1);
}

/* Each process sees its own GPU only: the file is still that of all, and the same that others use. */
static void test_processes_see_different_gpus(void **state)
{
    (void)state;
    remove_files();
    run(&(job_t){.probe = MPATH_GPU_PROBE_AUTO, .known = 1, .alone = 1});
    assert_int_equal(count_files(), 1);
    run(&(job_t){.probe = MPATH_GPU_PROBE_FILE, .known = 1});
}

/* No memory to measure with on one GPU: nobody waits for it. What a file with an error says is not used. */
static void test_what_goes_wrong_is_left_out(void **state)
{
    char path[512];
    FILE *out;

    (void)state;
    remove_files();
    run(&(job_t){.probe = MPATH_GPU_PROBE_AUTO, .known = 0, .full = "0"});
    assert_int_equal(count_files(), 0);
    snprintf(path, sizeof(path), "%s/bad.txt", folder);
    out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "ring many\n");
    fclose(out);
    run(&(job_t){.probe = MPATH_GPU_PROBE_FILE, .file = path, .known = 0});
}

/* Links promise more than twice of what was seen: somebody else is at work. */
static void test_the_unbelievable_is_not_kept(void **state)
{
    (void)state;
    remove_files();
    run(&(job_t){.probe = MPATH_GPU_PROBE_AUTO, .known = 0, .links = "switch"});
    assert_int_equal(count_files(), 0);
}

/* --- use --------------------------------------------------------------------------------------------------------- */

/* Allocations are multiples of 64 KiB and `odd_bytes` more. */
static void call_once(ranks_self_t *self, mpath_coll_t *coll, uint64_t pair_bytes, uint64_t odd_bytes)
{
    int device = self->rank % mpath_gpu_count();
    uint64_t demand[RANKS * RANKS];
    gpu_memory_t send_memory, recv_memory;
    mpath_memory_t send, recv;
    mpath_call_t call;
    a2a_t a2a;

    for (int i = 0; i < RANKS * RANKS; i++) {
        demand[i] = pair_bytes;
    }
    a2a_init(&a2a, self->rank, self->size);
    a2a_fill(&a2a, demand, 1);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, (a2a.send_room + 65535) / 65536 * 65536 + odd_bytes, 1, &send_memory);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, (a2a.recv_room + 65535) / 65536 * 65536 + odd_bytes, 1, &recv_memory);
    gpu_memory_write(send_memory.address, a2a.send, a2a.send_room);
    gpu_memory_write(recv_memory.address, a2a.recv, a2a.recv_room);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)send_memory.address, a2a.send_room, &send) == MPATH_OK);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)recv_memory.address, a2a.recv_room, &recv) == MPATH_OK);
    call             = a2a.call;
    call.send_buffer = (void *)(uintptr_t)send_memory.address;
    call.recv_buffer = (void *)(uintptr_t)recv_memory.address;
    call.send_memory = &send;
    call.recv_memory = &recv;
    ranks_check(mpath_alltoallv(coll, &call) == MPATH_OK);
    gpu_memory_read(recv_memory.address, a2a.recv, a2a.recv_room);
    ranks_check(a2a_check(&a2a) == 0);
    a2a_end(&a2a);
    gpu_memory_free(&send_memory);
    gpu_memory_free(&recv_memory);
}

static int way_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_coll_counters_t counters;
    mpath_context_t *context;
    mpath_team_t *team = make_team(self, job, &context);
    mpath_coll_t *coll;

    ranks_check(mpath_gpu_driver()->CtxSetCurrent(NULL) == MPATH_CU_SUCCESS);
    ranks_check(mpath_coll_create(team, &coll) == MPATH_OK);
    call_once(self, coll, 8 << 20, job->odd_bytes);
    mpath_coll_counters(coll, &counters);
    ranks_check((counters.gpu.engine_bytes > 0) == job->by_engine);
    ranks_check((counters.gpu.kernel_bytes > 0) == !job->by_engine);
    mpath_coll_destroy(coll);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

/* The same call, once on a machine with slow kernels and once on one with slow engines. */
static void test_rates_choose_the_way(void **state)
{
    job_t job = {.setup = {.size = RANKS}, .probe = MPATH_GPU_PROBE_FILE};
    char path[512];

    (void)state;
    snprintf(path, sizeof(path), "%s/way.txt", folder);
    job.file = path;
    write_file(path, 391 * GBPS, 384 * GBPS, 20 * GBPS, 50 * GBPS);
    job.by_engine = 1;
    assert_int_equal(ranks_run(&job.setup, way_body, &job), 0);
    write_file(path, 20 * GBPS, 20 * GBPS, 362 * GBPS, 50 * GBPS);
    job.by_engine = 0;
    assert_int_equal(ranks_run(&job.setup, way_body, &job), 0);
}

/* The same call once more, on H200s: into allocations that others have mapped in large pages, and in small ones. */
static void test_pages_choose_the_way(void **state)
{
    job_t job = {.setup = {.size = RANKS}, .probe = MPATH_GPU_PROBE_OFF, .by_engine = 1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, way_body, &job), 0);
    job.odd_bytes = 4096;
    job.by_engine = 0;
    assert_int_equal(ranks_run(&job.setup, way_body, &job), 0);
}

static int capacity_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    const mpath_node_gpus_t *gpus;
    mpath_context_t *context;
    mpath_team_t *team = make_team(self, job, &context);
    mpath_coll_t *coll;

    ranks_check(mpath_coll_create(team, &coll) == MPATH_OK);
    call_once(self, coll, 300000, 0);
    ranks_check(mpath_team_gpu_topo(team) != NULL);
    gpus = mpath_topo_gpus(mpath_team_gpu_topo(team), 0);
    ranks_check(gpus->gpus[0].pcie_up_bps == 7 * GBPS);
    ranks_check(mpath_topo_machine(mpath_team_gpu_topo(team), 0)->host_memory_bps == 9 * GBPS);
    if (gpus->link == MPATH_GPU_LINK_MESH) {
        ranks_check((gpus->nvlink_bps[0][1] == 90 * GBPS) && (gpus->nvlink_bps[3][0] == 90 * GBPS));
    } else {
        ranks_check((gpus->link == MPATH_GPU_LINK_SWITCH) && (gpus->gpus[2].ingress_bps == 85 * GBPS));
    }
    mpath_coll_destroy(coll);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_rates_are_capacities(void **state)
{
    job_t job = {.setup = {.size = RANKS}, .probe = MPATH_GPU_PROBE_FILE, .links = "mesh"};
    char path[512];

    (void)state;
    snprintf(path, sizeof(path), "%s/capacity.txt", folder);
    job.file = path;
    write_file(path, 90 * GBPS, 85 * GBPS, 80 * GBPS, 7 * GBPS);
    assert_int_equal(ranks_run(&job.setup, capacity_body, &job), 0);
    job.links = "switch";
    assert_int_equal(ranks_run(&job.setup, capacity_body, &job), 0);
    job.alone = 1;
    assert_int_equal(ranks_run(&job.setup, capacity_body, &job), 0);
    /* nothing but the copies tells that the GPUs reach each other, and faster than by PCIe */
    job.links = NULL;
    assert_int_equal(ranks_run(&job.setup, capacity_body, &job), 0);
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    setenv("FAKE_CUDA_DELAY_US", "0", 1);
    return setenv("MPATH_CACHE_DIR", folder, 1);
}

static int remove_folder(void **state)
{
    (void)state;
    remove_files();
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_job_measures_and_later_ones_read),
        cmocka_unit_test(test_processes_see_different_gpus),
        cmocka_unit_test(test_what_goes_wrong_is_left_out),
        cmocka_unit_test(test_the_unbelievable_is_not_kept),
        cmocka_unit_test(test_rates_choose_the_way),
        cmocka_unit_test(test_pages_choose_the_way),
        cmocka_unit_test(test_rates_are_capacities),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
