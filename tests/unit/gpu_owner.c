/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that owns allocations which a test opens, and what tells it what to do. */
#include "config.h"
#include "gpu_owner.h"
#include "capture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int export_range(uint64_t address, uint64_t bytes, mpath_export_t *export)
{
    mpath_memory_t memory;

    return (mpath_memory_classify((void *)(uintptr_t)address, bytes, &memory) == MPATH_OK) &&
           (mpath_export_make((void *)(uintptr_t)address, bytes, &memory, export) == MPATH_OK);
}

int owner_main(void)
{
    static gpu_memory_t slots[SLOTS];
    order_t order;

    gpu_application_starts();
    while (read(STDIN_FILENO, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
        answer_t answer    = {.address = 0};
        gpu_memory_t *made = &slots[order.slot];
        uint64_t block     = made->address + (uint64_t)order.blocks * made->block_bytes;

        switch (order.what) {
        case 'a':
            gpu_memory_alloc(order.kind, order.device, order.bytes, order.blocks, made);
            gpu_pattern_write(made->address, made->bytes, order.seed);
            if (!export_range(made->address, made->bytes, &answer.export)) {
                return 3;
            }
            break;
        case 'r':
            gpu_memory_remap(made, order.blocks);
            gpu_pattern_write(block, made->block_bytes, order.seed);
            if (!export_range(block, made->block_bytes, &answer.export)) {
                return 5;
            }
            break;
        case 'j':
            gpu_memory_join(made, order.blocks);
            gpu_pattern_write(made->address, made->bytes, order.seed);
            if (!export_range(made->address, made->bytes, &answer.export)) {
                return 7;
            }
            break;
        case 'p':
            if (!export_range(block, made->block_bytes, &answer.export)) {
                return 6;
            }
            break;
        case 'f':
            gpu_memory_free(made);
            break;
        default:
            answer.wrong = gpu_pattern_check(made->address, made->bytes, order.seed);
            break;
        }
        answer.address = made->address;
        answer.bytes   = made->bytes;
        if (write(STDOUT_FILENO, &answer, sizeof(answer)) != (ssize_t)sizeof(answer)) {
            return 4;
        }
    }
    mpath_gpu_cleanup();
    return 0;
}

owner_t owner_start_seeing(const char *visible)
{
    int to[2], from[2];
    owner_t owner;

    assert_int_equal(pipe2(to, O_CLOEXEC), 0); /* another owner must not hold them open */
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    owner.pid = fork();
    assert_true(owner.pid >= 0);
    if (owner.pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        if (visible != NULL) {
            setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        }
        execl("/proc/self/exe", "owner", "owner", (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    owner.to   = to[1];
    owner.from = from[0];
    return owner;
}

owner_t owner_start(void)
{
    return owner_start_seeing(NULL);
}

answer_t owner_tell(const owner_t *owner, order_t order)
{
    answer_t answer;
    size_t got = 0;
    ssize_t part;

    assert_int_equal(write(owner->to, &order, sizeof(order)), sizeof(order));
    while (got < sizeof(answer)) {
        part = read(owner->from, (char *)&answer + got, sizeof(answer) - got);
        assert_true(part > 0);
        got += (size_t)part;
    }
    return answer;
}

void owner_stop(const owner_t *owner)
{
    int status;

    close(owner->to);
    assert_int_equal(waitpid(owner->pid, &status, 0), owner->pid);
    assert_int_equal(status, 0);
    close(owner->from);
}

void owner_kill(const owner_t *owner)
{
    int status;

    kill(owner->pid, SIGKILL);
    waitpid(owner->pid, &status, 0);
    close(owner->to);
    close(owner->from);
}

mpath_import_counts_t import_counts(void)
{
    mpath_import_counts_t now;

    mpath_import_counts(&now);
    return now;
}

mpath_gpu_t *gpu_of(int device)
{
    mpath_gpu_t *gpu;

    assert_int_equal(mpath_gpu_get(device, NULL, &gpu), MPATH_OK);
    return gpu;
}

void gpu_copy(mpath_gpu_t *gpu, uint64_t to, uint64_t from, size_t bytes)
{
    mpath_stream_t *stream;
    mpath_mark_t mark;

    assert_int_equal(mpath_stream_get(gpu, 0, &stream), MPATH_OK);
    assert_int_equal(mpath_stream_copy(stream, to, from, bytes), MPATH_OK);
    assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "a copy"), MPATH_OK);
}

int owner_setup(void **state)
{
    static owner_t shared;

    gpu_application_starts();
    shared = owner_start();
    *state = &shared;
    return 0;
}

int owner_teardown(void **state)
{
    owner_stop(*state);
    mpath_gpu_cleanup();
    return 0;
}
