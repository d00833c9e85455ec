/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices of another vendor than NVIDIA, by one file that fills the table of device/device.h: kinds of memory, streams, pinned
 * memory, other processes' memory, and Alltoallv on it, with what the devices do not have (kernels, graphs, pools, waits) left
 * out. CUDA's driver is not there.
 */
#include "device/graph.h"
#include "device/kernels/copy.h"
#include "device/pinned.h"
#include "device/usage.h"

#include "capture.h"
#include "fake_device.h"
#include "gpu_member.h"

#include <stdlib.h>

#define BYTES (1u << 20)
#define DEADLINE_NS (UINT64_C(60) * 1000000000)

/* The application's side of gpu_kinds.h, for gpu_member.c. */

void gpu_memory_alloc(mpath_memory_kind_t kind, int device, uint64_t bytes, int blocks, gpu_memory_t *memory)
{
    void *taken = fake_device_take(device, bytes);

    (void)blocks;
    if ((kind != MPATH_MEMORY_DEVICE) || (taken == NULL)) {
        abort();
    }
    *memory = (gpu_memory_t){.kind = kind, .device = device, .address = (uint64_t)(uintptr_t)taken, .bytes = bytes};
}

void gpu_memory_free(gpu_memory_t *memory)
{
    fake_device_give((void *)(uintptr_t)memory->address);
}

void gpu_memory_write(uint64_t address, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)address, from, bytes);
}

void gpu_memory_read(uint64_t address, void *to, size_t bytes)
{
    memcpy(to, (const void *)(uintptr_t)address, bytes);
}

static void expect_said(const char *text)
{
    capture_stop();
    assert_non_null(strstr(capture_text(), text));
}

static int setup(void **state)
{
    (void)state;
    mpath_device_add(&fake_device);
    return 0;
}

static void test_chosen(void **state)
{
    (void)state;
    assert_null(mpath_device()); /* the application has started no driver */
    assert_int_equal(mpath_gpu_count(), 0);
    fake_device_starts();
    assert_ptr_equal(mpath_device(), &fake_device);
    assert_int_equal(mpath_gpu_driver_start(), MPATH_OK);
    assert_string_equal(mpath_device_driver_name(), "fake");
    assert_int_equal(mpath_gpu_count(), FAKE_DEVICES);
    assert_string_equal(mpath_device_error_string(MPATH_DEVICE_NO_MEMORY), "fake device: no memory");
}

static void test_info(void **state)
{
    mpath_gpu_info_t info;
    int needs = 1;
    mpath_gpu_t *gpu;

    (void)state;
    assert_int_equal(mpath_gpu_info(2, &info), MPATH_OK);
    assert_int_equal(info.ordinal, 2);
    assert_string_equal(info.pci, "fa4e:02:00.0");
    assert_int_equal(mpath_gpu_find(&info.uuid), 2);
    capture_start();
    assert_int_equal(mpath_gpu_info(FAKE_DEVICES, &info), MPATH_ERR_PARAM);
    expect_said("there is no GPU 4: the fake driver shows 4");
    assert_int_equal(mpath_gpu_current(&gpu), MPATH_ERR_UNSUPPORTED);
    assert_int_equal(mpath_gpu_get(2, NULL, &gpu), MPATH_OK);
    assert_true(mpath_gpu_reaches(gpu, 3));
    assert_int_equal(mpath_gpu_needs_flush(gpu, &needs), MPATH_OK);
    assert_int_equal(needs, 0);
    assert_false(mpath_gpu_has_waits(gpu));
}

static void test_memory(void **state)
{
    char *address = fake_device_take(1, BYTES);
    mpath_memory_t memory;
    mpath_pinned_t pinned;
    mpath_gpu_t *gpu;
    int local;

    (void)state;
    assert_int_equal(mpath_memory_classify(&local, sizeof(local), &memory), MPATH_OK);
    assert_int_equal(memory.kind, MPATH_MEMORY_HOST);
    assert_int_equal(mpath_memory_classify(address + 100, BYTES - 100, &memory), MPATH_OK);
    assert_int_equal(memory.kind, MPATH_MEMORY_DEVICE);
    assert_int_equal(memory.device, 1);
    assert_int_equal(memory.base, (uint64_t)(uintptr_t)address);
    assert_int_equal(memory.bytes, BYTES);
    assert_int_equal(memory.blocks, 1);
    capture_start();
    assert_int_equal(mpath_memory_classify(address + 100, BYTES, &memory), MPATH_ERR_PARAM);
    expect_said("reaches beyond its allocation in device memory of GPU 1");
    assert_int_equal(mpath_gpu_get(1, memory.context, &gpu), MPATH_OK);
    assert_int_equal(mpath_pinned_alloc(gpu, 8192, &pinned), MPATH_OK);
    assert_int_equal(mpath_memory_classify((char *)pinned.base + 4096, 8, &memory), MPATH_OK);
    assert_int_equal(memory.kind, MPATH_MEMORY_REGISTERED);
    mpath_pinned_release(&pinned);
    fake_device_give(address);
    assert_int_equal(mpath_memory_classify(address, 8, &memory), MPATH_OK);
    assert_int_equal(memory.kind, MPATH_MEMORY_HOST);
}

static void test_streams(void **state)
{
    unsigned char *from = fake_device_take(0, BYTES), *to = fake_device_take(3, BYTES);
    mpath_device_ptr_t targets[2] = {(uintptr_t)to, (uintptr_t)to + BYTES / 2};
    mpath_device_ptr_t sources[2] = {(uintptr_t)from, (uintptr_t)from + BYTES / 2};
    size_t halves[2]              = {BYTES / 2, BYTES / 2};
    unsigned before               = fake_device_copies();
    mpath_gpu_usage_t usage;
    mpath_stream_t *stream;
    mpath_mark_t mark;
    mpath_gpu_t *gpu;

    (void)state;
    for (unsigned i = 0; i < BYTES; i++) {
        from[i] = (unsigned char)(i * 7 + 3);
    }
    assert_int_equal(mpath_gpu_get(0, NULL, &gpu), MPATH_OK);
    assert_int_equal(mpath_stream_get(gpu, 0, &stream), MPATH_OK);
    assert_true(mpath_stream_has_values(stream));
    assert_int_equal(mpath_stream_copy_all(stream, targets, sources, halves, 2), MPATH_OK);
    assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "the copies"), MPATH_OK);
    assert_int_equal(fake_device_copies() - before, 2);
    assert_memory_equal(from, to, BYTES);
    memset(to, 0, BYTES);
    assert_int_equal(mpath_stream_copy_aside(stream, targets[0], sources[0], BYTES), MPATH_OK);
    assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "the copy aside"), MPATH_OK);
    assert_memory_equal(from, to, BYTES);
    assert_int_equal(mpath_stream_wait(stream, targets[0], 1), MPATH_ERR_UNSUPPORTED);
    capture_start();
    assert_int_equal(mpath_stream_copy(stream, targets[0], sources[0], BYTES + 1), MPATH_ERR_IO);
    expect_said("stream 0: copy: fake device: invalid");
    assert_false(mpath_kernels_usable(gpu));
    mpath_gpu_usage(&usage);
    assert_int_equal(usage.launches, 0);
    assert_int_equal(mpath_gpu_drain_all(), MPATH_OK);
    fake_device_give(from);
    fake_device_give(to);
}

static void test_ends(void **state)
{
    (void)state;
    mpath_gpu_cleanup();
    assert_int_equal(fake_device_held(), 0);
}

/* Every rank has a device of its own but for the last two: Alltoallv goes from device to device, by their copies. */
static int alltoallv_body(ranks_self_t *self, void *argument)
{
    static const a2a_kind_t kinds[] = {A2A_MIXED, A2A_ZERO, A2A_HOT, A2A_SPARSE};
    unsigned before                 = fake_device_copies();
    mpath_settings_t settings;
    member_t member;

    (void)argument;
    fake_device_starts();
    mpath_settings_init(&settings);
    settings.gate      = MPATH_GATE_ALWAYS;
    settings.timeout_s = 100;
    settings.gpu_probe = MPATH_GPU_PROBE_OFF;
    member_open(&member, self, &settings, 8 * BYTES);
    for (uint64_t round = 0; round < 3 * sizeof(kinds) / sizeof(kinds[0]); round++) {
        member_round(&member, kinds[round % (sizeof(kinds) / sizeof(kinds[0]))], BYTES, round);
    }
    ranks_check(fake_device_copies() > before);
    ranks_barrier(self);
    member_end(&member);
    ranks_check(fake_device_held() == 0);
    return 0;
}

static void test_alltoallv(void **state)
{
    static const ranks_setup_t setup = {.size = 5};

    (void)state;
    assert_int_equal(ranks_run(&setup, alltoallv_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen),  cmocka_unit_test(test_info), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_streams), cmocka_unit_test(test_ends), cmocka_unit_test(test_alltoallv),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
