/* SPDX-License-Identifier: BSD-3-Clause */
/* Topology files: what is written reads back identically, the three formats, and errors that name the line. */
#include "topo/xml.h"
#include "unit/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static mpath_status_t parse(const char *text, mpath_topo_file_t *file)
{
    memset(file, 0, sizeof(*file));
    return mpath_topo_file_parse("sample.xml", text, strlen(text), file);
}

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
    mpath_topo_file_release(&file);
}

/* Refused with one message that contains `expected`. */
static void refuse(const char *text, const char *expected)
{
    mpath_topo_file_t file;

    capture_start();
    assert_int_equal(parse(text, &file), MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_count(), 1);
    if (strstr(capture_text(), expected) == NULL) {
        fail_msg("'%s' lacks '%s'", capture_text(), expected);
    }
    assert_non_null(strstr(capture_text(), "topology file sample.xml"));
    assert_non_null(strstr(capture_text(), "; the file is not used\n"));
    assert_null(file.machines);
}

#define HEAD "<mpath version='1'>\n"
#define NODE "<node host-memory-bps='1'>\n"
#define TAIL "</node>\n</mpath>\n"

static void test_bad_own(void **state)
{
    (void)state;
    refuse("<mpath/>", "sample.xml:1: mpath without attribute 'version'");
    refuse("<mpath version='2'/>", "sample.xml:1: mpath version '2' must be a whole number from 1 to 1");
    refuse("<mpath version='1'/>", "sample.xml:1: mpath without a node");
    refuse("<mpath version='1' acess='all'/>", "mpath has no attribute 'acess'");
    refuse("<mpath version='1' access='some'/>", "mpath access 'some' must be all or affine");
    refuse("<mpath version='1' fabric='torus'/>", "mpath fabric 'torus' must be rails or spine");
    refuse(HEAD "<nodes/>\n</mpath>", "sample.xml:2: element 'nodes' inside mpath must be node or rank");
    refuse(HEAD "<node/>\n</mpath>", "sample.xml:2: node without attribute 'host-memory-bps'");
    refuse(HEAD "<node host-memory-bps='0'/>\n</mpath>",
           "sample.xml:2: node host-memory-bps '0' must be a whole number from 1 to 10000000000000");
    refuse(HEAD "<node host-memory-bps='1' numa='0'/></mpath>", "node numa '0'");
    refuse(HEAD NODE "\n<cpu/>" TAIL, "sample.xml:4: element 'cpu' inside node must be nic, gpu or nvlink");
    refuse(HEAD NODE "<nic rate-bps='1'/>" TAIL, "sample.xml:3: nic without attribute 'name'");
    refuse(HEAD NODE "<nic name='' rate-bps='1'/>" TAIL, "sample.xml:3: nic name is empty");
    refuse(HEAD NODE "<nic name='01234567890123456789012345678901' rate-bps='1'/>" TAIL, "has more than 31 bytes");
    refuse(HEAD NODE "<nic name='x'/>" TAIL, "sample.xml:3: nic without attribute 'rate-bps'");
    refuse(HEAD NODE "<nic name='x' rate-bps='0'/>" TAIL, "sample.xml:3: nic rate-bps '0' must be");
    refuse(HEAD NODE "<nic name='x' rate-bps='-1'/>" TAIL, "nic rate-bps '-1' must be");
    refuse(HEAD NODE "<nic name='x' rate-bps='1e9'/>" TAIL, "nic rate-bps '1e9' must be");
    refuse(HEAD NODE "<nic name='x' rate-bps='99999999999999999999999'/>" TAIL, "nic rate-bps '9999");
    refuse(HEAD NODE "<nic name='x' rate-bps='1' rail='64'/>" TAIL,
           "nic rail '64' must be a whole number from 0 to 63");
    refuse(HEAD NODE "<nic name='x' rate-bps='1' up='2'/>" TAIL, "nic up '2'");
    refuse(HEAD NODE "<nic name='x' rate-bps='1' numa='-2'/>" TAIL, "nic numa '-2'");
    refuse(HEAD NODE "<nic name='x' rate-bps='1'/>\n<nic name='y' rail='0' rate-bps='1'/>" TAIL,
           "sample.xml:4: nic rail '0' is taken by nic 'x' of this node");
    refuse(HEAD NODE "<nic name='x' rate-bps='1'/>\n<nic name='x' rail='0' rate-bps='1'/>" TAIL,
           "sample.xml:4: nic rail '0' is taken by nic 'x' of this node");
    refuse(HEAD "<rank node='1'/>" NODE TAIL, "sample.xml:2: rank node '1' must be a whole number from 0 to 0");
    refuse(HEAD "<rank/>" NODE TAIL, "sample.xml:2: rank without attribute 'node'");
    refuse(HEAD NODE "<nic name='x' rate-bps='1'/></node>\n<rank node='0' nic='1'/></mpath>",
           "sample.xml:4: rank nic '1' must be a whole number from -1 to 0");
    refuse(HEAD NODE "</node><rank node='0' gpu='-2'/></mpath>", "rank gpu '-2'");
}

static void test_too_many_nics(void **state)
{
    char text[4096] = HEAD NODE, line[64];
    int i;

    (void)state;
    for (i = 0; i <= MPATH_MAX_NICS; i++) {
        snprintf(line, sizeof(line), "<nic name='n%d' rate-bps='1'/>\n", i);
        strcat(text, line);
    }
    strcat(text, TAIL);
    refuse(text, "sample.xml:19: more than 16 nics on a node");
}

static void test_bad_others(void **state)
{
    (void)state;
    refuse("", "no well-formed XML");
    refuse("hello", "sample.xml:1: no well-formed XML");
    refuse(HEAD NODE "<nic name='x'", "sample.xml:3: no well-formed XML");
    refuse("<graph/>", "root element 'graph' is none of mpath, system (NCCL), topology (hwloc)");
    refuse("<system>\n<net speed='1'/></system>", "sample.xml:2: net without attribute 'name'");
    refuse("<system>\n<net name='x'/></system>", "sample.xml:2: net without attribute 'speed'");
    refuse("<system>\n<net name='x' speed='0'/></system>", "net speed '0' must be a whole number from 1 to 80000000");
    refuse("<system>\n<net name='x' speed='1' port='100'/></system>", "net port '100'");
    refuse("<system>\n<cpu numaid='0'/></system>", "sample.xml:1: system without a net");
    refuse("<topology/>", "sample.xml:1: topology without a NIC");
    refuse("<system>\n<cpu numaid='99999'/></system>", "sample.xml:2: cpu numaid '99999'");
    refuse("<system>\n<net name='x' speed='1' port='1'/>\n<net name='x' speed='1' port='1'/></system>",
           "sample.xml:3: net name 'x:1' is used twice");
    refuse("<topology>\n<object type='OSDev' osdev_type='2' name='x'/><object type='OSDev' osdev_type='2' name='x'/>"
           "</topology>",
           "sample.xml:2: object name 'x' is used twice");
    refuse("<topology version='2.0'>\n<object type='OSDev' osdev_type='2'/></topology>",
           "sample.xml:2: object without attribute 'name'");
}

/* Neither other files nor entities are read. */
static void test_entities(void **state)
{
    (void)state;
    refuse("<!DOCTYPE mpath [<!ENTITY x SYSTEM 'file:///etc/hostname'>]>\n" HEAD
           "<node host='a' host-memory-bps='1'>&x;" TAIL,
           "it defines entities");
    refuse("<!DOCTYPE mpath [<!ENTITY x 'eth0'>]>\n" HEAD NODE "<nic name='&x;' rate-bps='1'/>" TAIL,
           "it defines entities");
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
    capture_stop();
    assert_int_equal(capture_count(), 3);
    mpath_topo_destroy(topo);
    mpath_topo_file_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_format), cmocka_unit_test(test_reload),   cmocka_unit_test(test_nccl),
        cmocka_unit_test(test_hwloc),      cmocka_unit_test(test_bad_own),  cmocka_unit_test(test_too_many_nics),
        cmocka_unit_test(test_bad_others), cmocka_unit_test(test_entities), cmocka_unit_test(test_no_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
