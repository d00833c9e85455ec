/* SPDX-License-Identifier: BSD-3-Clause */
/* Topology files that are refused, in the three formats, with errors that name the line. */
#include "unit/topo_xml_support.h"

#include <stdlib.h>

#include <sys/stat.h>
#include <unistd.h>
#include <stdio.h>
#include <string.h>

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

#define GPU "<gpu pcie-up-bps='1' pcie-down-bps='1'/>"
#define MESH "<node host-memory-bps='1' gpu-link='mesh'>\n" GPU GPU

static void test_bad_gpus(void **state)
{
    char text[4096] = HEAD NODE;
    int i;

    (void)state;
    refuse(HEAD "<node host-memory-bps='1' gpu-link='torus'/></mpath>",
           "sample.xml:2: node gpu-link 'torus' must be none, pcie, mesh or switch");
    refuse(HEAD "<node host-memory-bps='1' gpu-link='mesh'/></mpath>", "sample.xml:2: node gpu-link without a gpu");
    refuse(HEAD "<node host-memory-bps='1' gpu-link='mesh' nvlink-domain='1'>" GPU TAIL,
           "sample.xml:2: node nvlink-domain needs gpu-link 'switch'");
    refuse(HEAD "<node host-memory-bps='1' uplink-bps='0'/></mpath>", "node uplink-bps '0' must be");
    refuse(HEAD NODE "<gpu pcie-up-bps='1'/>" TAIL, "sample.xml:3: gpu without attribute 'pcie-down-bps'");
    refuse(HEAD NODE "<gpu pcie-up-bps='0' pcie-down-bps='1'/>" TAIL, "gpu pcie-up-bps '0' must be");
    refuse(HEAD NODE "<gpu pcie-up-bps='1' pcie-down-bps='1' egress-bps='1'/>" TAIL,
           "sample.xml:3: gpu with only one of egress-bps and ingress-bps");
    refuse(HEAD NODE "<gpu pcie-up-bps='1' pcie-down-bps='1' sm='90'/>" TAIL, "gpu has no attribute 'sm'");
    refuse(HEAD NODE "<nic name='x' rate-bps='1'/><gpu pcie-up-bps='1' pcie-down-bps='1' nics='0 1'/>" TAIL,
           "sample.xml:3: gpu nics '0 1' must be numbers of the node's 1 nics with spaces between");
    refuse(HEAD NODE "<nic name='x' rate-bps='1'/><gpu pcie-up-bps='1' pcie-down-bps='1' nics='0,0'/>" TAIL,
           "gpu nics '0,0'");
    refuse(HEAD NODE "<nic name='x' rate-bps='1'/><gpu pcie-up-bps='1' pcie-down-bps='1' nics='-0'/>" TAIL,
           "gpu nics '-0'");
    refuse(HEAD MESH "\n<nvlink from='0' to='2' bps='1'/>" TAIL,
           "sample.xml:4: nvlink to '2' must be a whole number from 0 to 1");
    refuse(HEAD MESH "<nvlink from='1' to='1' bps='1'/>" TAIL, "nvlink from gpu 1 to itself");
    refuse(HEAD MESH "<nvlink from='1' to='0' bps='1'/><nvlink from='1' to='0' bps='2'/>" TAIL,
           "nvlink from gpu 1 to gpu 0 is there twice");
    refuse(HEAD MESH "<nvlink from='1' to='0' bps='0'/>" TAIL, "nvlink bps '0'");
    refuse(HEAD NODE "<nvlink from='0' to='0' bps='1'/>" TAIL, "nvlink from '0'");
    refuse(HEAD NODE GPU "</node>\n<rank node='0' gpu='1'/></mpath>",
           "sample.xml:4: rank gpu '1' must be a whole number from -1 to 0");
    for (i = 0; i <= MPATH_MAX_GPUS; i++) {
        strcat(text, GPU "\n");
    }
    strcat(text, TAIL);
    refuse(text, "sample.xml:19: more than 16 gpus on a node");
    refuse("<system><net name='x' speed='1'/>\n<gpu dev='-1'/></system>", "sample.xml:2: gpu dev '-1'");
    refuse("<system><net name='x' speed='1'/>\n<gpu sm='x'/></system>", "sample.xml:2: gpu sm 'x'");
    refuse("<system><net name='x' speed='1'/>\n<gpu><nvlink count='0'/></gpu></system>",
           "sample.xml:2: nvlink count '0'");
    refuse("<system><net name='x' speed='1'/>\n<pci link_width='33'><gpu/></pci></system>",
           "sample.xml:2: pci link_width '33'");
}

static void test_too_many_nics(void **state)
{
    char text[8192] = HEAD NODE, line[64];
    int i;

    (void)state;
    for (i = 0; i <= MPATH_MAX_NICS; i++) {
        snprintf(line, sizeof(line), "<nic name='n%d' rate-bps='1'/>\n", i);
        strcat(text, line);
    }
    strcat(text, TAIL);
    refuse(text, "sample.xml:67: more than 64 nics on a node");
}

/* `head`, `count` times `element`, `tail`. */
static char *many(const char *head, const char *element, size_t count, const char *tail)
{
    char *text = malloc(strlen(head) + strlen(element) * count + strlen(tail) + 1), *at;

    assert_non_null(text);
    at = stpcpy(text, head);
    for (size_t i = 0; i < count; i++) {
        at = stpcpy(at, element);
    }
    strcpy(at, tail);
    return text;
}

/* A machine of so many network interfaces, as hwloc describes it. */
static void refuse_interfaces(int count, const char *message)
{
    char *text = malloc(64 + (size_t)count * 64), *at;

    assert_non_null(text);
    at = stpcpy(text, "<topology>");
    for (int i = 0; i < count; i++) {
        at += sprintf(at, "<object type='OSDev' osdev_type='2' name='eth%d'/>\n", i);
    }
    strcpy(at, "</topology>");
    refuse(text, message);
    free(text);
}

static void test_too_large(void **state)
{
    const size_t limit = 64u << 20;
    mpath_topo_file_t file;
    char *text = many(HEAD, "<node/>", 65536, "</mpath>");

    (void)state;
    refuse(text, "node without attribute 'host-memory-bps'");
    free(text);
    text = many(HEAD, "<node/>", 65537, "</mpath>");
    refuse(text, "more than 65536 nodes or 1048576 ranks");
    free(text);
    text = many(HEAD NODE "</node>", "<rank/>", (1 << 20) + 1, "</mpath>");
    refuse(text, "more than 65536 nodes or 1048576 ranks");
    free(text);
    refuse_interfaces(65, "65 NICs are more than 64");
    refuse_interfaces(256, "256 NICs are more than 64");
    refuse_interfaces(257, "sample.xml:257: more than 256 NICs");
    text = calloc(1, limit + 1);
    assert_non_null(text);
    capture_start();
    assert_int_equal(mpath_topo_file_parse("sample.xml", text, limit, &file), MPATH_ERR_PARAM);
    assert_non_null(strstr(capture_text(), "no well-formed XML"));
    assert_int_equal(mpath_topo_file_parse("sample.xml", text, limit + 1, &file), MPATH_ERR_PARAM);
    assert_non_null(strstr(capture_text(), "sample.xml: it has more than 64 MiB"));
    capture_stop();
    free(text);
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
    refuse("<system>\n<net name='x' speed='1' port='1'/>\n<net name='x' speed='2' port='1'/></system>",
           "sample.xml:3: net name 'x:1' is used twice on this node, with another speed");
    refuse("<system>\n<net name='x++y' speed='1'/></system>", "sample.xml:2: net name with an empty part");
    refuse("<system><cpu host_hash='a'><net name='x' speed='1'/></cpu><cpu host_hash='b'/></system>",
           "host b without a net");
    refuse("<system><net name='x' speed='1'/>\n<gpu><c2c count='2'/></gpu></system>",
           "sample.xml:2: c2c without attribute 'bw'");
    refuse("<system><net name='x' speed='1'/>\n<gpu><c2c bw='10000000' count='2'/></gpu></system>",
           "sample.xml:2: the c2c links of a gpu are more than 10000000000000 bytes/s");
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

static void test_bad_emulated(void **state)
{
    static const struct {
        const char *mode, *host, *ranks, *message;
    } cases[] = {
        {"yes", "a", ON_GPUS, "sample.xml:1: mpath emulated 'yes' must be no, copies or rails"},
        {"copies", "b", ON_GPUS, "sample.xml:6: node host 'b' is taken by node 0"},
        {"rails", "a", "", "sample.xml:1: mpath emulated 'rails' without a rank"},
        {"copies", "a", "  <rank node=\"0\" gpu=\"0\"/>\n  <rank node=\"1\"/>\n",
         "sample.xml:11: rank without a gpu of its node, which emulated 'copies' needs"},
    };
    char text[2048];
    mpath_topo_file_t file;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        virtual_nodes(text, sizeof(text), cases[i].mode, cases[i].host, cases[i].ranks);
        capture_start();
        assert_int_equal(parse(text, &file), MPATH_ERR_PARAM);
        capture_stop();
        if (strstr(capture_text(), cases[i].message) == NULL) {
            fail_msg("'%s' is not in: %s", cases[i].message, capture_text());
        }
    }
}

/* A pipe in the file's place would make every process wait for whoever writes into it. */
static void test_pipe(void **state)
{
    mpath_topo_file_t file;
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "/tmp/mpath-test-topo.%ld", (long)getpid());
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(300);
    capture_start();
    assert_int_equal(mpath_topo_file_load(path, &file), MPATH_ERR_IO);
    assert_int_equal(mpath_topo_file_load("/nowhere.xml", &file), MPATH_ERR_IO);
    assert_int_equal(mpath_topo_file_load("/tmp", &file), MPATH_ERR_IO);
    capture_stop();
    alarm(0);
    assert_non_null(strstr(capture_text(), "it is a pipe, a device or a socket, and no file; it is not used"));
    assert_non_null(strstr(capture_text(), "/nowhere.xml: No such file or directory; the file is not used"));
    assert_non_null(strstr(capture_text(), "Is a directory"));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_own),      cmocka_unit_test(test_bad_gpus),   cmocka_unit_test(test_too_many_nics),
        cmocka_unit_test(test_too_large),    cmocka_unit_test(test_bad_others), cmocka_unit_test(test_entities),
        cmocka_unit_test(test_bad_emulated), cmocka_unit_test(test_pipe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
