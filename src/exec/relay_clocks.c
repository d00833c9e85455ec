/* SPDX-License-Identifier: BSD-3-Clause */
/* Relay clocks: anonymous memory with a number, mapped by all processes of a host that share a communicator. */
#define _GNU_SOURCE /* memfd_create() */
#include "exec/relay_clocks.h"

#include "exec/relay_room.h"
#include "lane/pace.h"
#include "util/log.h"
#include "util/time.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_CLOCKS 8 /* that one process knows: one, unless communicators without a common process met later */

typedef struct clocks {
    uint64_t id; /* 0: free */
    int64_t pid; /* of a process that holds it open, and the descriptor there */
    int32_t fd;
    int32_t status; /* of the making */
} clocks_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static clocks_t known[MAX_CLOCKS]; /* as this process holds them */
static void *mapped[MAX_CLOCKS];

/* A child has the memory of its parent, but is not the process that holds the descriptor. */
static int find(uint64_t id)
{
    for (int i = 0; i < MAX_CLOCKS; i++) {
        if ((known[i].id != 0) && (known[i].pid == getpid()) && ((id == 0) || (known[i].id == id))) {
            return i;
        }
    }
    return -1;
}

static mpath_status_t add(uint64_t id, int fd, int *index_p)
{
    void *base;
    int at = 0;

    while ((at < MAX_CLOCKS) && (known[at].id != 0) && (known[at].pid == getpid())) {
        at++;
    }
    base = (at < MAX_CLOCKS) ? mmap(NULL, MPATH_PACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (base == MAP_FAILED) {
        mpath_error("the clocks of an emulated cluster cannot be mapped: %s",
                    (at < MAX_CLOCKS) ? strerror(errno) : "there are too many of them in this process");
        return MPATH_ERR_NO_MEMORY;
    }
    known[at]  = (clocks_t){.id = id, .pid = getpid(), .fd = fd};
    mapped[at] = base;
    *index_p   = at;
    return MPATH_OK;
}

static mpath_status_t make(int *index_p)
{
    int fd = memfd_create("mpath-clocks", MFD_CLOEXEC);
    mpath_status_t status;

    if ((fd < 0) || (ftruncate(fd, MPATH_PACE_BYTES) != 0)) {
        mpath_error("no memory for the clocks of an emulated cluster: %s", strerror(errno));
        status = MPATH_ERR_NO_MEMORY;
    } else {
        status = add((mpath_time_ns() << 22) ^ (uint64_t)getpid() ^ (1ull << 63), fd, index_p);
    }
    if ((status != MPATH_OK) && (fd >= 0)) {
        close(fd);
    }
    return status;
}

static mpath_status_t attach(const clocks_t *theirs, int *index_p)
{
    mpath_status_t status;
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)theirs->pid, theirs->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        mpath_error("%s, which has the clocks of an emulated cluster, cannot be opened: %s", path, strerror(errno));
        return MPATH_ERR_UNREACHABLE;
    }
    status = add(theirs->id, fd, index_p);
    if (status != MPATH_OK) {
        close(fd);
    }
    return status;
}

mpath_status_t mpath_relay_clocks_get(mpath_team_t *team, void **clocks_p)
{
    clocks_t mine = {.status = MPATH_OK}, all[MPATH_RELAY_MAX_RANKS];
    mpath_status_t status;
    int at = -1;

    if (mpath_team_rank(team) == 0) {
        pthread_mutex_lock(&mutex);
        at     = find(0);
        status = (at < 0) ? make(&at) : MPATH_OK;
        if (status == MPATH_OK) {
            mine = known[at];
        }
        mine.status = status;
        pthread_mutex_unlock(&mutex);
    }
    status = mpath_team_allgather(team, &mine, sizeof(mine), all);
    if (status == MPATH_OK) {
        pthread_mutex_lock(&mutex);
        status = (mpath_status_t)all[0].status;
        at     = (status == MPATH_OK) ? find(all[0].id) : -1;
        if ((status == MPATH_OK) && (at < 0)) {
            status = attach(&all[0], &at);
        }
        pthread_mutex_unlock(&mutex);
        status = mpath_relay_all(team, status);
    }
    if (status == MPATH_OK) {
        *clocks_p = mapped[at];
    }
    return status;
}

uint64_t mpath_relay_clocks_id(const void *clocks)
{
    uint64_t id = 0;

    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_CLOCKS; i++) {
        id = (mapped[i] == clocks) ? known[i].id : id;
    }
    pthread_mutex_unlock(&mutex);
    return id;
}
