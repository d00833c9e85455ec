/* SPDX-License-Identifier: BSD-3-Clause */
/* The owner's side of export_pieces.h: descriptors, and lists of them. */
#define _GNU_SOURCE /* memfd_create() */
#include "gpu/export_pieces.h"
#include "gpu/driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* A physical allocation, as long as it is in an export. */
typedef struct descriptor {
    uint64_t block_id;
    int fd;
    unsigned users;
} descriptor_t;

static struct {
    descriptor_t *list;
    size_t count, room;
} descriptors;

uint64_t mpath_export_pieces_limit(void)
{
    struct rlimit limit;

    return ((getrlimit(RLIMIT_NOFILE, &limit) == 0) && (limit.rlim_cur != RLIM_INFINITY)) ? limit.rlim_cur / 2
                                                                                          : UINT64_C(1) << 20;
}

/* NULL: there is none. */
static descriptor_t *descriptor_find(uint64_t block_id)
{
    for (size_t i = 0; i < descriptors.count; i++) {
        if (descriptors.list[i].block_id == block_id) {
            return &descriptors.list[i];
        }
    }
    return NULL;
}

static void descriptor_put(uint64_t block_id)
{
    descriptor_t *found = descriptor_find(block_id);

    if ((found != NULL) && (--found->users == 0)) {
        close(found->fd);
        *found = descriptors.list[--descriptors.count];
    }
    if (descriptors.count == 0) {
        free(descriptors.list);
        descriptors.list = NULL;
        descriptors.room = 0;
    }
}

static mpath_status_t descriptor_room(void)
{
    size_t room = (descriptors.room == 0) ? 64 : 2 * descriptors.room;
    descriptor_t *list;

    if (descriptors.count >= mpath_export_pieces_limit()) {
        return MPATH_ERR_NO_MEMORY;
    }
    if (descriptors.count < descriptors.room) {
        return MPATH_OK;
    }
    list = realloc(descriptors.list, room * sizeof(*list));
    if (list == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    descriptors.list = list;
    descriptors.room = room;
    return MPATH_OK;
}

/* One more use of the physical allocation at that address. */
static mpath_status_t descriptor_get(const mpath_memory_piece_t *piece, int *fd_p, mpath_export_refusal_t *refusal)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    descriptor_t *found  = descriptor_find(piece->block_id);
    mpath_cu_mem_t handle;
    mpath_status_t status;
    int fd;

    if (found != NULL) {
        found->users++;
        *fd_p = found->fd;
        return MPATH_OK;
    }
    status = descriptor_room();
    if (status != MPATH_OK) {
        return status;
    }
    refusal->call   = "cuMemRetainAllocationHandle";
    refusal->result = cu->MemRetainAllocationHandle(&handle, (void *)(uintptr_t)piece->base);
    if (refusal->result == MPATH_CU_SUCCESS) {
        refusal->call   = "cuMemExportToShareableHandle";
        refusal->result = cu->MemExportToShareableHandle(&fd, handle, MPATH_CU_HANDLE_FD, 0);
        cu->MemRelease(handle);
    }
    if (refusal->result != MPATH_CU_SUCCESS) {
        return MPATH_DECLINED;
    }
    descriptors.list[descriptors.count++] = (descriptor_t){.block_id = piece->block_id, .fd = fd, .users = 1};
    *fd_p                                 = fd;
    return MPATH_OK;
}

/* Fills the list. What it has taken it gives back where it fails. */
static mpath_status_t pieces_take(const mpath_export_t *made, mpath_export_piece_t *list,
                                  mpath_export_refusal_t *refusal)
{
    uint64_t at           = made->base;
    mpath_status_t status = MPATH_OK;
    mpath_memory_piece_t piece;
    uint32_t i;

    for (i = 0; i < made->pieces; i++) {
        status = mpath_memory_piece(at, &piece);
        if (status == MPATH_OK) {
            status = descriptor_get(&piece, &list[i].fd, refusal);
        }
        if (status != MPATH_OK) {
            break;
        }
        list[i].bytes = piece.bytes;
        list[i].id    = piece.block_id;
        at += piece.bytes;
    }
    while ((status != MPATH_OK) && (i-- > 0)) {
        descriptor_put(list[i].id);
    }
    return status;
}

/* -1: there is no memory or no descriptor for it. */
static int list_write(const mpath_export_t *made, const mpath_export_piece_t *list)
{
    const mpath_export_list_t head = {.magic     = MPATH_EXPORT_LIST_MAGIC,
                                      .base      = made->base,
                                      .bytes     = made->bytes,
                                      .buffer_id = made->buffer_id,
                                      .pieces    = made->pieces};
    const size_t bytes             = made->pieces * sizeof(*list);
    int fd                         = memfd_create("mpath-pieces", MFD_CLOEXEC);

    if ((fd >= 0) &&
        ((write(fd, &head, sizeof(head)) != (ssize_t)sizeof(head)) || (write(fd, list, bytes) != (ssize_t)bytes))) {
        close(fd);
        return -1;
    }
    return fd;
}

mpath_status_t mpath_export_pieces_make(mpath_export_t *made, mpath_export_refusal_t *refusal)
{
    mpath_export_piece_t *list = calloc(made->pieces, sizeof(*list));
    mpath_status_t status      = MPATH_ERR_NO_MEMORY;

    if (list != NULL) {
        status = pieces_take(made, list, refusal);
    }
    if (status == MPATH_OK) {
        made->handle.list = list_write(made, list);
        if (made->handle.list < 0) {
            status = MPATH_ERR_NO_MEMORY;
            for (uint32_t i = 0; i < made->pieces; i++) {
                descriptor_put(list[i].id);
            }
        }
    }
    free(list);
    return status;
}

void mpath_export_pieces_close(const mpath_export_t *made)
{
    mpath_export_piece_t piece;

    for (uint32_t i = 0; i < made->pieces; i++) {
        if (pread(made->handle.list, &piece, sizeof(piece), (off_t)(sizeof(mpath_export_list_t) + i * sizeof(piece))) ==
            (ssize_t)sizeof(piece)) {
            descriptor_put(piece.id);
        }
    }
    close(made->handle.list);
}
