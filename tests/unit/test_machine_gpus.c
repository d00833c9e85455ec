/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Discovery of GPUs and their links, what a topology is told of them, the probe and the file that keeps it. On the fake
 * driver and the fake NVML, with four devices that the process sees in another order than that of their PCI addresses.
 */
#include "capture.h"
#include "gpu_kinds.h"
#include "topo/discover/gpu_probe.h"
#include "util/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPUS 4

static char folder[256];

static mpath_gpu_survey_t survey_take(void)
{
    mpath_gpu_survey_t survey;

    assert_int_equal(mpath_gpu_survey(&survey), MPATH_OK);
    return survey;
}

static mpath_machine_t some_machine(void)
{
    mpath_machine_t machine = {.host = "here", .num_numa = 1, .num_nics = 2, .host_memory_bps = 8000000000};
    int i;

    for (i = 0; i < 2; i++) {
        snprintf(machine.nics[i].name, MPATH_NIC_NAME_MAX, "none%d", i);
        machine.nics[i].rate_bps = 1000000000;
        machine.nics[i].rail     = (int16_t)i;
        machine.nics[i].numa     = -1;
        machine.nics[i].up       = 1;
    }
    return machine;
}

static mpath_node_gpus_t model(const char *links)
{
    mpath_machine_t machine = some_machine();
    mpath_gpu_survey_t survey;
    mpath_node_gpus_t gpus;

    setenv("FAKE_NVML_LINKS", links, 1);
    survey = survey_take();
    mpath_gpu_survey_model(&survey, &machine, &gpus);
    return gpus;
}

/* A topology takes it, with a rank on each GPU. */
static void assert_usable(const mpath_machine_t *machine, const mpath_node_gpus_t *gpus)
{
    const mpath_topo_params_t params = {.access = MPATH_REACH_AFFINE, .fabric = 0};
    mpath_place_t places[GPUS];
    mpath_topo_t *topo;
    int g;

    for (g = 0; g < GPUS; g++) {
        places[g] = (mpath_place_t){.node = 0, .nic = -1, .gpu = g};
    }
    assert_int_equal(mpath_topo_create_with_gpus(machine, gpus, 1, places, GPUS, &params, &topo), MPATH_OK);
    assert_true(mpath_topo_num_paths(topo, 0, 1) > 0);
    mpath_topo_destroy(topo);
}

/* Runs first. */
static void test_without_a_driver_there_is_nothing(void **state)
{
    mpath_machine_t machine   = some_machine();
    mpath_gpu_survey_t survey = survey_take();
    mpath_node_gpus_t gpus;

    (void)state;
    assert_int_equal(survey.num_gpus, 0);
    mpath_gpu_survey_model(&survey, &machine, &gpus);
    assert_int_equal(gpus.num_gpus, 0);
    assert_int_equal(gpus.link, MPATH_GPU_LINK_NONE);
    assert_int_equal(machine.host_memory_bps, 8000000000);
    gpu_application_starts();
}

static void test_without_nvml_peers_are_known(void **state)
{
    mpath_machine_t machine   = some_machine();
    mpath_gpu_survey_t survey = survey_take();
    mpath_node_gpus_t gpus;

    (void)state;
    assert_int_equal(survey.num_gpus, GPUS);
    assert_false(survey.has_nvml);
    mpath_gpu_survey_model(&survey, &machine, &gpus);
    assert_int_equal(gpus.link, MPATH_GPU_LINK_PCIE);
    assert_true(gpus.gpus[0].pcie_up_bps > 0);
    gpu_nvml_starts("switch"); /* from here on */
    assert_true(survey_take().has_nvml);
}

static void test_gpus_are_in_the_order_of_their_addresses(void **state)
{
    static const int ordinals[GPUS] = {1, 3, 0, 2}; /* of CUDA_VISIBLE_DEVICES=2,0,3,1 */
    mpath_gpu_survey_t survey       = survey_take();
    mpath_cu_uuid_t counting;
    char uuid[MPATH_GPU_UUID_TEXT];
    int g;

    (void)state;
    assert_int_equal(survey.num_gpus, GPUS);
    for (g = 0; g < GPUS; g++) {
        assert_int_equal(survey.gpus[g].info.ordinal, ordinals[g]);
        assert_int_equal(survey.gpus[g].info.uuid.bytes[15], g);
        assert_int_equal(survey.gpus[g].reaches, 0xfu & ~(1u << g));
        assert_int_equal(survey.gpus[g].pcie_generation, 5);
        assert_int_equal(survey.gpus[g].pcie_width, 16);
    }
    mpath_gpu_uuid_text(&survey.gpus[3].info.uuid, uuid);
    assert_string_equal(uuid, "GPU-66616b65-2067-7075-0000-000000000003");
    for (g = 0; g < (int)sizeof(counting.bytes); g++) {
        counting.bytes[g] = (unsigned char)(g * 16 + g);
    }
    mpath_gpu_uuid_text(&counting, uuid);
    assert_string_equal(uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

static void test_links_to_a_switch_are_a_port(void **state)
{
    mpath_machine_t machine = some_machine();
    mpath_node_gpus_t gpus  = model("switch");
    int g;

    (void)state;
    assert_int_equal(gpus.link, MPATH_GPU_LINK_SWITCH);
    for (g = 0; g < GPUS; g++) {
        /* 18 links of 26.562 GB/s, PCIe 5 x16: what an H200 reaches of them, 391 and 55 GB/s */
        assert_int_equal(gpus.gpus[g].egress_bps / 1000000000, 391);
        assert_int_equal(gpus.gpus[g].ingress_bps, gpus.gpus[g].egress_bps);
        assert_int_equal(gpus.gpus[g].pcie_up_bps / 1000000000, 55);
        assert_int_equal(gpus.gpus[g].nics, 1u << (g % 2)); /* nothing is known of these NICs */
    }
    assert_usable(&machine, &gpus);
}

static void test_links_between_gpus_are_a_mesh(void **state)
{
    mpath_machine_t machine = some_machine();
    mpath_node_gpus_t gpus  = model("mesh");
    int g, p;

    (void)state;
    assert_int_equal(gpus.link, MPATH_GPU_LINK_MESH);
    for (g = 0; g < GPUS; g++) {
        for (p = 0; p < GPUS; p++) {
            assert_int_equal(gpus.nvlink_bps[g][p] / 1000000000, (p != g) ? 130 : 0);
        }
    }
    assert_usable(&machine, &gpus);
    gpus = model("chain");
    assert_int_equal(gpus.link, MPATH_GPU_LINK_MESH);
    assert_int_equal(gpus.nvlink_bps[1][2] / 1000000000, 260);
    assert_int_equal(gpus.nvlink_bps[2][1], gpus.nvlink_bps[1][2]);
    assert_int_equal(gpus.nvlink_bps[0][2], 0);
    assert_usable(&machine, &gpus);
}

static void test_without_links_pcie_or_the_host_remains(void **state)
{
    mpath_machine_t machine = some_machine();
    mpath_node_gpus_t gpus;

    (void)state;
    assert_int_equal(model("none").link, MPATH_GPU_LINK_PCIE);
    assert_int_equal(model("silent").link, MPATH_GPU_LINK_PCIE);
    setenv("FAKE_CUDA_WITHOUT", "peers", 1);
    gpus = model("mesh"); /* links that the driver lets nobody use */
    unsetenv("FAKE_CUDA_WITHOUT");
    assert_int_equal(gpus.link, MPATH_GPU_LINK_NONE);
    assert_usable(&machine, &gpus);
}

/* No topology tells which pairs reach each other so. */
static void test_pcie_is_for_all_or_none(void **state)
{
    mpath_machine_t machine = some_machine();
    mpath_gpu_survey_t survey;
    mpath_node_gpus_t gpus;

    (void)state;
    setenv("FAKE_NVML_LINKS", "none", 1);
    survey = survey_take();
    survey.gpus[2].reaches &= ~1u;
    mpath_gpu_survey_model(&survey, &machine, &gpus);
    assert_int_equal(gpus.link, MPATH_GPU_LINK_NONE);
    assert_usable(&machine, &gpus);
}

/* What processes know of a GPU each makes the same survey in any order. */
static void test_a_survey_of_several_processes(void **state)
{
    static const int order[] = {2, 0, 2, 3, 1};
    mpath_gpu_survey_t survey, whole = {.num_gpus = 0};

    (void)state;
    setenv("FAKE_NVML_LINKS", "chain", 1);
    survey = survey_take();
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        mpath_gpu_survey_add(&whole, &survey.gpus[order[i]]);
        mpath_gpu_survey_number(&whole);
        assert_int_equal(whole.gpus[0].links_elsewhere, (i == 0) ? 24 : ((i < 4) ? 12 : 0)); /* of 2, then of 0 */
    }
    assert_int_equal(whole.num_gpus, GPUS);
    assert_memory_equal(whole.gpus, survey.gpus, sizeof(survey.gpus));
    assert_int_equal(mpath_gpu_survey_find(&whole, &survey.gpus[3].info.uuid), 3);
    /* what NVML denies may be so all the same, but is not taken for granted for a link's sake */
    assert_string_equal(whole.gpus[1].others[0].pci, survey.gpus[0].info.pci);
    whole.gpus[1].others[0].reach = MPATH_GPU_REACH_DOUBTED;
    whole.gpus[1].others[1].reach = MPATH_GPU_REACH_UNTOLD;
    mpath_gpu_survey_number(&whole);
    assert_int_equal(whole.gpus[1].reaches, 1u << 2 | 1u << 3);
    assert_int_equal(whole.gpus[1].untold, 1u << 0);
}

static void test_the_probe_measures_and_is_kept(void **state)
{
    mpath_machine_t machine = some_machine();
    mpath_gpu_probe_t probe, again;
    mpath_gpu_survey_t survey;
    mpath_node_gpus_t gpus;
    int g;

    (void)state;
    setenv("FAKE_NVML_LINKS", "switch", 1);
    survey = survey_take();
    assert_int_equal(mpath_gpu_probe_load(&survey, &again), MPATH_ERR_UNSUPPORTED);
    assert_int_equal(mpath_gpu_probe_run(&survey, 64 << 10, &probe), MPATH_OK);
    assert_int_equal(probe.num_gpus, GPUS);
    for (g = 0; g < GPUS; g++) {
        assert_true((probe.up_bps[g] > 0) && (probe.down_bps[g] > 0) && (probe.each_way_bps[g] > 0));
        assert_true((probe.both_bps[g] > 0) && (probe.beside_bps[g] > 0));
        assert_true((probe.copy_bps[g][(g + 1) % GPUS] > 0) && (probe.copy_bps[g][(g + 2) % GPUS] > 0));
        assert_int_equal(probe.copy_bps[g][g], 0);
    }
    assert_true((probe.ring_bps > 0) && (probe.host_bps > 0) && (probe.copy_latency_ns > 0));
    assert_int_equal(mpath_gpu_probe_save(&survey, &probe), MPATH_OK);
    assert_int_equal(mpath_gpu_probe_load(&survey, &again), MPATH_OK);
    assert_memory_equal(&probe, &again, sizeof(probe));
    mpath_gpu_survey_model(&survey, &machine, &gpus);
    mpath_gpu_probe_apply(&again, &machine, &gpus);
    assert_int_equal(gpus.link, MPATH_GPU_LINK_SWITCH);
    assert_int_equal(machine.host_memory_bps, probe.host_bps);
    assert_int_equal(gpus.gpus[2].pcie_up_bps, probe.up_bps[2]);
    assert_int_equal(gpus.gpus[2].egress_bps, probe.ring_bps);
    assert_usable(&machine, &gpus);
    survey.driver_version++;
    assert_int_equal(mpath_gpu_probe_load(&survey, &again), MPATH_ERR_UNSUPPORTED);
}

/* As two H200 were seen, in GB/s: alone, under memcheck, under racecheck, and beside another job. */
static void test_what_a_probe_is_doubted_for(void **state)
{
    static const struct {
        uint64_t ring, kernel;
        const char *doubt; /* part of it; NULL: none */
    } cases[] = {{369, 370, NULL}, {378, 98, "debugger"}, {371, 2, "debugger"}, {150, 300, "somebody else"},
                 {0, 300, NULL}, /* not measured */
                 {369, 0, NULL}};
    mpath_node_gpus_t gpus = {.num_gpus = 2, .link = MPATH_GPU_LINK_SWITCH};

    (void)state;
    for (int g = 0; g < 2; g++) {
        gpus.gpus[g].egress_bps = gpus.gpus[g].ingress_bps = UINT64_C(450000000000);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mpath_gpu_probe_t probe = {.num_gpus = 2, .ring_bps = cases[i].ring * 1000000000};
        const char *doubt;

        probe.kernel_bps[0] = UINT64_C(370000000000);
        probe.kernel_bps[1] = cases[i].kernel * 1000000000;
        doubt               = mpath_gpu_probe_doubt(&probe, &gpus);
        assert_true((cases[i].doubt == NULL) ? (doubt == NULL)
                                             : ((doubt != NULL) && (strstr(doubt, cases[i].doubt) != NULL)));
    }
    gpus.link = MPATH_GPU_LINK_NONE;
    assert_null(mpath_gpu_probe_doubt(&(mpath_gpu_probe_t){.num_gpus = 2, .ring_bps = 1}, &gpus));
}

static void test_the_probe_without_peers_measures_the_host(void **state)
{
    mpath_gpu_survey_t survey;
    mpath_gpu_probe_t probe;

    (void)state;
    setenv("FAKE_CUDA_WITHOUT", "peers", 1);
    survey = survey_take();
    assert_int_equal(mpath_gpu_probe_run(&survey, 64 << 10, &probe), MPATH_OK);
    unsetenv("FAKE_CUDA_WITHOUT");
    assert_true((probe.up_bps[3] > 0) && (probe.host_bps > 0));
    assert_int_equal(probe.copy_bps[0][1], 0);
    assert_int_equal(probe.ring_bps, 0);
}

static void test_measured_rates_show_links_that_nobody_told_of(void **state)
{
    mpath_gpu_probe_t probe = {.num_gpus = GPUS, .up_bps = {50, 50, 50, 50}, .ring_bps = 380, .host_bps = 90};
    mpath_machine_t machine = some_machine();
    mpath_node_gpus_t gpus  = model("silent");

    (void)state;
    probe.copy_bps[1][3] = 390;
    mpath_gpu_probe_apply(&probe, &machine, &gpus);
    assert_int_equal(gpus.link, MPATH_GPU_LINK_SWITCH);
    assert_int_equal(gpus.gpus[1].egress_bps, 380);
    assert_true(gpus.gpus[1].pcie_down_bps > 1000); /* not measured */
    assert_int_equal(machine.host_memory_bps, 90);
    gpus                 = model("silent");
    probe.copy_bps[1][3] = 60;
    mpath_gpu_probe_apply(&probe, &machine, &gpus);
    assert_int_equal(gpus.link, MPATH_GPU_LINK_PCIE);
    gpus                 = model("mesh");
    probe.copy_bps[1][3] = 120;
    mpath_gpu_probe_apply(&probe, &machine, &gpus);
    assert_int_equal(gpus.nvlink_bps[1][3], 120);
}

static void assert_refused(const char *text, const char *message)
{
    mpath_gpu_survey_t survey = survey_take();
    mpath_gpu_probe_t probe;

    capture_start();
    assert_int_equal(mpath_gpu_probe_parse("file.txt", text, &survey, &probe), MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_count(), 1);
    if (strstr(capture_text(), message) == NULL) {
        fail_msg("'%s' is not in: %s", message, capture_text());
    }
}

static void test_a_damaged_file_is_refused(void **state)
{
    char text[2048];

    (void)state;
    assert_refused("", "file.txt: it is empty; the file is not used");
    assert_refused("# nothing\n", "it is empty");
    assert_refused("driver 13000\nring\n", "file.txt:2: 'ring' is no line of a probe");
    assert_refused("ring fast\n", "file.txt:1: 'ring' is no line");
    assert_refused("ring -1\n", "'ring' is no line");
    assert_refused("ring 1 2\n", "'ring' is no line");
    assert_refused("ring 99999999999999999999999\n", "'ring' is no line");
    assert_refused("ring 10000000000001\n", "'ring' is no line");
    assert_refused("copy-from 4 1 2 3 4\n", "'copy-from' is no line");
    assert_refused("copy-from 0 1 2 3\n", "'copy-from' is no line");
    assert_refused("copy-latency 5000000000\n", "'copy-latency' is no line");
    assert_refused("speed 5\n", "'speed' is no line");
    assert_refused("driver 12000\nring 5\n", "file.txt:1: it is of other GPUs or another driver");
    assert_refused("ring 5\ngpu 0 GPU-0 0000:10:00.0\n", "file.txt:2: it is of other GPUs");
    assert_refused("gpu 9 x y\n", "it is of other GPUs");
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_refused(text, "is no line of a probe");
}

/* One of before the host was measured beside links is read; its figures are not known. */
static void test_an_older_file_is_read(void **state)
{
    mpath_gpu_survey_t survey = survey_take();
    mpath_gpu_probe_t probe;

    (void)state;
    assert_int_equal(
        mpath_gpu_probe_parse("file.txt", "driver 13000\nhost-to-device 4 5 6 7\nring 9\n", &survey, &probe), MPATH_OK);
    assert_int_equal(probe.down_bps[3], 7);
    assert_int_equal(probe.beside_bps[3], 0);
    assert_int_equal(
        mpath_gpu_probe_parse("file.txt", "host-both-ways 4 5 6 7\nhost-beside 1 2 3 4\n", &survey, &probe), MPATH_OK);
    assert_int_equal(probe.both_bps[1], 5);
    assert_int_equal(probe.beside_bps[2], 3);
}

/* Two copies that end together: none gets longer. What one adds to the other, within what a file may say. */
static void test_copies_that_end_together(void **state)
{
    uint64_t first = 16 << 20, second = 4 << 20;

    (void)state;
    mpath_gpu_probe_even(8000000000, 1000000000, &first, &second);
    assert_true((first == 16 << 20) && (second == 2 << 20));
    mpath_gpu_probe_even(1000000000, 1000000000, &first, &second);
    assert_true((first == 2 << 20) && (second == 2 << 20));
    mpath_gpu_probe_even(1, 1000000000, &first, &second);
    assert_true((first == 4096) && (second == 2 << 20));
    assert_int_equal(mpath_gpu_probe_added(400000000000, 390000000000, 8 << 20, 1 << 20), 38750000000);
    assert_int_equal(mpath_gpu_probe_added(50000000000, 25000000000, 1 << 20, 1 << 20), 1);
    assert_int_equal(mpath_gpu_probe_added(1, MPATH_MAX_RATE_BPS, 4096, 1 << 20), MPATH_MAX_RATE_BPS);
}

static void test_a_folder_that_cannot_be_is_an_error(void **state)
{
    mpath_gpu_probe_t probe   = {.num_gpus = GPUS};
    mpath_gpu_survey_t survey = survey_take();

    (void)state;
    setenv("MPATH_CACHE_DIR", "/proc/none", 1);
    capture_start();
    assert_int_equal(mpath_gpu_probe_save(&survey, &probe), MPATH_ERR_IO);
    capture_stop();
    setenv("MPATH_CACHE_DIR", folder, 1);
    assert_int_equal(capture_count(), 1);
    assert_non_null(strstr(capture_text(), "it is not kept"));
}

static void test_cache_paths(void **state)
{
    char path[64], small[8];

    (void)state;
    setenv("MPATH_CACHE_DIR", "/a", 1);
    assert_int_equal(mpath_cache_path("f", path, sizeof(path)), MPATH_OK);
    assert_string_equal(path, "/a/f");
    unsetenv("MPATH_CACHE_DIR");
    setenv("XDG_CACHE_HOME", "/b", 1);
    assert_int_equal(mpath_cache_path("f", path, sizeof(path)), MPATH_OK);
    assert_string_equal(path, "/b/mpath/f");
    assert_int_equal(mpath_cache_path("f", small, sizeof(small)), MPATH_ERR_UNSUPPORTED);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/c", 1);
    assert_int_equal(mpath_cache_path("f", path, sizeof(path)), MPATH_OK);
    assert_string_equal(path, "/c/.cache/mpath/f");
    unsetenv("HOME");
    assert_int_equal(mpath_cache_path("f", path, sizeof(path)), MPATH_ERR_UNSUPPORTED);
    setenv("MPATH_CACHE_DIR", folder, 1);
}

/* Such as /dev/null, which a file in its place would take from everybody. */
static void test_no_file_takes_the_place_of_a_pipe(void **state)
{
    char path[128], *text;
    struct stat there;

    (void)state;
    snprintf(path, sizeof(path), "/tmp/mpath-cache-pipe.%ld", (long)getpid());
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(300); /* an open pipe gives no end of file */
    capture_start();
    assert_int_equal(mpath_cache_write(path, "x", 1), MPATH_ERR_IO);
    assert_int_equal(mpath_cache_read(path, &text), MPATH_ERR_UNSUPPORTED);
    capture_stop();
    alarm(0);
    assert_non_null(strstr(capture_text(), "is no regular file, or a link of another user; it is not kept"));
    assert_int_equal(lstat(path, &there), 0);
    assert_true(S_ISFIFO(there.st_mode));
    unlink(path);
}

static int remove_folder(void **state)
{
    mpath_gpu_survey_t survey = survey_take();
    char name[MPATH_GPU_PROBE_NAME], path[512];

    (void)state;
    mpath_gpu_probe_name(&survey, name);
    if (mpath_cache_path(name, path, sizeof(path)) == MPATH_OK) {
        (void)unlink(path);
    }
    *strrchr(folder, '/') = '\0';
    snprintf(path, sizeof(path), "%s/deeper", folder);
    return rmdir(path) | rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_driver_there_is_nothing),
        cmocka_unit_test(test_without_nvml_peers_are_known),
        cmocka_unit_test(test_gpus_are_in_the_order_of_their_addresses),
        cmocka_unit_test(test_links_to_a_switch_are_a_port),
        cmocka_unit_test(test_links_between_gpus_are_a_mesh),
        cmocka_unit_test(test_without_links_pcie_or_the_host_remains),
        cmocka_unit_test(test_pcie_is_for_all_or_none),
        cmocka_unit_test(test_a_survey_of_several_processes),
        cmocka_unit_test(test_the_probe_measures_and_is_kept),
        cmocka_unit_test(test_what_a_probe_is_doubted_for),
        cmocka_unit_test(test_an_older_file_is_read),
        cmocka_unit_test(test_copies_that_end_together),
        cmocka_unit_test(test_the_probe_without_peers_measures_the_host),
        cmocka_unit_test(test_measured_rates_show_links_that_nobody_told_of),
        cmocka_unit_test(test_a_damaged_file_is_refused),
        cmocka_unit_test(test_a_folder_that_cannot_be_is_an_error),
        cmocka_unit_test(test_cache_paths),
        cmocka_unit_test(test_no_file_takes_the_place_of_a_pipe),
    };
    char temporary[] = "/tmp/mpath-gpus.XXXXXX";

    unsetenv("MPATH_TEST_CUDA"); /* the machine of these tests is the fake one */
    setenv("CUDA_VISIBLE_DEVICES", "2,0,3,1", 1);
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    if (mkdtemp(temporary) == NULL) {
        return 1;
    }
    snprintf(folder, sizeof(folder), "%s/deeper", temporary);
    setenv("MPATH_CACHE_DIR", folder, 1);
    return cmocka_run_group_tests(tests, NULL, remove_folder);
}
