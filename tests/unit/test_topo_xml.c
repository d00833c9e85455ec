/* SPDX-License-Identifier: BSD-3-Clause */
/* Topology files: what is written reads back identically, and the three formats. */
#define _GNU_SOURCE /* feenableexcept() */
#include "unit/topo_xml_support.h"

#include <fenv.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const sample = "<mpath version=\"1\" access=\"affine\" fabric=\"spine\">\n"
                                  "  <rank node=\"1\" nic=\"1\" gpu=\"3\"/>\n"
                                  "  <node host=\"a\" numa=\"2\" host-memory-bps=\"8000000000\">\n"
                                  "    <nic name=\"rail0\" rail=\"0\" rate-bps=\"25000000\" numa=\"1\" up=\"1\"/>\n"
                                  "    <nic name=\"mlx5_0:1\" rail=\"5\" rate-bps=\"6250000\" numa=\"0\" up=\"0\"/>\n"
                                  "  </node>\n"
                                  "  <node host=\"b &lt;&#34;&amp;&#9;&gt;\" host-memory-bps=\"1\">\n"
                                  "    <nic name=\"x\" rate-bps=\"1\"/>\n"
                                  "    <nic name=\"y\" rate-bps=\"2\"/>\n"
                                  "  </node>\n"
                                  "  <!-- the other rank -->\n"
                                  "  <rank node=\"0\"/>\n"
                                  "</mpath>\n";

/* Status of a process that traps invalid operations and reads a file. */
static int trapping_process(void)
{
    mpath_topo_file_t file;

    signal(SIGFPE, SIG_DFL);
    feclearexcept(FE_ALL_EXCEPT);
    if (feenableexcept(FE_INVALID | FE_DIVBYZERO) == -1) {
        return 0; /* a processor without traps */
    }
    if (parse(sample, &file) != MPATH_OK) {
        return 1;
    }
    mpath_topo_file_release(&file);
    return (fetestexcept(FE_INVALID | FE_DIVBYZERO) != 0) || (fedisableexcept(0) != (FE_INVALID | FE_DIVBYZERO));
}

/* Before any other test, since libxml2 prepares itself once in a process. */
static void test_traps(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(trapping_process());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_own_format(void **state)
{
    mpath_topo_file_t file;

    (void)state;
    assert_int_equal(parse(sample, &file), MPATH_OK);
    assert_int_equal(file.num_nodes, 2);
    assert_int_equal(file.num_ranks, 2);
    assert_int_equal(file.params.access, MPATH_REACH_AFFINE);
    assert_int_equal(file.params.fabric, MPATH_FABRIC_SPINE);
    assert_string_equal(file.machines[0].host, "a");
    assert_int_equal(file.machines[0].num_numa, 2);
    assert_true(file.machines[0].host_memory_bps == 8000000000ull);
    assert_int_equal(file.machines[0].num_nics, 2);
    assert_string_equal(file.machines[0].nics[1].name, "mlx5_0:1");
    assert_int_equal(file.machines[0].nics[1].rail, 5);
    assert_int_equal(file.machines[0].nics[1].rate_bps, 6250000);
    assert_int_equal(file.machines[0].nics[1].up, 0);
    assert_int_equal(file.machines[0].nics[0].numa, 1);
    assert_string_equal(file.machines[1].host, "b <\"&\t>");
    assert_int_equal(file.machines[1].num_numa, 1);
    assert_int_equal(file.machines[1].nics[1].rail, 1);
    assert_int_equal(file.machines[1].nics[1].numa, -1);
    assert_int_equal(file.machines[1].nics[1].up, 1);
    assert_int_equal(file.places[0].node, 1);
    assert_int_equal(file.places[0].nic, 1);
    assert_int_equal(file.places[0].gpu, 3);
    assert_int_equal(file.places[1].node, 0);
    assert_int_equal(file.places[1].nic, -1);
    assert_int_equal(file.places[1].gpu, -1);
    mpath_topo_file_release(&file);
    assert_null(file.machines);
}

static mpath_topo_t *build(const mpath_topo_file_t *file)
{
    mpath_topo_t *topo = NULL;

    assert_int_equal(mpath_topo_file_build(file, &topo), MPATH_OK);
    return topo;
}

/* A file, its topology, and the file written from that say the same. */
static void check_reload(const mpath_topo_file_t *file)
{
    char path[]         = "/tmp/mpath_topo_xml_XXXXXX";
    int descriptor      = mkstemp(path);
    mpath_topo_t *first = build(file), *second;
    mpath_topo_file_t again;

    assert_true(descriptor >= 0);
    close(descriptor);
    assert_int_equal(mpath_topo_file_save(first, path), MPATH_OK);
    assert_int_equal(mpath_topo_file_load(path, &again), MPATH_OK);
    unlink(path);
    assert_int_equal(again.num_nodes, file->num_nodes);
    assert_int_equal(again.num_ranks, file->num_ranks);
    assert_memory_equal(again.machines, file->machines, (size_t)file->num_nodes * sizeof(*file->machines));
    if (file->num_ranks > 0) {
        assert_memory_equal(again.places, file->places, (size_t)file->num_ranks * sizeof(*file->places));
    }
    assert_int_equal(again.gpus == NULL, file->gpus == NULL);
    if (file->gpus != NULL) {
        assert_memory_equal(again.gpus, file->gpus, (size_t)file->num_nodes * sizeof(*file->gpus));
    }
    assert_memory_equal(&again.params, &file->params, sizeof(file->params));
    second = build(&again);
    assert_true(mpath_topo_signature(first) == mpath_topo_signature(second));
    mpath_topo_destroy(second);
    mpath_topo_destroy(first);
    mpath_topo_file_release(&again);
}

static void test_reload(void **state)
{
    mpath_topo_file_t file;

    (void)state;
    assert_int_equal(parse(sample, &file), MPATH_OK);
    check_reload(&file);
    mpath_topo_file_release(&file);
}

static void load_sample(const char *name, mpath_topo_file_t *file)
{
    const char *folder = getenv("MPATH_TEST_SRCDIR");
    char path[4096];

    if (folder == NULL) {
        skip(); /* not started by make check */
    }
    snprintf(path, sizeof(path), "%s/unit/topo/%s", folder, name);
    assert_int_equal(mpath_topo_file_load(path, file), MPATH_OK);
}

static void check_nic(const mpath_nic_t *nic, const char *name, int rail, uint64_t rate_bps, int numa, int up)
{
    assert_string_equal(nic->name, name);
    assert_int_equal(nic->rail, rail);
    assert_true(nic->rate_bps == rate_bps);
    assert_int_equal(nic->numa, numa);
    assert_int_equal(nic->up, up);
}

/* Everything that mpath's format can say of GPUs. */
static void test_own_gpus(void **state)
{
    mpath_topo_file_t file;
    const mpath_node_gpus_t *gpus;

    (void)state;
    assert_int_equal(
        parse("<mpath version='1' access='affine'>\n"
              "<node host-memory-bps='90' gpu-link='mesh' uplink-bps='7'>\n"
              "<nvlink from='1' to='0' bps='12'/><nvlink from='0' to='1' bps='11'/>\n"
              "<gpu pcie-up-bps='5' pcie-down-bps='6' nics=' 0  2 '/><gpu pcie-up-bps='5' pcie-down-bps='6'/>\n"
              "<nic name='a' rate-bps='1'/><nic name='b' rate-bps='1'/><nic name='c' rate-bps='1'/></node>\n"
              "<node host-memory-bps='90' gpu-link='switch' nvlink-domain='3'>\n"
              "<gpu pcie-up-bps='5' pcie-down-bps='6' egress-bps='8' ingress-bps='9'/></node>\n"
              "<node host-memory-bps='90' gpu-link='pcie'><gpu pcie-up-bps='5' pcie-down-bps='6'/></node>\n"
              "<node host-memory-bps='90'><gpu pcie-up-bps='5' pcie-down-bps='6'/></node>\n"
              "<node host-memory-bps='90'/>\n"
              "<rank node='0' nic='1' gpu='1'/><rank node='1' gpu='0'/><rank node='4' gpu='30000'/></mpath>\n",
              &file),
        MPATH_OK);
    gpus = file.gpus;
    assert_non_null(gpus);
    assert_int_equal(gpus[0].num_gpus, 2);
    assert_int_equal(gpus[0].link, MPATH_GPU_LINK_MESH);
    assert_int_equal(gpus[0].domain, -1);
    assert_int_equal(gpus[0].uplink_bps, 7);
    assert_int_equal(gpus[0].nvlink_bps[0][1], 11);
    assert_int_equal(gpus[0].nvlink_bps[1][0], 12);
    assert_int_equal(gpus[0].gpus[0].nics, 5);
    assert_int_equal(gpus[0].gpus[1].nics, 0);
    assert_int_equal(gpus[0].gpus[1].pcie_up_bps, 5);
    assert_int_equal(gpus[0].gpus[1].pcie_down_bps, 6);
    assert_int_equal(gpus[1].link, MPATH_GPU_LINK_SWITCH);
    assert_int_equal(gpus[1].domain, 3);
    assert_int_equal(gpus[1].gpus[0].egress_bps, 8);
    assert_int_equal(gpus[1].gpus[0].ingress_bps, 9);
    assert_int_equal(gpus[2].link, MPATH_GPU_LINK_PCIE);
    assert_int_equal(gpus[3].link, MPATH_GPU_LINK_NONE);
    assert_int_equal(gpus[4].num_gpus, 0);
    check_reload(&file);
    mpath_topo_file_release(&file);
}

/* A preset, written and read back, is the same topology. */
static void test_presets(void **state)
{
    static const char *const names[] = {"h100-mesh4", "hgx-h200", "gb200-nvl72"};
    mpath_topo_t *preset, *again;
    mpath_topo_file_t file;
    char *text  = NULL;
    size_t size = 0, i;
    FILE *out;

    (void)state;
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(mpath_topo_preset(names[i], 0, &preset), MPATH_OK);
        out = open_memstream(&text, &size);
        assert_non_null(out);
        assert_int_equal(mpath_topo_file_write(preset, out), MPATH_OK);
        fclose(out);
        assert_int_equal(mpath_topo_file_parse("preset", text, size, &file), MPATH_OK);
        free(text);
        again = build(&file);
        assert_int_equal(mpath_topo_num_resources(again), mpath_topo_num_resources(preset));
        assert_true(mpath_topo_signature(again) == mpath_topo_signature(preset));
        check_reload(&file);
        mpath_topo_destroy(again);
        mpath_topo_destroy(preset);
        mpath_topo_file_release(&file);
    }
}

static void test_nccl(void **state)
{
    mpath_topo_file_t file;

    (void)state;
    load_sample("nccl.xml", &file);
    assert_int_equal(file.num_nodes, 1);
    assert_int_equal(file.num_ranks, 0);
    assert_int_equal(file.machines[0].num_numa, 2);
    assert_int_equal(file.machines[0].num_nics, 4);
    check_nic(&file.machines[0].nics[0], "mlx5_0:1", 0, 50000000000ull, 0, 1);
    check_nic(&file.machines[0].nics[1], "mlx5_2:2", 1, 25000000000ull, 1, 1);
    check_nic(&file.machines[0].nics[2], "mlx5_3:1", 2, 50000000000ull, 1, 1);
    check_nic(&file.machines[0].nics[3], "eth0", 3, 1250000000ull, 1, 1);
    check_reload(&file);
    mpath_topo_file_release(&file);
}

static void check_gpu(const mpath_gpu_t *gpu, uint32_t nics, uint64_t pcie_bps, uint64_t port_bps)
{
    assert_int_equal(gpu->nics, nics);
    assert_true(gpu->pcie_up_bps == pcie_bps);
    assert_true(gpu->pcie_down_bps == pcie_bps);
    assert_true(gpu->egress_bps == port_bps);
    assert_true(gpu->ingress_bps == port_bps);
}

static void test_nccl_gpus(void **state)
{
    mpath_topo_file_t file;
    int g, k;

    (void)state;
    load_sample("nccl-hgx.xml", &file);
    assert_non_null(file.gpus);
    assert_int_equal(file.gpus->num_gpus, 8);
    assert_int_equal(file.gpus->link, MPATH_GPU_LINK_SWITCH);
    assert_int_equal(file.gpus->domain, -1);
    for (g = 0; g < 8; g++) {
        check_gpu(&file.gpus->gpus[g], 1u << g, 48000000000ull, 370800000000ull);
    }
    check_reload(&file);
    mpath_topo_file_release(&file);

    load_sample("nccl-mesh.xml", &file);
    assert_int_equal(file.gpus->num_gpus, 4);
    assert_int_equal(file.gpus->link, MPATH_GPU_LINK_MESH);
    for (g = 0; g < 4; g++) {
        check_gpu(&file.gpus->gpus[g], (g < 2) ? 1 : 2, 12000000000ull, 0);
        for (k = 0; k < 4; k++) {
            assert_true(file.gpus->nvlink_bps[g][k] == ((g == k) ? 0 : (g + k == 3) ? 40000000000ull : 80000000000ull));
        }
    }
    check_reload(&file);
    mpath_topo_file_release(&file);

    /* NICs are in the order of their numbers, and GPUs beside the same ones all the same. */
    assert_int_equal(parse("<system><cpu numaid='0'><pci><gpu dev='0'/></pci><net name='b' dev='1' speed='1'/></cpu>"
                           "<cpu numaid='1'><pci><gpu dev='1'/></pci><net name='c' dev='2' speed='1'/></cpu>"
                           "<cpu numaid='2'><pci><gpu dev='2'/></pci><net name='a' dev='0' speed='1'/></cpu></system>",
                           &file),
                     MPATH_OK);
    assert_int_equal(file.machines[0].num_nics, 3);
    for (k = 0; k < 3; k++) {
        check_nic(&file.machines[0].nics[k], (const char *[]){"a", "b", "c"}[k], k, 125000, (k + 2) % 3, 1);
        assert_int_equal(file.gpus->gpus[k].nics, 1u << ((k + 1) % 3));
    }
    mpath_topo_file_release(&file);

    /* Without NVLinks, without attributes. */
    assert_int_equal(parse("<system><pci><gpu/></pci><net name='x' speed='1'/></system>", &file), MPATH_OK);
    assert_int_equal(file.gpus->link, MPATH_GPU_LINK_PCIE);
    check_gpu(&file.gpus->gpus[0], 0, 12000000000ull, 0);
    check_reload(&file);
    mpath_topo_file_release(&file);
    /* A GPU that stands where no PCI device is, a link to one that is not there. */
    assert_int_equal(parse("<system><cpu><net name='x' speed='1'/><gpu sm='100'><nvlink tclass='0x030000' target='z'/>"
                           "<nvlink tclass='0x068000' count='18'/></gpu></cpu></system>",
                           &file),
                     MPATH_OK);
    assert_int_equal(file.gpus->link, MPATH_GPU_LINK_SWITCH);
    check_gpu(&file.gpus->gpus[0], 1, 12000000000ull, 721800000000ull);
    mpath_topo_file_release(&file);
}

static void test_hwloc(void **state)
{
    mpath_topo_file_t file;

    (void)state;
    load_sample("hwloc.xml", &file);
    assert_int_equal(file.num_nodes, 1);
    assert_int_equal(file.machines[0].num_numa, 2);
    assert_true(file.machines[0].host_memory_bps == 12000000000ull); /* three cores */
    assert_int_equal(file.machines[0].num_nics, 3);
    check_nic(&file.machines[0].nics[0], "mlx5_2:1", 0, 1250000000ull, 1, 1);
    check_nic(&file.machines[0].nics[1], "mlx5_10:1", 1, 63015000000ull, 0, 1);
    check_nic(&file.machines[0].nics[2], "mlx5_10:2", 2, 63015000000ull, 0, 0);
    check_reload(&file);
    mpath_topo_file_release(&file);

    /* Without InfiniBand the network interfaces; hwloc 3 writes other numbers for types. */
    assert_int_equal(parse("<topology version=\"2.0\"><object type=\"Machine\"><object type=\"OSDev\" name=\"eth1\" "
                           "osdev_type=\"2\"/></object></topology>",
                           &file),
                     MPATH_OK);
    assert_int_equal(file.machines[0].num_nics, 1);
    check_nic(&file.machines[0].nics[0], "eth1", 0, 1250000000ull, -1, 1);
    mpath_topo_file_release(&file);
    assert_int_equal(parse("<topology version=\"3.0\"><object type=\"OSDev\" name=\"eth1\" osdev_type=\"16\"/>"
                           "<object type=\"OSDev\" name=\"sda\" osdev_type=\"2\"/></topology>",
                           &file),
                     MPATH_OK);
    assert_int_equal(file.machines[0].num_nics, 1);
    assert_string_equal(file.machines[0].nics[0].name, "eth1");
    mpath_topo_file_release(&file);
}

static void test_no_file(void **state)
{
    mpath_topo_file_t file;
    mpath_topo_t *topo;

    (void)state;
    capture_start();
    assert_int_equal(mpath_topo_file_load("/nowhere/rack.xml", &file), MPATH_ERR_IO);
    assert_non_null(strstr(capture_text(), "topology file /nowhere/rack.xml: No such file or directory"));
    assert_int_equal(mpath_topo_file_load("/", &file), MPATH_ERR_IO);
    assert_int_equal(parse(sample, &file), MPATH_OK);
    topo = build(&file);
    assert_int_equal(mpath_topo_file_save(topo, "/nowhere/rack.xml"), MPATH_ERR_IO);
    assert_non_null(strstr(capture_text(), "it is not written"));
    assert_int_equal(mpath_topo_file_save(topo, "/dev/full"), MPATH_ERR_IO);
    capture_stop();
    assert_int_equal(capture_count(), 4);
    mpath_topo_destroy(topo);
    mpath_topo_file_release(&file);
}

static void test_emulated(void **state)
{
    static const char *const modes[] = {"no", "copies", "rails"};
    char text[2048];
    mpath_topo_file_t file;

    (void)state;
    for (int mode = MPATH_EMULATED_NO; mode <= (int)MPATH_EMULATED_RAILS; mode++) {
        virtual_nodes(text, sizeof(text), modes[mode], "a", ON_GPUS);
        assert_int_equal(parse(text, &file), MPATH_OK);
        assert_int_equal(file.params.emulated, mode);
        check_reload(&file);
        mpath_topo_file_release(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traps),     cmocka_unit_test(test_own_format), cmocka_unit_test(test_reload),
        cmocka_unit_test(test_nccl),      cmocka_unit_test(test_own_gpus),   cmocka_unit_test(test_presets),
        cmocka_unit_test(test_nccl_gpus), cmocka_unit_test(test_hwloc),      cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_emulated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
