/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See coll_mpath_peers.h. A word stands under one key for every process of the job that has the component; processes
 * that were started without it have none. Processes of other jobs (MPI_Comm_spawn) may not have been exchanged with:
 * they are taken for alike. Where Open MPI defers the exchange between nodes until somebody asks
 * (opal_pmix_base_async_modex, the default of 6.0; its fence then collects nothing), words are known inside a node
 * only: nobody asks for those of other nodes, which could take as long as the slowest of them. Some PMIx (5.0.7 under
 * PRRTE 3.0.8) collect in the fence and keep nothing of it: where no word at all has come from other nodes, that is
 * taken for the same.
 */
#include "coll_mpath_peers.h"
#include "coll_mpath.h"
#include "coll_mpath_help.h"

#include "team/team.h"
#include "util/process.h"

#include "ompi/group/group.h"
#include "ompi/proc/proc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEERS_KEY "coll.mpath"
/* Told on the machine only: */
#define PEERS_NODE_KEY "coll.mpath.node"
#define PEERS_PROCESS_KEY "coll.mpath.process" /* mpath_process_word() */

#define PEER_READ (UINT64_C(1) << 63)  /* in the table: the word has been asked for */
#define PEER_THERE (UINT64_C(1) << 62) /* the process has opened the component */
#define PEER_ENABLED (UINT64_C(1) << 61)
#define PEER_NONBLOCKING (UINT64_C(1) << 60)
#define PEER_PRIORITY (UINT64_C(0xffffffff))

static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *peers;     /* by number in the job; 0: not read yet */
static uint64_t *processes; /* the same: of those that share this node; 0: not read yet, or not known */
static bool published, told;
static bool far_told; /* a word of a process on another machine has come */

#ifdef COLL_MPATH_HAVE_MODEX
static uint64_t peers_mine(void)
{
    uint64_t enabled     = (0 != mca_coll_mpath_component.enable) ? PEER_ENABLED : 0;
    uint64_t nonblocking = (0 != mca_coll_mpath_component.nonblocking) ? PEER_NONBLOCKING : 0;

    return PEER_THERE | enabled | nonblocking | (uint64_t)(uint32_t)mca_coll_mpath_component.settings.priority;
}
#endif

void mca_coll_mpath_peers_publish(void)
{
#ifdef COLL_MPATH_HAVE_MODEX
    uint64_t word = peers_mine(), node = mpath_node_key(NULL), process = mpath_process_word();
    int rc;

    COLL_MPATH_MODEX_SEND_LOCAL(rc, PEERS_NODE_KEY, &node);
    COLL_MPATH_MODEX_SEND_LOCAL(rc, PEERS_PROCESS_KEY, &process);
    COLL_MPATH_MODEX_SEND(rc, PEERS_KEY, &word);
    published = (COLL_MPATH_MODEX_SUCCESS == rc) && opal_pmix_collect_all_data;
    if (COLL_MPATH_MODEX_SUCCESS != rc) {
        mpath_info("the others cannot be told that this process has mpath (error %d): ranks without it go unnoticed",
                   rc);
    }
#endif
}

#ifdef COLL_MPATH_HAVE_MODEX
/* Is this process of my machine on my node? Who has not told, has no mpath: where it is does not matter. */
static bool peers_on_node(opal_process_name_t name, uint64_t mine)
{
    uint64_t node = 0, *node_p = &node;
    int rc;

    COLL_MPATH_MODEX_RECV(rc, PEERS_NODE_KEY, &name, &node_p);
    return (COLL_MPATH_MODEX_SUCCESS != rc) || (node == mine);
}
#endif

int mca_coll_mpath_peers_local_rank(void)
{
    int number = (UINT16_MAX == ompi_process_info.my_local_rank) ? -1 : (int)ompi_process_info.my_local_rank;
#ifdef COLL_MPATH_HAVE_MODEX
    uint64_t mine = mpath_node_key(NULL);
    size_t i, count;
    ompi_proc_t **procs = ompi_proc_get_allocated(&count);

    for (i = 0; (NULL != procs) && (i < count); i++) {
        opal_process_name_t name = procs[i]->super.proc_name;

        if (OPAL_PROC_ON_LOCAL_NODE(procs[i]->super.proc_flags) && (name.vpid < OMPI_PROC_MY_NAME->vpid) &&
            !peers_on_node(name, mine) && (0 < number)) {
            number--;
        }
    }
    free(procs);
#endif
    return number;
}

/* Is this rank's process on my machine? One that Open MPI has not met yet is on another. */
static bool peers_near(struct ompi_communicator_t *comm, int rank)
{
    ompi_proc_t *proc = ompi_group_get_proc_ptr(comm->c_local_group, rank, false);

    return (NULL != proc) && OPAL_PROC_ON_LOCAL_NODE(proc->super.proc_flags);
}

/* The word of a process of this job, under the lock. */
static uint64_t peers_read(opal_process_name_t name)
{
    uint64_t unknown = 0, *known = (NULL != peers) ? &peers[name.vpid] : &unknown;

#ifdef COLL_MPATH_HAVE_MODEX
    if (0 == *known) {
        uint64_t word = 0, *word_p = &word;
        int rc;

        COLL_MPATH_MODEX_RECV(rc, PEERS_KEY, &name, &word_p);
        *known = PEER_READ | ((COLL_MPATH_MODEX_SUCCESS == rc) ? word : 0);
    }
#else
    (void)name;
#endif
    return *known & ~PEER_READ;
}

/* Takes part, and where; 0: not. */
static uint64_t peers_place(uint64_t word)
{
    return ((0 != (word & PEER_ENABLED)) && (0 != (word & PEER_PRIORITY))) ? word : 0;
}

static const char *peers_text(uint64_t word, char *text, size_t size)
{
    if (0 == (word & PEER_THERE)) {
        snprintf(text, size, "does not have the component");
    } else if (0 == (word & PEER_ENABLED)) {
        snprintf(text, size, "has coll_mpath_enable 0");
    } else {
        snprintf(text, size, "has coll_mpath_priority %u%s", (unsigned)(word & PEER_PRIORITY),
                 (0 == (word & PEER_NONBLOCKING)) ? " and coll_mpath_nonblocking 0" : "");
    }
    return text;
}

/* What the words of a communicator's processes come to. */
typedef struct peers_view {
    uint64_t first, odd; /* rank 0's, and one that means something else */
    int odd_rank;        /* -1: they all mean the same */
    int speaker;         /* the first rank with mpath; -1: none */
    bool silent;         /* there is no word of some process on another machine */
} peers_view_t;

static void peers_look(struct ompi_communicator_t *comm, peers_view_t *view)
{
    uint32_t job = (uint32_t)OMPI_PROC_MY_NAME->jobid;
    int rank, first_rank = -1;

    *view = (peers_view_t){.odd_rank = -1, .speaker = -1};
    for (rank = 0; rank < ompi_comm_size(comm); rank++) {
        opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group, rank);
        uint64_t word;

        if (((uint32_t)name.jobid != job) || (ompi_process_info.num_procs <= name.vpid)) {
            continue;
        }
        word = peers_read(name);
        if (!peers_near(comm, rank)) {
            far_told     = far_told || (0 != word);
            view->silent = view->silent || (0 == word);
        }
        if (0 > first_rank) {
            first_rank  = rank;
            view->first = word;
        } else if ((0 > view->odd_rank) && (peers_place(word) != peers_place(view->first))) {
            view->odd_rank = rank;
            view->odd      = word;
        }
        if ((0 > view->speaker) && (0 != peers_place(word))) {
            view->speaker = rank;
        }
    }
}

/* The words of some processes may not have come. */
static bool peers_deferred(struct ompi_communicator_t *comm)
{
#ifdef COLL_MPATH_HAVE_MODEX
    return opal_pmix_base_async_modex && ompi_group_have_remote_peers(comm->c_local_group);
#else
    (void)comm;
    return true;
#endif
}

bool mca_coll_mpath_peers_alike(struct ompi_communicator_t *comm)
{
    char first_text[96], odd_text[96];
    peers_view_t view = {.odd_rank = -1, .speaker = -1};
    bool tell         = false;

    if (!published || peers_deferred(comm)) {
        return true;
    }
    pthread_mutex_lock(&peers_lock);
    if (NULL == peers) {
        peers = calloc(ompi_process_info.num_procs, sizeof(*peers));
    }
    peers_look(comm, &view); /* what it finds must not depend on whether there was memory for the table */
    if (view.silent && !far_told && !COLL_MPATH_MODEX_REACHES_ALL) {
        mpath_info_by(0 == ompi_comm_rank(comm),
                      "%s: MPI_Init has brought no word from other nodes: ranks without mpath there go unnoticed",
                      comm->c_name);
        view.odd_rank = -1;
    }
    if (0 <= view.odd_rank) {
        tell = !told && (ompi_comm_rank(comm) == view.speaker);
        told = told || tell;
    }
    pthread_mutex_unlock(&peers_lock);
    if (tell) {
        COLL_MPATH_TELL("ranks-differ", "%s: rank 0 %s, rank %d %s; the other components serve the communicator",
                        comm->c_name, peers_text(view.first, first_text, sizeof(first_text)), view.odd_rank,
                        peers_text(view.odd, odd_text, sizeof(odd_text)));
    }
    return 0 > view.odd_rank;
}

/* The word of the process, 0 where it is not known; under the lock. */
static uint64_t peers_process(struct ompi_communicator_t *comm, int rank)
{
    opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group, rank);
    uint64_t unknown = 0, *known = &unknown;

    if (((uint32_t)name.jobid != (uint32_t)OMPI_PROC_MY_NAME->jobid) || (ompi_process_info.num_procs <= name.vpid) ||
        !peers_near(comm, rank)) {
        return 0;
    }
    if (NULL == processes) {
        processes = calloc(ompi_process_info.num_procs, sizeof(*processes));
    }
    if (NULL != processes) {
        known = &processes[name.vpid];
    }
#ifdef COLL_MPATH_HAVE_MODEX
    if (0 == *known) {
        uint64_t word = 0, node = 0, *word_p = &word, *node_p = &node;
        int rc, node_rc;

        COLL_MPATH_MODEX_RECV(rc, PEERS_PROCESS_KEY, &name, &word_p);
        COLL_MPATH_MODEX_RECV(node_rc, PEERS_NODE_KEY, &name, &node_p);
        if ((COLL_MPATH_MODEX_SUCCESS == rc) && (COLL_MPATH_MODEX_SUCCESS == node_rc) &&
            (mpath_node_key(NULL) == node)) {
            *known = word;
        }
    }
#endif
    return *known;
}

bool mca_coll_mpath_peers_watched(struct ompi_communicator_t *comm, int rank)
{
    uint64_t word;

    pthread_mutex_lock(&peers_lock);
    word = peers_process(comm, rank);
    pthread_mutex_unlock(&peers_lock);
    return 0 != word;
}

bool mca_coll_mpath_peers_gone(struct ompi_communicator_t *comm, int rank)
{
    uint64_t word;

    pthread_mutex_lock(&peers_lock);
    word = peers_process(comm, rank);
    pthread_mutex_unlock(&peers_lock);
    return (0 != word) && (0 == mpath_process_word_alive(word));
}

void mca_coll_mpath_peers_end(void)
{
    pthread_mutex_lock(&peers_lock);
    free(peers);
    free(processes);
    peers     = NULL;
    processes = NULL;
    published = false;
    told      = false;
    far_told  = false;
    pthread_mutex_unlock(&peers_lock);
}
