/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of data in several allocations: what comes, what goes back and what stays, and pieces that end too late. */
#include "config.h"
#include "capture.h"
#include "coll/pieces.h"
#include "gpu_kinds.h"

#include <stdlib.h>

#define BYTES (UINT64_C(1) << 20)
#define PARTS 3

/* Of two GPUs and of the host. */
static struct {
    gpu_memory_t gpus[PARTS - 1];
    uint64_t address[PARTS];
    unsigned char image[PARTS][BYTES];
} parts;

static int setup(void **state)
{
    (void)state;
    gpu_application_starts();
    for (int i = 0; i < PARTS - 1; i++) {
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, i, BYTES, 1, &parts.gpus[i]);
        parts.address[i] = parts.gpus[i].address;
    }
    parts.address[PARTS - 1] = (uint64_t)(uintptr_t)malloc(BYTES);
    return (parts.address[PARTS - 1] != 0) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    gpu_memory_free(&parts.gpus[0]);
    gpu_memory_free(&parts.gpus[1]);
    free((void *)(uintptr_t)parts.address[PARTS - 1]);
    return 0;
}

static void put_all(uint64_t seed)
{
    for (uint64_t part = 0; part < PARTS; part++) {
        for (uint64_t i = 0; i < BYTES; i++) {
            parts.image[part][i] = gpu_pattern(seed + part, i);
        }
        gpu_memory_write(parts.address[part], parts.image[part], BYTES);
    }
}

static void check_all(void)
{
    static unsigned char found[BYTES];

    for (int part = 0; part < PARTS; part++) {
        gpu_memory_read(parts.address[part], found, BYTES);
        assert_memory_equal(found, parts.image[part], BYTES);
    }
}

static const struct {
    unsigned part;
    uint64_t from, bytes;
} list[] = {{1, 100, 7},     {1, 110, 3000}, {1, 10000, 500000}, {2, 5, 70000},    {2, 80001, 1},
            {0, 900000, 99}, {0, 900099, 1}, {0, 900100, 1},     {0, 4, 60000},    {0, 70000, 8},
            {0, 70016, 8},   {2, 0, 3},      {1, 700001, 1001},  {1, 702003, 1001}};

#define LISTED (sizeof(list) / sizeof(list[0]))

static mpath_pieces_t *listed(int gapped, unsigned char **host_p)
{
    mpath_pieces_t *pieces;
    void *host;

    assert_int_equal(mpath_pieces_create(&pieces), MPATH_OK);
    assert_true(mpath_pieces_on_host(pieces));
    for (size_t i = 0; i < LISTED; i++) {
        assert_int_equal(
            mpath_pieces_add(pieces, (void *)(uintptr_t)(parts.address[list[i].part] + list[i].from), list[i].bytes),
            MPATH_OK);
    }
    assert_false(mpath_pieces_on_host(pieces));
    assert_int_equal(mpath_pieces_open(pieces, gapped, &host), MPATH_OK);
    *host_p = host;
    return pieces;
}

static void check_copies(int gapped)
{
    unsigned char *host, *at;
    mpath_pieces_t *pieces;

    put_all(10);
    pieces = listed(gapped, &host);
    assert_int_equal(mpath_pieces_load(pieces), MPATH_OK);
    at = host;
    for (size_t i = 0; i < LISTED; i++) {
        unsigned char *image = parts.image[list[i].part] + list[i].from;

        assert_memory_equal(at, image, list[i].bytes);
        for (uint64_t k = 0; k < list[i].bytes; k++) {
            image[k] ^= 0x55;
            at[k] ^= 0x55;
        }
        at += list[i].bytes;
    }
    assert_int_equal(mpath_pieces_store(pieces), MPATH_OK);
    check_all();
    mpath_pieces_destroy(pieces);
}

static void test_copies(void **state)
{
    (void)state;
    check_copies(0);
    check_copies(1);
}

/* Without gaps that may be written, none is: the bytes between belong to others, who may write them at this moment. */
static void test_gaps_are_left_alone(void **state)
{
    unsigned char *host;
    mpath_pieces_t *pieces;

    (void)state;
    put_all(20);
    pieces = listed(0, &host);
    assert_int_equal(mpath_pieces_load(pieces), MPATH_OK);
    put_all(30);
    for (size_t i = 0; i < LISTED; i++) {
        memcpy(parts.image[list[i].part] + list[i].from, host, list[i].bytes);
        host += list[i].bytes;
    }
    assert_int_equal(mpath_pieces_store(pieces), MPATH_OK);
    check_all();
    mpath_pieces_destroy(pieces);
}

static void test_on_host(void **state)
{
    mpath_pieces_t *pieces;

    (void)state;
    assert_int_equal(mpath_pieces_create(&pieces), MPATH_OK);
    assert_int_equal(mpath_pieces_add(pieces, (void *)(uintptr_t)parts.address[2], BYTES), MPATH_OK);
    assert_int_equal(mpath_pieces_add(pieces, &parts, 10), MPATH_OK);
    assert_true(mpath_pieces_on_host(pieces));
    mpath_pieces_destroy(pieces);
    mpath_pieces_destroy(NULL);
}

/* A piece over two GPUs is taken; one that ends where nothing is mapped is not. */
static void test_ends(void **state)
{
    mpath_pieces_t *pieces;
    gpu_memory_t vmm;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_VMM, 0, 4 * BYTES, 2, &vmm);
    assert_int_equal(mpath_pieces_create(&pieces), MPATH_OK);
    assert_int_equal(mpath_pieces_add(pieces, (void *)(uintptr_t)(vmm.address + 1), vmm.bytes - 1), MPATH_OK);
    capture_start();
    assert_int_equal(mpath_pieces_add(pieces, (void *)(uintptr_t)(vmm.address + 1), vmm.bytes), MPATH_ERR_PARAM);
    assert_int_equal(mpath_pieces_add(pieces, (void *)(uintptr_t)(parts.address[0] + 9), BYTES), MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_lines, 2);
    assert_non_null(strstr(capture_buffer, "reaches beyond its allocation in vmm memory of GPU 0"));
    mpath_pieces_destroy(pieces);
    gpu_memory_free(&vmm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies), cmocka_unit_test(test_gaps_are_left_alone),
                                       cmocka_unit_test(test_on_host), cmocka_unit_test(test_ends)};

    return cmocka_run_group_tests_name("pieces", tests, setup, teardown);
}
