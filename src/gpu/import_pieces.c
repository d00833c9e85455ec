/* SPDX-License-Identifier: BSD-3-Clause */
/* The importers' side of export_pieces.h. */
#include "gpu/export_pieces.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

int mpath_import_fd(const mpath_process_t *owner, int fd)
{
    int pidfd, mine;

    pidfd = (int)syscall(SYS_pidfd_open, (pid_t)owner->pid, 0);
    if (pidfd < 0) {
        mpath_error("process %" PRId64 " cannot be asked for its GPU memory: pidfd_open: %s", owner->pid,
                    strerror(errno));
        return -1;
    }
    mine = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
    if (mine < 0) {
        mpath_error("the descriptor of GPU memory of process %" PRId64 " cannot be fetched: pidfd_getfd: %s%s",
                    owner->pid, strerror(errno),
                    (errno == EPERM) ? "; processes of one user need kernel.yama.ptrace_scope 0 or 1" : "");
    }
    close(pidfd);
    return mine;
}

/* Whether the file is the list of the export, whose owner may have given it up. */
static int list_read(int fd, const mpath_export_t *export, mpath_export_piece_t *list)
{
    const ssize_t bytes = (ssize_t)(export->pieces * sizeof(*list));
    mpath_export_list_t head;
    uint64_t sum = 0;

    if ((pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head)) || (head.magic != MPATH_EXPORT_LIST_MAGIC) ||
        (head.base != export->base) || (head.bytes != export->bytes) || (head.buffer_id != export->buffer_id) ||
        (head.pieces != export->pieces) || (pread(fd, list, (size_t)bytes, sizeof(head)) != bytes)) {
        return 0;
    }
    for (uint32_t i = 0; i < export->pieces; i++) {
        sum += list[i].bytes;
    }
    return sum == export->bytes;
}

static mpath_status_t list_fetch(const mpath_export_t *export, mpath_export_piece_t *list)
{
    int fd = mpath_import_fd(&export->owner, export->handle.list), good;

    if (fd < 0) {
        return mpath_process_alive(&export->owner) ? MPATH_ERR_UNSUPPORTED : MPATH_ERR_UNREACHABLE;
    }
    good = list_read(fd, export, list);
    close(fd);
    if (!good) {
        mpath_error("the list of %" PRIu32 " pieces of GPU memory of process %" PRId64 " is no longer there",
                    export->pieces, export->owner.pid);
        return MPATH_ERR_UNSUPPORTED;
    }
    return MPATH_OK;
}

mpath_status_t mpath_import_pieces(const mpath_export_t *export, mpath_export_piece_t **list_p)
{
    const uint32_t most = (export->how == MPATH_EXPORT_FDS) ? MPATH_EXPORT_PIECES_MAX : MPATH_EXPORT_FABRIC_MAX;
    mpath_export_piece_t *list;
    mpath_status_t status = MPATH_OK;

    if ((export->pieces == 0) || (export->pieces > most)) {
        mpath_error("an export names %" PRIu32 " pieces of GPU memory", export->pieces);
        return MPATH_ERR_PARAM;
    }
    list = calloc(export->pieces, sizeof(*list));
    if (list == NULL) {
        mpath_error("no memory for the list of %" PRIu32 " pieces of GPU memory", export->pieces);
        return MPATH_ERR_NO_MEMORY;
    }
    if (export->how == MPATH_EXPORT_FDS) {
        status = list_fetch(export, list);
    }
    for (uint32_t i = 0; (export->how == MPATH_EXPORT_FABRIC) && (i < export->pieces); i++) {
        uint64_t rest = export->bytes - i * export->piece_bytes;

        list[i].bytes = (i + 1 < export->pieces) ? export->piece_bytes : rest;
        list[i].id    = export->fabric_ids[i];
    }
    if (status != MPATH_OK) {
        free(list);
        return status;
    }
    *list_p = list;
    return MPATH_OK;
}

int mpath_export_pieces_differ(const mpath_export_t *a, const mpath_export_piece_t *a_list, const mpath_export_t *b,
                               const mpath_export_piece_t *b_list)
{
    uint64_t a_at = a->base, b_at = b->base;
    uint32_t i = 0, k = 0;

    while ((i < a->pieces) && (k < b->pieces)) {
        if (a_at == b_at) {
            if ((a_list[i].id != b_list[k].id) || (a_list[i].bytes != b_list[k].bytes)) {
                return 1;
            }
            a_at += a_list[i++].bytes;
            b_at += b_list[k++].bytes;
        } else if (a_at < b_at) {
            a_at += a_list[i++].bytes;
            if (a_at > b_at) {
                return 1; /* it reaches over the border */
            }
        } else {
            b_at += b_list[k++].bytes;
            if (b_at > a_at) {
                return 1;
            }
        }
    }
    return 0;
}
