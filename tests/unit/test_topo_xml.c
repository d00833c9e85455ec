/* SPDX-License-Identifier: BSD-3-Clause */
/* Topology files: what is written reads back identically, and the three formats. */
#define _GNU_SOURCE /* feenableexcept() */
#include "unit/child.h"
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
    pid = child_fork();
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
    assert_int_equal(file.places[1].nic, 0); /* the one that is up */
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
              "<gpu pcie-up-bps='5' pcie-down-bps='6' nics=' 0  2 '/><gpu pcie-up-bps='5' pcie-down-bps='6'/>"
              "<gpu pcie-up-bps='5' pcie-down-bps='6' nics=''/>\n"
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
    assert_int_equal(gpus[0].num_gpus, 3);
    assert_int_equal(gpus[0].link, MPATH_GPU_LINK_MESH);
    assert_int_equal(gpus[0].domain, -1);
    assert_int_equal(gpus[0].uplink_bps, 7);
    assert_int_equal(gpus[0].nvlink_bps[0][1], 11);
    assert_int_equal(gpus[0].nvlink_bps[1][0], 12);
    assert_int_equal(gpus[0].gpus[0].nics, 5);
    assert_int_equal(gpus[0].gpus[1].nics, 2); /* its part of all, as the file does not say */
    assert_int_equal(gpus[0].gpus[2].nics, 0);
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
    /* two ports of a card, which carries 55.005984 GB/s */
    check_nic(&file.machines[0].nics[1], "mlx5_2:2", 1, 18335328000ull, 1, 1);
    check_nic(&file.machines[0].nics[2], "mlx5_3:1", 2, 36670656000ull, 1, 1);
    check_nic(&file.machines[0].nics[3], "eth0", 3, 1250000000ull, 1, 1);
    check_reload(&file);
    mpath_topo_file_release(&file);
}

static void check_gpu(const mpath_gpu_t *gpu, uint64_t nics, uint64_t pcie_bps, uint64_t port_bps)
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
        check_gpu(&file.gpus->gpus[g], 1u << g, 55005984000ull, 370800000000ull);
    }
    check_reload(&file);
    mpath_topo_file_release(&file);

    load_sample("nccl-mesh.xml", &file);
    assert_int_equal(file.gpus->num_gpus, 4);
    assert_int_equal(file.gpus->link, MPATH_GPU_LINK_MESH);
    for (g = 0; g < 4; g++) {
        check_gpu(&file.gpus->gpus[g], (g < 2) ? 1 : 2, 13751496000ull, 0);
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
    check_gpu(&file.gpus->gpus[0], 1, 27502992000ull, 0);
    check_reload(&file);
    mpath_topo_file_release(&file);
    /* A GPU that stands where no PCI device is, a link to one that is not there. */
    assert_int_equal(parse("<system><cpu><net name='x' speed='1'/><gpu sm='100'><nvlink tclass='0x030000' target='z'/>"
                           "<nvlink tclass='0x068000' count='18'/></gpu></cpu></system>",
                           &file),
                     MPATH_OK);
    assert_int_equal(file.gpus->link, MPATH_GPU_LINK_SWITCH);
    check_gpu(&file.gpus->gpus[0], 1, 27502992000ull, 721800000000ull);
    mpath_topo_file_release(&file);
}

/* What the processes of a job tell of one NIC, each under its own CPU, is one NIC, beside no NUMA node. */
static void test_nccl_twice(void **state)
{
    mpath_topo_file_t file;

    (void)state;
    assert_int_equal(
        parse("<system><cpu numaid='0'><net name='eth0' dev='0' speed='10000' port='0'/><pci><gpu dev='0'/>"
              "</pci></cpu><cpu numaid='1'><net name='eth0' dev='0' speed='10000' port='0'/>"
              "<pci><gpu dev='1'/></pci></cpu></system>",
              &file),
        MPATH_OK);
    assert_int_equal(file.machines[0].num_nics, 1);
    check_nic(&file.machines[0].nics[0], "eth0", 0, 1250000000ull, -1, 1);
    assert_int_equal(file.gpus->gpus[0].nics, 1);
    assert_int_equal(file.gpus->gpus[1].nics, 1);
    mpath_topo_file_release(&file);
}

#define HOST(_hash, _net)                                                                                              \
    "<cpu host_hash='" _hash "' numaid='0'><net name='" _net "' dev='0' speed='100000' port='1'/><pci><gpu dev='0' "   \
    "sm='103'><nvlink tclass='0x068000' count='18'/></gpu></pci></cpu>"

/* Hosts are told apart by their hashes, and one dump has several where their GPUs share NVLinks. */
static void test_nccl_hosts(void **state)
{
    mpath_topo_file_t file;
    mpath_topo_t *topo;

    (void)state;
    assert_int_equal(parse("<system>" HOST("0xb", "m0")
                               HOST("0xa", "m0") "<cpu host_hash='0xb' numaid='1'>"
                                                 "<pci><gpu dev='1'/></pci></cpu>" HOST("0xc", "m1") "</system>",
                           &file),
                     MPATH_OK);
    assert_int_equal(file.num_nodes, 3);
    assert_int_equal(file.gpus[0].num_gpus, 2);
    assert_int_equal(file.gpus[1].num_gpus, 1);
    assert_int_equal(file.machines[0].num_numa, 2);
    for (int node = 0; node < 3; node++) {
        check_nic(&file.machines[node].nics[0], (node < 2) ? "m0:1" : "m1:1", 0, 12500000000ull, 0, 1);
        assert_int_equal(file.gpus[node].domain, 0);
    }
    /* All of its nodes, or as many more of such groups, each with an NVLink domain of its own. */
    assert_int_equal(mpath_topo_file_populate("sample", &file, 0), MPATH_OK);
    assert_int_equal(file.num_nodes, 3);
    assert_int_equal(file.num_ranks, 4);
    topo = build(&file);
    assert_true(mpath_topo_is_linked(topo, 0, 2));
    mpath_topo_destroy(topo);
    mpath_topo_file_release(&file);
    assert_int_equal(parse("<system>" HOST("0xb", "m0") HOST("0xa", "m0") "</system>", &file), MPATH_OK);
    assert_int_equal(mpath_topo_file_populate("sample", &file, 4), MPATH_OK);
    topo = build(&file);
    assert_true(mpath_topo_is_linked(topo, 0, 1));
    assert_false(mpath_topo_is_linked(topo, 0, 2));
    assert_true(mpath_topo_is_linked(topo, 2, 3));
    assert_string_equal(file.machines[3].host, "node3");
    mpath_topo_destroy(topo);
    mpath_topo_file_release(&file);
}

/* A name of names is as many NICs, in its place among the others, with the speed divided. */
static void test_nccl_fused(void **state)
{
    mpath_topo_file_t file;

    (void)state;
    assert_int_equal(parse("<system><cpu numaid='0'><net name='z' dev='9' speed='8' port='1'/>"
                           "<net name='mlx5_0+mlx5_1+mlx5_2+mlx5_3+mlx5_10' dev='2' speed='800000' port='1'/>"
                           "<net name='y' dev='1' speed='8' port='1'/></cpu></system>",
                           &file),
                     MPATH_OK);
    assert_int_equal(file.machines[0].num_nics, 7);
    for (int nic = 0; nic < 7; nic++) {
        static const char *const names[] = {"y:1", "mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1", "mlx5_10:1", "z:1"};

        check_nic(&file.machines[0].nics[nic], names[nic], nic, ((nic % 6) == 0) ? 1000000 : 20000000000ull, 0, 1);
    }
    mpath_topo_file_release(&file);
}

/* A GPU without a NIC on its CPU has its part of all, as in a job. */
static void test_nccl_apart(void **state)
{
    mpath_topo_file_t file;
    mpath_topo_t *topo;

    (void)state;
    assert_int_equal(parse("<system><cpu numaid='0'><net name='a' dev='0' speed='8'/><net name='b' dev='1' speed='8'/>"
                           "<net name='c' dev='2' speed='8'/></cpu><cpu numaid='1'><pci><gpu dev='0'/></pci>"
                           "<pci><gpu dev='1'/></pci></cpu></system>",
                           &file),
                     MPATH_OK);
    assert_int_equal(file.gpus->gpus[0].nics, 5);
    assert_int_equal(file.gpus->gpus[1].nics, 2);
    assert_int_equal(mpath_topo_file_populate("sample", &file, 0), MPATH_OK);
    topo = build(&file);
    assert_int_equal(mpath_topo_num_paths(topo, 0, 2), 3);
    mpath_topo_destroy(topo);
    mpath_topo_file_release(&file);
}

/* In a language whose numbers have a comma, a point ends them. */
double __wrap_strtod(const char *text, char **end);

double __wrap_strtod(const char *text, char **end)
{
    char *at;
    double value = (double)strtol(text, &at, 10);

    if (end != NULL) {
        *end = at;
    }
    return value;
}

/* The link to the processor, and parts of one GPU, whatever the language. */
static void test_nccl_host_links(void **state)
{
    mpath_topo_file_t file;

    (void)state;
    assert_int_equal(
        parse("<system><cpu numaid='0'><net name='a' speed='8'/>"
              "<pci busid='0f:01.0' link_speed='2.5 GT/s PCIe' link_width='16'><gpu dev='0'>"
              "<c2c bw='43125' count='8'/></gpu></pci>"
              "<pci link_speed='2.5 GT/s PCIe' link_width='16'><gpu dev='1'/></pci>"
              "<pci busid='1:2' link_speed='16.0 GT/s PCIe' link_width='16'><gpu dev='2'/><gpu dev='3'/></pci>"
              "<pci link_speed='16.0 GT/s PCIe' link_width='16'><gpu dev='4' sm='80'>"
              "<nvlink target='1:2' count='4' tclass='0x030200'/></gpu></pci></cpu></system>",
              &file),
        MPATH_OK);
    check_gpu(&file.gpus->gpus[0], 1, 345000000000ull, 0);
    check_gpu(&file.gpus->gpus[1], 1, 3492000000ull, 0);
    check_gpu(&file.gpus->gpus[2], 1, 13751496000ull, 0);
    check_gpu(&file.gpus->gpus[3], 1, 13751496000ull, 0);
    check_gpu(&file.gpus->gpus[4], 1, 27502992000ull, 0);
    assert_true(file.gpus->nvlink_bps[4][2] == 40000000000ull);
    assert_true(file.gpus->nvlink_bps[4][3] == 40000000000ull);
    mpath_topo_file_release(&file);
}

/* As many NICs as masks have bits, all of them in paths. */
static void test_nccl_many(void **state)
{
    char text[16384] = "<system><cpu numaid='0'>";
    mpath_topo_file_t file;
    mpath_topo_t *topo;
    size_t length;

    (void)state;
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        length = strlen(text);
        snprintf(text + length, sizeof(text) - length, "<net name='r%d' dev='%d' speed='100000' port='1'/>", nic, nic);
    }
    strcat(text, "<pci><gpu dev='0'/></pci></cpu></system>");
    assert_int_equal(parse(text, &file), MPATH_OK);
    assert_int_equal(file.machines[0].num_nics, MPATH_MAX_NICS);
    assert_true(file.gpus->gpus[0].nics == UINT64_MAX);
    check_reload(&file);
    assert_int_equal(mpath_topo_file_populate("sample", &file, 2), MPATH_OK);
    topo = build(&file);
    assert_int_equal(mpath_topo_num_paths(topo, 0, 1), MPATH_MAX_NICS);
    mpath_topo_destroy(topo);
    mpath_topo_file_release(&file);
}

static void test_nccl_slots(void **state)
{
    mpath_topo_file_t file;

    (void)state;
    assert_int_equal(
        parse("<system><cpu numaid='0'><pci busid='0:42:00.0' link_speed='16.0 GT/s PCIe' link_width='16'><nic>"
              "<net name='m0' dev='0' speed='200000' port='1'/><net name='m1' dev='1' speed='200000' port='2'/>"
              "</nic></pci><pci busid='0:43:00.0' link_speed='16.0 GT/s PCIe' link_width='16'><nic>"
              "<net name='m2' dev='2' speed='400000' port='1'/></nic></pci>"
              "<pci busid='0:44:00.0' link_speed='Unknown'><nic><net name='m3' dev='3' speed='400000' "
              "port='1'/></nic></pci></cpu></system>",
              &file),
        MPATH_OK);
    check_nic(&file.machines[0].nics[0], "m0:1", 0, 13751496000ull, 0, 1);
    check_nic(&file.machines[0].nics[1], "m1:2", 1, 13751496000ull, 0, 1);
    check_nic(&file.machines[0].nics[2], "m2:1", 2, 27502992000ull, 0, 1);
    check_nic(&file.machines[0].nics[3], "m3:1", 3, 50000000000ull, 0, 1);
    mpath_topo_file_release(&file);
}

/* Ranks of which a file does not say their NIC have it as a job deals them. */
static void test_places(void **state)
{
#define GPU "<gpu pcie-up-bps='9' pcie-down-bps='9' nics='0 1'/>"
    mpath_topo_file_t file;

    (void)state;
    assert_int_equal(parse("<mpath version='1'><node host-memory-bps='9' gpu-link='pcie'><nic name='a' rate-bps='1'/>"
                           "<nic name='b' rate-bps='1'/>" GPU GPU "</node>"
                           "<rank node='0' gpu='0'/><rank node='0' gpu='1'/><rank node='0' gpu='0' nic='-1'/>"
                           "<rank node='0' gpu='1' nic='1'/><rank node='0' gpu='1'/><rank node='0'/></mpath>",
                           &file),
                     MPATH_OK);
    for (int rank = 0; rank < 6; rank++) {
        assert_int_equal(file.places[rank].nic, ((const int[]){0, 1, -1, 1, 0, 1})[rank]);
    }
    mpath_topo_file_release(&file);
}

/* NICs of which GPUs use all are alike, although another GPU's way to them counts in plans. */
static void test_alike(void **state)
{
    mpath_topo_t *topo;

    (void)state;
    assert_int_equal(mpath_topo_preset("hgx-h200", 0, &topo), MPATH_OK);
    assert_true(mpath_topo_rails_alike(topo));
    assert_false(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
    mpath_topo_destroy(topo);
}

/* InfiniBand in hwloc 3, whose devices are of several types at once. */
static void test_hwloc_bits(void **state)
{
    mpath_topo_file_t file;

    (void)state;
    assert_int_equal(
        parse("<topology version='3.0'><object type='PCIDev' pci_busid='0000:01:00.0' pci_link_speed='31.5'>"
              "<object type='OSDev' name='ib0' osdev_type='16'/>"
              "<object type='OSDev' name='mlx5_0' osdev_type='48'><info name='Port1State' value='4'/>"
              "<info name='Port2State' value='4'/></object></object></topology>",
              &file),
        MPATH_OK);
    assert_int_equal(file.machines[0].num_nics, 2);
    check_nic(&file.machines[0].nics[0], "mlx5_0:1", 0, 15750000000ull, -1, 1); /* half of the card's slot */
    check_nic(&file.machines[0].nics[1], "mlx5_0:2", 1, 15750000000ull, -1, 1);
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
        cmocka_unit_test(test_traps),      cmocka_unit_test(test_own_format), cmocka_unit_test(test_reload),
        cmocka_unit_test(test_nccl),       cmocka_unit_test(test_own_gpus),   cmocka_unit_test(test_presets),
        cmocka_unit_test(test_nccl_gpus),  cmocka_unit_test(test_hwloc),      cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_emulated),   cmocka_unit_test(test_nccl_twice), cmocka_unit_test(test_nccl_hosts),
        cmocka_unit_test(test_nccl_fused), cmocka_unit_test(test_nccl_apart), cmocka_unit_test(test_nccl_host_links),
        cmocka_unit_test(test_nccl_many),  cmocka_unit_test(test_nccl_slots), cmocka_unit_test(test_places),
        cmocka_unit_test(test_alike),      cmocka_unit_test(test_hwloc_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
