/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the pages of all processes of this user twice, a moment apart, and says what is in them. Nothing is asked of the
 * processes: they may be stopped. Who is waited for in the end follows from who waits for whom.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/info/job.h"

#include "record/page.h"
#include "team/call.h"
#include "util/file.h"
#include "util/number.h"
#include "util/time.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOB_FOLDER "/dev/shm"
#define JOB_SAMPLE_US 250000 /* between the two looks, for rates */
#define JOB_LOOKS 5          /* at a page that is being written */
#define JOB_PIDS_SHOWN 16
#define JOB_ANCESTORS 32
#define JOB_LATE_NS (2 * MPATH_NS_PER_S) /* a rank that waits looks every 50 ms */
#define JOB_TEXT_MAX 160

/* A process that has a page. */
typedef struct job_process {
    mpath_page_t page, before; /* now, and a moment ago */
    uint64_t now_ns, before_ns;
    int fd;
    char state; /* of /proc/PID/stat: R, S, T, ...; '?': not told */
    long ancestors[JOB_ANCESTORS];
    int num_ancestors;
    char command[JOB_TEXT_MAX];
} job_process_t;

typedef struct job_list {
    job_process_t *processes;
    size_t count;
} job_list_t;

/* The pages, and the processes behind them. */

static void job_parent(long pid, char *state_p, long *parent_p)
{
    char path[64], text[512];
    const char *at;
    FILE *file;

    *state_p  = '?';
    *parent_p = 0;
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    at = strrchr(text, ')');
    if (at == NULL || sscanf(at + 1, " %c %ld", state_p, parent_p) != 2) {
        *state_p  = '?';
        *parent_p = 0;
    }
}

/* Its command line with blanks between the words; what is no text becomes '?'. */
static void job_command(long pid, char *text, size_t size)
{
    char path[64];
    size_t length = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%ld/cmdline", pid);
    file = fopen(path, "re");
    if (file != NULL) {
        length = fread(text, 1, size - 1, file);
        fclose(file);
    }
    while (length > 0 && text[length - 1] == '\0') {
        length--;
    }
    for (size_t i = 0; i < length; i++) {
        text[i] = text[i] == '\0' ? ' ' : (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    }
    text[length] = '\0';
}

static void job_look_at_process(job_process_t *process)
{
    long pid = (long)process->page.process.pid, parent;
    mpath_process_t self;
    char state;

    mpath_process_self(&self);
    process->state = '?';
    if (self.pid_space != process->page.process.pid_space) {
        return; /* of a container: the number is another process's here */
    }
    job_parent(pid, &process->state, &parent);
    job_command(pid, process->command, sizeof(process->command));
    while (parent > 1 && process->num_ancestors < JOB_ANCESTORS) {
        process->ancestors[process->num_ancestors++] = parent;
        job_parent(parent, &state, &parent);
    }
}

/* A whole page: two looks that are alike, but for what counts; of one that never rests, the last. */
static int job_read_page(int fd, mpath_page_t *page)
{
    mpath_page_t other;

    if (pread(fd, page, sizeof(*page), 0) != (ssize_t)sizeof(*page)) {
        return 0;
    }
    for (int look = 0; look < JOB_LOOKS; look++) {
        other = *page;
        if (pread(fd, page, sizeof(*page), 0) != (ssize_t)sizeof(*page)) {
            return 0;
        }
        if (memcmp(other.slots, page->slots, sizeof(page->slots)) == 0) {
            break;
        }
    }
    for (int i = 0; i < MPATH_PAGE_SLOTS; i++) { /* what is not closed by its writer is closed here */
        mpath_page_slot_t *slot = &page->slots[i];

        slot->name[sizeof(slot->name) - 1]                   = '\0';
        slot->edges[0].text[sizeof(slot->edges[0].text) - 1] = '\0';
        slot->edges[1].text[sizeof(slot->edges[1].text) - 1] = '\0';
    }
    for (int i = 0; i < MPATH_PAGE_RAILS; i++) {
        page->rails[i].name[sizeof(page->rails[i].name) - 1] = '\0';
    }
    page->version[sizeof(page->version) - 1] = '\0';
    return 1;
}

/* Of this user, a page of this version, and its process lives. */
static int job_open_page(int folder, const char *name, job_process_t *process)
{
    struct stat info;

    *process = (job_process_t){.fd = mpath_file_open_own(folder, name, 0)};
    if (process->fd < 0) {
        return 0;
    }
    process->before_ns = mpath_time_ns();
    if (fstat(process->fd, &info) == 0 && (info.st_mode & (S_IRWXG | S_IRWXO)) == 0 &&
        (uint64_t)info.st_size == MPATH_PAGE_BYTES && job_read_page(process->fd, &process->before) &&
        process->before.magic == MPATH_PAGE_MAGIC && mpath_process_alive(&process->before.process)) {
        return 1;
    }
    close(process->fd);
    return 0;
}

static int job_is_page(const char *name)
{
    size_t length = strlen(name), end = strlen(MPATH_PAGE_NAME_END);

    return strncmp(name, "mpath-", 6) == 0 && length > end && strcmp(name + length - end, MPATH_PAGE_NAME_END) == 0;
}

static int job_order(const void *one, const void *other)
{
    const mpath_page_t *a = &((const job_process_t *)one)->page, *b = &((const job_process_t *)other)->page;

    return a->job != b->job ? (a->job < b->job ? -1 : 1) : a->rank - b->rank;
}

static void job_list_release(job_list_t *list)
{
    for (size_t i = 0; i < list->count; i++) {
        close(list->processes[i].fd);
    }
    free(list->processes);
}

/* By job, then rank. */
static void job_list_read(job_list_t *list)
{
    DIR *folder = opendir(JOB_FOLDER);
    struct dirent *entry;

    *list = (job_list_t){.count = 0};
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        job_process_t *more;

        if (!job_is_page(entry->d_name)) {
            continue;
        }
        more = realloc(list->processes, (list->count + 1) * sizeof(*more));
        if (more == NULL) {
            break;
        }
        list->processes = more;
        list->count += job_open_page(dirfd(folder), entry->d_name, &more[list->count]) ? 1 : 0;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (list->count == 0) {
        return;
    }
    usleep(JOB_SAMPLE_US);
    for (size_t i = 0; i < list->count; i++) {
        job_process_t *process = &list->processes[i];

        process->page   = process->before;
        process->now_ns = mpath_time_ns();
        if (!job_read_page(process->fd, &process->page)) {
            process->page = process->before;
        }
        job_look_at_process(process);
    }
    qsort(list->processes, list->count, sizeof(*list->processes), job_order);
}

/* Words. */

static const char *job_operation(uint32_t operation)
{
    static const char *const names[] = {"?", "MPI_Alltoallv", "MPI_Allreduce", "MPI_Reduce_scatter", "MPI_Allgather"};

    return operation < sizeof(names) / sizeof(names[0]) ? names[operation] : names[0];
}

/* "3.2 s", "2 min 5 s", "1 h 2 min" */
static const char *job_time(uint64_t ns, char text[32])
{
    unsigned long long seconds = ns / MPATH_NS_PER_S;

    if (seconds < 100) {
        snprintf(text, 32, "%.1f s", (double)ns / 1e9);
    } else if (seconds < 6000) {
        snprintf(text, 32, "%llu min %llu s", seconds / 60, seconds % 60);
    } else {
        snprintf(text, 32, "%llu h %llu min", seconds / 3600, seconds / 60 % 60);
    }
    return text;
}

static uint64_t job_since(const job_process_t *process, uint64_t ns)
{
    return process->now_ns > ns ? process->now_ns - ns : 0;
}

/* A call as long as the sample is one; shorter ones come and go between two looks. */
static int job_is_in_call(const mpath_page_slot_t *slot)
{
    return slot->used && slot->phase != MPATH_RECORD_IDLE;
}

/* The wait that a communicator is in; NULL: none. */
static const mpath_page_edge_t *job_edge(const mpath_page_slot_t *slot)
{
    uint32_t edge = slot->edge;

    return edge >= 1 && edge <= 2 && job_is_in_call(slot) && slot->edges[edge - 1].call == slot->calls
               ? &slot->edges[edge - 1]
               : NULL;
}

static int job_is_stopped(const job_process_t *process)
{
    return process->state == 'T' || process->state == 't';
}

/* The communicator to tell of: one that waits, else one in a call, else that of the last call. */
static const mpath_page_slot_t *job_main_slot(const job_process_t *process)
{
    const mpath_page_slot_t *best = NULL;
    int best_rate                 = -1;

    for (int i = 0; i < MPATH_PAGE_SLOTS; i++) {
        const mpath_page_slot_t *slot = &process->page.slots[i];
        int rate                      = job_is_in_call(slot) ? job_edge(slot) != NULL ? 2 : 1 : 0;

        if (slot->used && (slot->calls > 0 || slot->phase != MPATH_RECORD_IDLE) &&
            (rate > best_rate || (rate == best_rate && slot->began_ns > best->began_ns))) {
            best      = slot;
            best_rate = rate;
        }
    }
    return best;
}

static void job_show_call(const job_process_t *process, const mpath_page_slot_t *slot)
{
    char bytes[MPATH_NUMBER_SHOWN], since[32];

    job_time(job_since(process, slot->began_ns), since);
    if (slot->calls == 0) {
        printf("sets up %s, for %s", slot->name, since);
        return;
    }
    mpath_number_show((double)slot->bytes, "B", bytes);
    if (job_is_in_call(slot)) {
        printf("%s", job_operation(slot->collective));
        if (slot->bytes > 0) {
            printf(" of %s", bytes);
        }
        printf(", call %u on %s, for %s", slot->number, slot->name, since);
        return;
    }
    printf("not in a call of mpath; its last, %s, call %u on %s, began %s ago and %s", job_operation(slot->collective),
           slot->number, slot->name, since,
           slot->end == MPATH_RECORD_LEFT     ? "was left to the function that mpath replaces, which may still run"
           : slot->end == MPATH_RECORD_FAILED ? "failed"
                                              : "was carried");
}

/* How many calls have begun on all communicators; they may come and go meanwhile. */
static uint64_t job_calls(const mpath_page_t *page)
{
    uint64_t calls = 0;

    for (int i = 0; i < MPATH_PAGE_SLOTS; i++) {
        calls += page->slots[i].used ? page->slots[i].calls : 0;
    }
    return calls;
}

static void job_show_rank(const job_process_t *process)
{
    const mpath_page_slot_t *slot = job_main_slot(process);
    uint64_t calls = job_calls(&process->page), before = job_calls(&process->before);

    printf("  %6d %8" PRId64 "  %s", process->page.rank, process->page.process.pid,
           job_is_stopped(process) ? "STOPPED (by a signal or a debugger); " : "");
    if (slot == NULL) {
        printf("no call of mpath yet\n");
        return;
    }
    if (calls > before && job_edge(slot) == NULL) {
        printf("%.0f calls a second; ",
               (double)(calls - before) * 1e9 / (double)(process->now_ns - process->before_ns));
    }
    job_show_call(process, slot);
    printf("\n");
}

/* Who waits for whom. */

/* The rank of that communicator, if its process is on this node. */
static const job_process_t *job_find(const job_process_t *job, size_t count, const mpath_page_slot_t *like, int rank,
                                     const mpath_page_slot_t **slot_p)
{
    for (size_t i = 0; i < count; i++) {
        for (int s = 0; s < MPATH_PAGE_SLOTS; s++) {
            const mpath_page_slot_t *slot = &job[i].page.slots[s];

            if (slot->used && slot->rank == rank && slot->size == like->size && slot->team == like->team &&
                (like->team != 0 || strcmp(slot->name, like->name) == 0)) {
                *slot_p = slot;
                return &job[i];
            }
        }
    }
    return NULL;
}

/* From one rank to the next, until one waits for nobody here. -1: they wait for each other. */
static int job_root(const job_process_t *job, size_t count, const mpath_page_slot_t *slot,
                    const job_process_t **process_p)
{
    const job_process_t *process = NULL;
    const mpath_page_slot_t *at  = slot;
    const mpath_page_edge_t *edge;
    int rank = slot->rank;

    for (size_t steps = 0; steps <= count; steps++) {
        edge = job_edge(at);
        if ((process != NULL && job_is_stopped(process)) || edge == NULL || edge->rank < 0 || edge->rank == rank) {
            *process_p = process;
            return rank;
        }
        rank    = edge->rank;
        process = job_find(job, count, slot, rank, &at);
        if (process == NULL) {
            *process_p = NULL;
            return rank;
        }
    }
    *process_p = NULL;
    return -1;
}

static void job_show_root(const mpath_page_slot_t *slot, int rank, const job_process_t *process, int waiting)
{
    printf("  %s: %d wait%s in the end for ", slot->name, waiting, waiting == 1 ? "s" : "");
    if (rank < 0) {
        printf("each other\n");
    } else if (process == NULL) {
        printf("rank %d, which is not on this node, or has not come yet: ask there\n", rank);
    } else if (job_is_stopped(process)) {
        printf("rank %d, PID %" PRId64 ", which is STOPPED; kill -CONT %" PRId64 " lets it go on\n", rank,
               process->page.process.pid, process->page.process.pid);
    } else {
        const mpath_page_slot_t *its = NULL;
        int in_call                  = job_find(process, 1, slot, rank, &its) != NULL && job_is_in_call(its);

        printf("rank %d, PID %" PRId64 ", which %s\n", rank, process->page.process.pid,
               in_call ? "waits for nobody of this node"
                       : "is not in this call: it runs the application's own code, or another function");
    }
}

static void job_show_edges(const job_process_t *job, size_t count)
{
    char since[32], looked[32];
    int shown = 0;

    for (size_t i = 0; i < count; i++) {
        for (int s = 0; s < MPATH_PAGE_SLOTS; s++) {
            const mpath_page_slot_t *slot = &job[i].page.slots[s];
            const mpath_page_edge_t *edge = slot->used ? job_edge(slot) : NULL;
            uint64_t late_ns;

            if (edge == NULL) {
                continue;
            }
            printf("%s", shown++ == 0 ? "who waits for whom\n" : "");
            late_ns = job_since(&job[i], edge->looked_ns);
            printf("  %s; nothing came for %s", edge->text, job_time(job_since(&job[i], edge->since_ns), since));
            if (late_ns > JOB_LATE_NS) {
                printf(" (it has not looked for %s)", job_time(late_ns, looked));
            }
            printf("\n");
        }
    }
}

/* For each communicator and each rank that others wait for in the end, one line. */
static void job_show_roots(const job_process_t *job, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (int s = 0; s < MPATH_PAGE_SLOTS; s++) {
            const mpath_page_slot_t *slot = &job[i].page.slots[s];
            const job_process_t *process, *other;
            int root, waiting = 0, told = 0;

            if (!slot->used || job_edge(slot) == NULL) {
                continue;
            }
            root = job_root(job, count, slot, &process);
            for (size_t k = 0; k < count; k++) {
                for (int t = 0; t < MPATH_PAGE_SLOTS; t++) {
                    const mpath_page_slot_t *its = &job[k].page.slots[t];

                    if (!its->used || job_edge(its) == NULL || its->team != slot->team ||
                        strcmp(its->name, slot->name) != 0 || its->rank == root ||
                        job_root(job, count, its, &other) != root) {
                        continue;
                    }
                    waiting++;
                    told |= k < i;
                }
            }
            if (waiting > 0 && !told && slot->rank != root) {
                job_show_root(slot, root, process, waiting);
            }
        }
    }
}

/* Rails. */

typedef struct job_rail {
    const char *name;
    uint64_t rate_bps, sent, received, lost_ns;
    double sent_bps, received_bps; /* now */
} job_rail_t;

static double job_rate(const job_process_t *process, uint64_t now, uint64_t before)
{
    return (double)(now - before) * 1e9 / (double)(process->now_ns - process->before_ns);
}

/* By name: processes may number them otherwise. */
static int job_add_rails(const job_process_t *process, job_rail_t *rails, int count, int most)
{
    for (int i = 0; i < MPATH_PAGE_RAILS; i++) {
        const mpath_page_rail_t *now = &process->page.rails[i], *before = &process->before.rails[i];
        int at = 0;

        if (now->name[0] == '\0') {
            continue;
        }
        while (at < count && strcmp(rails[at].name, now->name) != 0) {
            at++;
        }
        if (at == most) {
            continue;
        }
        if (at == count) {
            rails[count++] = (job_rail_t){.name = now->name, .rate_bps = now->rate_bps};
        }
        rails[at].sent += now->sent_bytes;
        rails[at].received += now->received_bytes;
        rails[at].sent_bps += job_rate(process, now->sent_bytes, before->sent_bytes);
        rails[at].received_bps += job_rate(process, now->received_bytes, before->received_bytes);
        if (now->lost_ns != 0) {
            rails[at].lost_ns = rails[at].lost_ns == 0 || now->lost_ns < rails[at].lost_ns ? now->lost_ns
                                                                                           : rails[at].lost_ns;
        }
    }
    return count;
}

static void job_show_rails(const job_process_t *job, size_t count)
{
    job_rail_t rails[2 * MPATH_PAGE_RAILS];
    char sent[MPATH_NUMBER_SHOWN], received[MPATH_NUMBER_SHOWN], out[MPATH_NUMBER_SHOWN], in[MPATH_NUMBER_SHOWN];
    char rate[MPATH_NUMBER_SHOWN], since[32];
    int num_rails = 0;

    for (size_t i = 0; i < count; i++) {
        num_rails = job_add_rails(&job[i], rails, num_rails, 2 * MPATH_PAGE_RAILS);
    }
    if (num_rails == 0) {
        printf("rails: no NIC\n");
        return;
    }
    printf("rails (all ranks of this node)%8s%12s%14s%14s%14s\n", "sent", "received", "out now", "in now", "of");
    for (int i = 0; i < num_rails; i++) {
        const job_rail_t *rail = &rails[i];

        mpath_number_show((double)rail->sent, "B", sent);
        mpath_number_show((double)rail->received, "B", received);
        mpath_number_show(rail->sent_bps, "B/s", out);
        mpath_number_show(rail->received_bps, "B/s", in);
        mpath_number_show((double)rail->rate_bps, "B/s", rate);
        printf("  %-25s%11s%12s%14s%14s%14s", rail->name, sent, received, out, in, rate);
        if (rail->lost_ns != 0) {
            printf("  FAILED, left out for %s", job_time(job_since(&job[0], rail->lost_ns), since));
        }
        printf("\n");
    }
}

/* Jobs. */

static void job_show_head(const job_process_t *job, size_t count)
{
    char since[32];

    printf("job %" PRIu64 ": %s\n", job->page.job, job->command[0] != '\0' ? job->command : "(no command line)");
    printf("  %zu of %d ranks on this node, mpath %s for %s, PIDs", count, job->page.size, job->page.version,
           job_time(job_since(job, job->page.began_ns), since));
    for (size_t i = 0; i < count && i < JOB_PIDS_SHOWN; i++) {
        printf(" %" PRId64, job[i].page.process.pid);
    }
    printf("%s\n", count > JOB_PIDS_SHOWN ? " ..." : "");
}

static void job_show(const job_process_t *job, size_t count)
{
    job_show_head(job, count);
    printf("    rank      PID\n");
    for (size_t i = 0; i < count; i++) {
        job_show_rank(&job[i]);
    }
    job_show_edges(job, count);
    job_show_roots(job, count);
    job_show_rails(job, count);
}

static int job_has_pid(const job_process_t *process, long pid)
{
    int has = process->page.process.pid == pid;

    for (int i = 0; i < process->num_ancestors && !has; i++) {
        has = process->ancestors[i] == pid;
    }
    return has;
}

/* The number of processes of the job at the head of the list. */
static size_t job_length(const job_process_t *at, size_t left)
{
    size_t count = 1;

    while (count < left && at[count].page.job == at->page.job) {
        count++;
    }
    return count;
}

int info_job(long pid)
{
    size_t at, length, jobs = 0, shown = 0;
    job_list_t list;

    job_list_read(&list);
    for (at = 0; at < list.count; at += length, jobs++) {
        length = job_length(&list.processes[at], list.count - at);
    }
    for (at = 0; at < list.count; at += length) {
        int is_meant = pid == 0;

        length = job_length(&list.processes[at], list.count - at);
        for (size_t i = at; i < at + length && !is_meant; i++) {
            is_meant = job_has_pid(&list.processes[i], pid);
        }
        if (!is_meant) {
            continue;
        }
        if (pid == 0 && jobs > 1) {
            job_show_head(&list.processes[at], length);
        } else {
            job_show(&list.processes[at], length);
        }
        shown++;
    }
    if (shown == 0 && pid == 0) {
        printf("no process of yours uses mpath on this node\n");
    } else if (shown == 0) {
        printf("no process of yours uses mpath on this node in a job of PID %ld\n", pid);
    } else if (pid == 0 && jobs > 1) {
        printf("mpath_info --job PID tells all about one of them\n");
    }
    job_list_release(&list);
    return shown > 0;
}
