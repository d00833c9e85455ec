/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of alltoallv on device memory, and of the reductions that share its board. */
#ifndef MPATH_NODE_NODE_PRIVATE_H
#define MPATH_NODE_NODE_PRIVATE_H

#include "device/ipc_import.h"
#include "node/board.h"
#include "node/node.h"
#include "node/order.h"
#include "node/peer.h"
#include "node/streams.h"
#include "tune/trial.h"
#include "util/pause.h"
#include "util/time.h"

#include <stdint.h>

/* How the message of a pair travels. */
typedef enum gpu_lane {
    LANE_NONE,
    LANE_KERNEL, /* the sender's kernel writes */
    LANE_PUSH,   /* the sender's copy engine writes */
    LANE_STAGED  /* through host memory */
} gpu_lane_t;

#define GPU_EXPORT_STATES 8

/* An allocation of some rank, and who has opened it. The same on all ranks: it follows from what all have seen. */
typedef struct gpu_export_state {
    uint64_t base, bytes, buffer_id; /* all 0: empty */
    uint64_t opened, failed;         /* masks of ranks, with the devices that they work with now */
} gpu_export_state_t;

typedef struct gpu_export_states {
    gpu_export_state_t exports[GPU_EXPORT_STATES];
    int next; /* to be replaced */
} gpu_export_states_t;

/* A pair of GPUs between which opening memory has failed: not tried again. The same on all ranks. */
typedef struct gpu_refused {
    int32_t device;           /* that opens, as its process numbers it; -1: none */
    mpath_device_uuid_t uuid; /* whose memory it is */
} gpu_refused_t;

/* What this rank needs for one side of a call. */
typedef struct gpu_side {
    mpath_gpu_t *gpu; /* NULL: the host reads and writes the buffer itself */
    char *buffer;
} gpu_side_t;

/* Everything that follows from the ranks' buffers and the demand. Kept while both stay the same. */
typedef struct gpu_decided {
    int valid;
    uint64_t *generations;              /* [n] */
    uint64_t *demand;                   /* [n][n] */
    uint8_t *lanes;                     /* [n][n] gpu_lane_t */
    uint64_t wanted[MPATH_BOARD_SIDES]; /* masks of the ranks on whose memory this one works */
    uint32_t share_ppm;                 /* that `beside` has, where the caller wants one */
    uint64_t *beside;      /* [n][n] bytes at the end of a pair's message that go through the host beside its lane */
    unsigned help_percent; /* that `helped` has of what is pushed */
    uint64_t *helped;      /* [n][n] bytes of a pushed message, before those of `beside`, that the kernel writes */
    mpath_import_t **imports[MPATH_BOARD_SIDES]; /* [n] what this rank writes to and reads from, in calls */
    mpath_import_t **closed;                     /* [2 n] these, since the end of a call: to be taken again */
    uint64_t closed_stamp;
    int all;                     /* of mpath_gpu_coll_open_all(): everything is open */
    uint64_t engine_least;       /* pairs of fewer bytes go with the kernel */
    int pushes;                  /* engines are at work */
    uint64_t engine_ranks;       /* mask of those whose engines work */
    uint64_t *by_engine;         /* [source][destination] bytes that engines carry; the order is made for it */
    uint64_t order_ns, bound_ns; /* of the order without help; 0: no engine is at work */
} gpu_decided_t;

/* Short messages, sent before the agreement: node/flagged.c. */
typedef struct gpu_exchange gpu_exchange_t;

/* Ranks that take turns on a GPU: node/choose.c. */
typedef struct gpu_turns {
    uint64_t generations; /* of all cells together, for which the rest holds */
    int most;             /* ranks on a GPU that takes turns; 0: there is none that several use */
    int shared;           /* some GPU has memory of several ranks, in turns or not */
    int left;             /* the present call is left to the host */
    int *places;          /* [n] the first rank on the same GPU; that rank itself without a GPU */
} gpu_turns_t;

/* What goes on beside the kernels of a reduction: data through the host, and what is to be done with it. */
typedef struct gpu_beside {
    void *owner;
    mpath_status_t (*then)(mpath_gpu_coll_t *gpu); /* when all of it has come; NULL: nothing, or it still comes */
    int waits;                                     /* for this rank's engine_done */
    int to_all;                                    /* and for those of all others */
    uint64_t start_ns;                             /* 0: nobody wants to know */
    uint64_t first_ns, second_ns;                  /* what the kernels, and what this took from then on */
} gpu_beside_t;

/* For the timeline: what this rank's GPU has under way in the call. */
typedef enum gpu_span_kind {
    GPU_SPAN_KERNEL,
    GPU_SPAN_ENGINE,
    GPU_SPAN_SELF,
    GPU_SPAN_HOST,
    GPU_SPANS
} gpu_span_kind_t;

typedef struct gpu_span {
    uint64_t began_ns; /* 0: it is not */
    uint64_t bytes;
} gpu_span_t;

struct mpath_gpu_coll {
    mpath_team_t *team;
    const mpath_settings_t *settings;
    int size, me;
    int usable;
    int opened; /* the board is there */
    mpath_board_t board;
    unsigned first_stream; /* of the two that the communicator uses */
    uint64_t number;       /* of the call; its half of the board is number % 2 */
    int half;
    mpath_peer_rates_t rates;              /* the same on all ranks */
    int rated;                             /* they are those of this machine, as far as these are known */
    mpath_board_cell_t published;          /* by this rank in the last call */
    mpath_gpu_t *published_gpu;            /* with which it works on its send buffer */
    mpath_gpu_t *ready[MPATH_BOARD_SIDES]; /* that the sides' calls have found ready last */
    mpath_pause_t ready_pause;             /* since one of them could not be made so */
    mpath_board_host_t published_host;
    gpu_beside_t beside;
    gpu_turns_t turns;
    uint32_t share_ppm; /* of what would go from GPU to GPU, through the host */
    int timed;          /* how long both take is wanted */
    int lacks_slots;    /* the call under way was declined for them */
    int no_beside;      /* some rank could not have slots in host memory: nothing does for now; the same on all */
    int eager; /* what this rank publishes of kernels that are started before the agreement: mpath_board_cell_t */
    gpu_exchange_t *exchange; /* NULL: short messages wait for the agreement as well */
    mpath_trials_t help;      /* of kernels that help engines, node/node.c */
    int claimed;              /* this process may wait for other ranks on the device in this call */

    uint64_t *demand; /* [n][n] of the call */
    gpu_decided_t decided;
    gpu_export_states_t *export_states; /* [sides][n] */
    gpu_refused_t *refused;             /* [opener][owner] */
    int32_t *devices; /* [sides][n] that each rank has had its memory on last, as it numbers them; -1: none */
    mpath_order_t *order;
    mpath_peer_fragment_t *engine_fragments;              /* capacity: all fragments of an order */
    mpath_peer_again_t *again;                            /* NULL: no memory for it */
    mpath_kernel_fragment_t *fragments;                   /* [n] */
    mpath_staged_message_t *staged_send, *staged_receive; /* [n] */

    gpu_span_t spans[GPU_SPANS];
    gpu_side_t send, receive;
    int kernel_started, engine_started, self_started, staged_started;
    mpath_stream_t *engine_stream, *self_stream;
    int posts; /* the host writes the engine's word, since the stream cannot */
    mpath_mark_t engine_mark, self_mark;
    uint64_t staged_before;
    uint64_t planning_since_ns;
    mpath_gpu_counters_t counters;
};

/* node/node.c: begins with what goes through the host. */
void mpath_gpu_coll_begin_staged(mpath_gpu_coll_t *gpu, const mpath_staged_side_t *send,
                                 const mpath_staged_side_t *receive);

/* node/node.c: the board, the demand and this rank's sides of a call. Collective; as mpath_gpu_coll_move(). */
mpath_status_t mpath_gpu_coll_prepare(mpath_gpu_coll_t *gpu, const mpath_call_t *call, const mpath_agreed_t *agreed);

/* The rest of mpath_gpu_coll_move(), where everything until here has ended in `status`. */
mpath_status_t mpath_gpu_coll_move_prepared(mpath_gpu_coll_t *gpu, const mpath_call_t *call, mpath_status_t status);

/* Waits for what has been started, or, when starting has failed, for what had been until then. */
mpath_status_t mpath_gpu_coll_finish(mpath_gpu_coll_t *gpu, mpath_status_t started);

/*
 * node/choose.c, in place of mpath_gpu_coll_find_lanes() where GPUs reduce, with demand between all: opens both
 * sides of all ranks if this one works on them (`works`), until mpath_gpu_coll_close_imports(). MPATH_DECLINED, on all
 * ranks alike: somebody cannot open something, or has no kernels.
 */
mpath_status_t mpath_gpu_coll_open_all(mpath_gpu_coll_t *gpu, int works);

/* Around what counts as planning, in counters.plan_ns. */
static inline void gpu_plan_begins(mpath_gpu_coll_t *gpu)
{
    gpu->planning_since_ns = mpath_time_ns();
}

static inline void gpu_plan_ends(mpath_gpu_coll_t *gpu)
{
    gpu->counters.plan_ns += mpath_time_ns() - gpu->planning_since_ns;
}

/* node/choose.c: brings gpu->decided up to date; opens the memory that this rank works on. Collective. */
mpath_status_t mpath_gpu_coll_find_lanes(mpath_gpu_coll_t *gpu);

/* Once: what the copies of this machine reach. Collective. */
mpath_status_t mpath_gpu_coll_find_rates(mpath_gpu_coll_t *gpu);

/* Gives back what is open: an allocation that its owner frees must not stay open here. The decision stays. */
void mpath_gpu_coll_close_imports(mpath_gpu_coll_t *gpu);

/* The same, and the decision goes. */
void mpath_gpu_coll_forget_lanes(mpath_gpu_coll_t *gpu);

/*
 * node/choose.c: slots in host memory, where there are none so far. MPATH_DECLINED, on all ranks alike: some
 * cannot have them, which is logged with `without`, what follows from that. Collective, as those below.
 */
mpath_status_t mpath_gpu_coll_get_slots(mpath_gpu_coll_t *gpu, uint64_t bytes, const char *without);

/* A call of all ranks: whether those without slots beside them are over. */
void mpath_gpu_coll_count_pause(mpath_gpu_coll_t *gpu);

/*
 * Whether what goes from a rank to another one through the host goes by streams that wait for each other (lane "staged"),
 * by what both have published and how much it is. After mpath_gpu_coll_leaves_to_host(). The sender decides; the receiver may
 * be wrong.
 */
int mpath_gpu_coll_by_streams(const mpath_gpu_coll_t *gpu, int from, int to, uint64_t bytes);

/*
 * node/choose.c: what carries most of the pairs that are LANE_PUSH so far. And, once all lanes are known, the
 * host's share and the order of the engines' fragments.
 */
mpath_gpu_way_t mpath_gpu_coll_fastest_lane(mpath_gpu_coll_t *gpu);

/* After it: from how many bytes on a pair is worth an engine. */
uint64_t mpath_gpu_coll_engine_least(const mpath_gpu_coll_t *gpu);

void mpath_gpu_coll_make_order(mpath_gpu_coll_t *gpu);

/* The order alone, after the host's share has changed. */
void mpath_gpu_coll_order_rest(mpath_gpu_coll_t *gpu);

/*
 * node/choose.c: whether the call is predicted to be faster with copies on the host than with GPUs on which
 * ranks take turns; `operation` is a mpath_operation_t. The same on all ranks. Needs the board and gpu->demand.
 */
int mpath_gpu_coll_leaves_to_host(mpath_gpu_coll_t *gpu, uint32_t operation);

/*
 * node/flagged.c: short messages, sent before the agreement, by a kernel that mpath_gpu_coll_publish() starts
 * if this rank may expect that all others do the same. And, in a call that another algorithm carries, what those that
 * follow need; collective. mpath_gpu_exchange_start() returns the nanoseconds that starting the kernel took.
 */
void mpath_gpu_exchange_destroy(mpath_gpu_coll_t *gpu);

uint64_t mpath_gpu_exchange_start(mpath_gpu_coll_t *gpu, const mpath_call_t *call);
mpath_status_t mpath_gpu_exchange_prepare(mpath_gpu_coll_t *gpu);

/*
 * Of a rank, where a part of a call goes through the host beside the rest: for chunks of 2 MiB. Those of 1 MiB were
 * slower on two H200, and to make more memory known to the driver takes milliseconds.
 */
static inline uint64_t mpath_gpu_beside_slots_bytes(const mpath_gpu_coll_t *gpu)
{
    const uint64_t most = UINT64_C(16) << 20;

    return (gpu->settings->gpu_memory_bytes < most) ? gpu->settings->gpu_memory_bytes : most;
}

static inline void gpu_span_begin(mpath_gpu_coll_t *gpu, gpu_span_kind_t kind, uint64_t bytes)
{
    if (mpath_trace_is_on()) {
        gpu->spans[kind] = (gpu_span_t){.began_ns = mpath_time_ns(), .bytes = bytes};
    }
}

static inline gpu_lane_t gpu_lane(const mpath_gpu_coll_t *gpu, int source, int destination)
{
    return (gpu_lane_t)gpu->decided.lanes[(size_t)source * (size_t)gpu->size + (size_t)destination];
}

static inline uint64_t gpu_bytes(const mpath_gpu_coll_t *gpu, int source, int destination)
{
    return gpu->demand[(size_t)source * (size_t)gpu->size + (size_t)destination];
}

static inline const mpath_board_cell_t *gpu_cell(const mpath_gpu_coll_t *gpu, int rank)
{
    return &gpu->board.cells[gpu->half][rank];
}

/*
 * How many of a hot receiver's bytes go through host memory beside the copies from GPU to GPU, in closed form.
 *
 * With one hot port there are two resources that matter, its ingress and the host's path into its GPU; the least of the
 * larger load / capacity is where both end together. That is the optimum of the planner for the same capacities (a unit
 * test compares), and this form knows two things that the planner's loads do not: the host's copies begin late, and no
 * other port may become the slowest for it. Integers: the same on all ranks.
 */

typedef struct mpath_host_share {
    uint64_t hot_bytes; /* through the hot port */
    uint64_t
        next_bytes;    /* through the busiest other port, or the hot one's other direction: not relieved by the host */
    uint64_t port_ns;  /* what the hot port takes for all of its bytes */
    uint64_t host_bps; /* of staged copies into one GPU */
    uint64_t start_ns; /* until the host's first bytes are there */
    unsigned take_percent; /* of the share at which both end together; the rest is for the host's unsteadiness */
    unsigned most_percent; /* of hot_bytes at most */
} mpath_host_share_t;

/* Bytes, at most hot_bytes - next_bytes; 0: the host is no help. */
uint64_t mpath_host_share_bytes(const mpath_host_share_t *share);

#endif
