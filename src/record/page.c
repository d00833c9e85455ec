/* SPDX-License-Identifier: BSD-3-Clause */
/* Page: a file in shared memory that this process writes and others of its user read. */
#include "config.h"

#include "record/page.h"

#include "util/file.h"
#include "util/log.h"
#include "util/time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_PATH_MAX 96

static mpath_page_t stand_in;
static mpath_page_t *page = &stand_in; /* changes while nobody else uses it: before the first context, after the last */
static char page_name[PAGE_PATH_MAX];
static pthread_mutex_t page_lock = PTHREAD_MUTEX_INITIALIZER; /* of places that are taken and given */

/* What segments are called, with a number that says what it is: the same sweep removes it. */
static int page_make(char *name, size_t size, const mpath_process_t *self)
{
    snprintf(name, size, "/mpath-%" PRId64 "-%" PRIx64 "-%" PRIx64 MPATH_PAGE_NAME_END, self->pid, self->start_ticks,
             self->pid_space & UINT32_MAX);
    return shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
}

void mpath_page_open(uint64_t job, int rank, int size)
{
    mpath_process_t self;
    mpath_page_t *made = MAP_FAILED;
    int fd, error;

    if (page != &stand_in) {
        return;
    }
    mpath_process_self(&self);
    fd = page_make(page_name, sizeof(page_name), &self);
    if (fd < 0) {
        mpath_info("%s: %s; mpath_info --job does not see this process", page_name, strerror(errno));
        return;
    }
    error = mpath_file_reserve(fd, MPATH_PAGE_BYTES);
    if (error == 0) {
        made  = mmap(NULL, MPATH_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = made == MAP_FAILED ? errno : 0;
    }
    close(fd);
    if (error != 0) {
        mpath_info("%s: %s; mpath_info --job does not see this process", page_name, strerror(error));
        shm_unlink(page_name);
        return;
    }
    memcpy(made->rails, stand_in.rails, sizeof(made->rails));
    made->process  = self;
    made->job      = job;
    made->rank     = rank;
    made->size     = size;
    made->began_ns = mpath_time_ns();
    snprintf(made->version, sizeof(made->version), "%s", PACKAGE_VERSION);
    atomic_store_explicit(&made->magic, MPATH_PAGE_MAGIC, memory_order_release);
    page = made;
}

void mpath_page_close(void)
{
    mpath_page_t *last = page;

    if (last == &stand_in) {
        return;
    }
    memcpy(stand_in.rails, last->rails, sizeof(stand_in.rails));
    page = &stand_in;
    if (last->process.pid == getpid()) { /* no child made by fork() */
        shm_unlink(page_name);
    }
    munmap(last, MPATH_PAGE_BYTES);
}

const mpath_page_t *mpath_page(void)
{
    return page;
}

mpath_page_rail_t *mpath_page_rail(const char *name, int number)
{
    mpath_page_rail_t *rail = page->rails;

    pthread_mutex_lock(&page_lock);
    while (rail < page->rails + MPATH_PAGE_RAILS - 1 && rail->name[0] != '\0' &&
           (rail->number != number || strncmp(rail->name, name, sizeof(rail->name) - 1) != 0)) {
        rail++;
    }
    if (rail->name[0] == '\0') {
        rail->number = number;
        snprintf(rail->name, sizeof(rail->name), "%s", name);
    }
    pthread_mutex_unlock(&page_lock);
    return rail;
}

void mpath_page_rail_lose(mpath_page_rail_t *rail, int is_lost)
{
    atomic_store_explicit(&rail->lost_ns, is_lost ? mpath_time_ns() : 0, memory_order_relaxed);
}

mpath_page_slot_t *mpath_page_slot_take(const char *name, int rank, int size)
{
    mpath_page_slot_t *slot = NULL;

    pthread_mutex_lock(&page_lock);
    for (int i = 0; i < MPATH_PAGE_SLOTS && page != &stand_in && slot == NULL; i++) {
        if (atomic_load_explicit(&page->slots[i].used, memory_order_relaxed) == 0) {
            slot = &page->slots[i];
            memset(slot, 0, sizeof(*slot));
            slot->rank = rank;
            slot->size = size;
            snprintf(slot->name, sizeof(slot->name), "%s", name);
            atomic_store_explicit(&slot->used, 1, memory_order_release);
        }
    }
    pthread_mutex_unlock(&page_lock);
    return slot;
}

void mpath_page_slot_give(mpath_page_slot_t *slot)
{
    atomic_store_explicit(&slot->used, 0, memory_order_release);
}

void mpath_page_wait_begin(mpath_page_slot_t *slot, int rank, uint64_t waited_ns, const char *text)
{
    uint32_t next           = atomic_load_explicit(&slot->edge, memory_order_relaxed) == 1 ? 1 : 0;
    mpath_page_edge_t *edge = &slot->edges[next];
    uint64_t now_ns         = mpath_time_ns();

    atomic_store_explicit(&edge->call, mpath_count_get(&slot->calls), memory_order_relaxed);
    atomic_store_explicit(&edge->since_ns, now_ns - waited_ns, memory_order_relaxed);
    atomic_store_explicit(&edge->looked_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&edge->rank, rank, memory_order_relaxed);
    snprintf(edge->text, sizeof(edge->text), "%s", text);
    atomic_store_explicit(&slot->edge, next + 1, memory_order_release);
}
