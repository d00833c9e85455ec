/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of the movement of device memory, for the files relay*.c only. */
#ifndef MPATH_MOVER_RELAY_PRIVATE_H
#define MPATH_MOVER_RELAY_PRIVATE_H

#include "team/wait.h"
#include "mover/relay.h"
#include "mover/relay_owners.h"
#include "mover/relay_segment.h"
#include "mover/schedule.h"
#include "wire/wire.h"
#include "device/ipc_import.h"
#include "device/pinned.h"
#include "device/stream.h"
#include "mover/pace.h"

#define RELAY_NO_SLOT (-1)
/*
 * Slots of rails at a receiver for each sender, at most: a chunk holds one from its copy off the GPU on, until that is known to be
 * free again. And those of a sender, for all of its NICs. What 50 GB/s want: doc/gpu-design.md.
 */
#define RELAY_WINDOW 8
#define RELAY_SENDS 16u
#define RELAY_ALL_SENDS ((1u << RELAY_SENDS) - 1)

/* A chunk in a slot of this rank, or in a host slot of a mate, that has to go on. */
typedef struct relay_item {
    struct relay_item *next;
    mpath_duty_t *duty;
    uint32_t chunk;
    mpath_relay_class_t slot_class;
    int slot, owner; /* of a host slot: the member that filled it */
} relay_item_t;

/* What the end of a copy means. */
typedef enum relay_step {
    RELAY_TO_FINAL, /* in the receive buffer of a mate */
    RELAY_TO_SLOT,  /* in a slot of a mate's GPU */
    RELAY_TO_HOST,  /* in a host slot of this rank, for the destination */
    RELAY_FETCH,    /* from a host slot into this rank's receive buffer */
    RELAY_TO_WIRE,  /* in a slot of this rank that rails send from */
    RELAY_FROM_WIRE /* out of a slot that a rail has filled, into a slot of the pool or this rank's receive buffer */
} relay_step_t;

/* A copy under way. */
typedef struct relay_op {
    struct relay_op *next;
    relay_step_t step;
    mpath_duty_t *duty;
    uint32_t chunk, outlet;
    uint32_t bytes;
    mpath_relay_class_t from_class;
    int from_slot; /* of this rank, given back at the end; RELAY_NO_SLOT: its own buffer */
    int from_owner;
    mpath_relay_class_t to_class;
    int to_slot;
    mpath_stream_t *stream; /* NULL: the copy is complete */
    mpath_mark_t mark;
    uint64_t arrives_ns; /* not before; 0: as soon as the copy is complete */
    uint64_t began_ns;   /* for the timeline; 0: nobody wants to know, or there is no copy */
} relay_op_t;

/* A way out of this rank: what waits for it, and what is on it. */
typedef struct relay_outlet {
    relay_item_t *first, **last_p;
    unsigned in_flight;
    uint64_t own_left;   /* chunks of this rank's own that are not handed over */
    int8_t own_turn;     /* forwarded chunks and own ones take turns */
    const char *blocked; /* what the next chunk waits for; for messages */
} relay_outlet_t;

/* Slots of this rank that rails send from or receive into, in host memory or on its GPU; mover/relay_hop.c. */
typedef struct relay_slots {
    char *base;                     /* as chunks name it to the lane; NULL: there are none */
    mpath_device_ptr_t device_base; /* as copies do */
    mpath_pinned_t pinned;          /* on the host */
    uint64_t gpu_bytes;             /* on the GPU; 0: on the host */
    int is_known;                   /* to the rails, as memory of a GPU */
} relay_slots_t;

/* A chunk in a slot of a rail. */
typedef struct relay_pinned_chunk {
    mpath_duty_t *duty;
    uint32_t chunk, bytes;
    int slot;
} relay_pinned_chunk_t;

/* First in, first out; bounded by the slots. */
typedef struct relay_pinned_list {
    relay_pinned_chunk_t *items; /* a ring of `capacity` */
    uint32_t capacity, first, count;
} relay_pinned_list_t;

/* A rank at the other end of rails. */
typedef struct relay_far {
    int32_t sender;                    /* its number among those that may send to this rank; -1: it does not */
    uint32_t credits;                  /* bit per slot that is free for this rank there */
    mpath_nic_set_t nics_busy;         /* its gate's word, as of its last credits */
    uint8_t credit_nics[RELAY_WINDOW]; /* of this node, for the chunks that hold the slots there */
} relay_far_t;

/* Chunks that came by a rail or go over one, and those that go through the host; mover/relay_hop.c. */
typedef struct relay_rails {
    mpath_segment_t host; /* slots of all members, that destinations fetch from */
    mpath_pinned_t host_pinned;
    uint64_t host_bytes; /* of a member; this rank's are noted in device/usage.h, as those of rails on the host */

    mpath_wire_t *wire; /* NULL: no plan has needed it yet, or rails are copies */
    uint64_t slot_bytes;
    relay_slots_t sends, receives; /* [RELAY_SENDS]; [senders][window] */
    relay_far_t *far;              /* by rank */
    int senders;                   /* ranks of other nodes that may send to this one by rails */
    int is_of_topo;  /* some rank has slots for those only that send to it in the present topology; the same on all */
    uint32_t window; /* slots for each; likewise */
    uint64_t credits_out;                    /* slots of others that chunks of this rank hold */
    int direct;                              /* they are on GPUs; the same on all ranks */
    int needs_flush;                         /* the GPU does not order what a NIC writes */
    int knows_pool;                          /* rails send out of this rank's pool */
    uint64_t send_free;                      /* bit per slot of `sends` */
    uint8_t send_nics[RELAY_SENDS];          /* of this node, for the chunks in these slots */
    relay_pinned_list_t ready, landed, owed; /* for the rail; from it, for the GPU; credits to give back */
    unsigned credits_sent;                   /* that are not finished */
    uint64_t credit;                         /* what a credit sends */
    uint64_t sink;                           /* where one arrives */
    mpath_status_t failed;
    int active; /* the call has rails */
} relay_rails_t;

#define RELAY_KEPT 8
#define RELAY_KNOWN 8

/* What follows from a plan and the topology that it is for. Belongs to `kept`. */
typedef struct relay_bound {
    mpath_schedule_t *schedule; /* NULL: none */
    uint64_t signature;         /* of the plan, or of the call that it is a part for; the same on all */
    uint64_t used;              /* bound_count when it was used last */
    mpath_path_t *paths;        /* by duty */
    relay_outlet_t *outlets;
    uint64_t wanted; /* mask of the members whose receive buffers this one writes to */
    uint32_t slot_bytes;
    int has_rails;                            /* some rank's hops go over NICs; the same on all */
    int has_staged;                           /* and through host memory; likewise */
    mpath_nic_set_t own_rails;                /* bit per NIC of this node that brings this rank bytes of its own */
    uint64_t rail_sources;                    /* where rails are copies: mask of the members that send those */
    mpath_nic_set_t lent_rails;               /* as own_rails, for bytes that it passes on */
    mpath_nic_set_t send_rails;               /* that this rank sends by */
    int slots;                                /* of each class on a GPU */
    uint64_t fetch_bytes;                     /* that this rank brings into its receive buffer itself */
    uint64_t expect[MPATH_RELAY_MAX_MEMBERS]; /* bytes of a call that each member puts into this one's receive buffer */
} relay_bound_t;

#define RELAY_MAX_REDUCED 64

/* What a rank tells when slots have been made. */
typedef struct relay_hello {
    uint64_t bytes;  /* 0: it passes nothing on */
    uint64_t failed; /* mask of members whose slots it cannot open */
    uint64_t passes; /* a path passes through its GPU */
} relay_hello_t;

/* A rank of the team. */
typedef struct relay_rank {
    uint8_t passes;  /* a path of the whole topology passes through its GPU, */
    uint8_t without; /* but it cannot pass on */
    uint8_t marked;  /* for whoever goes through the ranks */
    int32_t mate;    /* the one before it on its node; -1: it is the first */
} relay_rank_t;

struct mpath_relay {
    mpath_team_t *team;
    const mpath_settings_t *settings;
    int size, me;
    int usable, opened;
    int discovers; /* no topology tells of GPUs: the first call on device memory looks for them */
    int by_copies; /* rails are copies (emulation) */
    mpath_topo_t *reduced[RELAY_MAX_REDUCED]; /* topologies without GPUs that cannot pass on, and failed NICs */
    int num_reduced;
    relay_rank_t *ranks;           /* [size] */
    relay_hello_t *said;           /* [size] for exchanges */
    int no_staged;                 /* some rank cannot have slots on the host: plans do without; the same on all */
    int is_short;                  /* some rank's GPU is short of memory */
    int is_lost;                   /* some rank's GPU has lost its context, or it has one for the first time */
    const mpath_topo_t *topo;      /* that plans are made for */
    const mpath_topo_t *looked_at; /* for which has_staged_pairs was found; NULL: none yet */
    int has_staged_pairs;          /* static routes of some node's pairs go through host memory */
    int has_no_way;                /* what is left of it cannot be used; until rails fail or come back */
    mpath_relay_segment_t shared;
    mpath_owners_t owners; /* of the NICs of this rank's node */
    mpath_pace_t *pace;
    uint64_t number;    /* of the call */
    uint64_t signature; /* of what its ranks have agreed on */
    int half;
    mpath_relay_cell_t told;

    mpath_gpu_t *gpu;        /* that does this rank's copies; NULL: it had none at the set-up, or that is to come */
    mpath_gpu_t *next_gpu;   /* that the next set-up takes; NULL: none is known yet */
    int is_guess;            /* it is the thread's: no buffer of this rank has been on one */
    int has_said;            /* that there is none */
    mpath_device_ptr_t pool; /* slots of this rank's GPU; 0: it passes nothing on */
    uint64_t my_pool_bytes;
    unsigned shortages;                               /* of the process, that this one has looked after */
    uint64_t pool_bytes;                              /* that every rank with slots has */
    mpath_import_t *pools[MPATH_RELAY_MAX_MEMBERS];   /* slots of the mates, by member */
    mpath_import_t *buffers[MPATH_RELAY_MAX_MEMBERS]; /* receive buffers, by member; open during calls */

    relay_bound_t bound;               /* of the call under way; one of `kept` */
    relay_bound_t kept[RELAY_KEPT];    /* of the last plans; without schedule: free */
    uint64_t bound_count;              /* plans that calls were bound to */
    mpath_export_t known[RELAY_KNOWN]; /* receive buffers of this rank that all who may have to have opened once */
    unsigned num_known;
    int moved;   /* some rank has memory that not all have opened yet */
    int partial; /* some rank cannot open all of them: after every change all tell whether they have what they need */
    unsigned topo_version; /* of the team, that `topo` follows */
    uint64_t asked_for;    /* signature of the last plan of which all could open the buffers; 0: none */

    /* The call under way */
    const mpath_call_t *call;
    uint64_t expected[MPATH_RELAY_MAX_MEMBERS]; /* by member: expect[] of all calls so far, as the rings count */
    int settles;                                /* the ranks end it together, so that it can be repeated */
    mpath_nic_set_t lost;                       /* NICs of this node that have failed in it */
    uint64_t send_left, forward_left, fetch_left;
    size_t first_outlet;
    relay_op_t *under_way, **under_way_last_p, *spare_ops;
    relay_item_t *spare_items;
    mpath_stream_t *self_stream;
    mpath_mark_t self_mark;
    relay_rails_t rails;
    mpath_rail_clock_t clock; /* of the last call whose rails were active */
    mpath_wait_t wait;
    mpath_relay_stats_t stats;
};

/* mover/relay_hop.c. Streams of a GPU are shared by communicators; nothing waits for other ranks under this lock. */
void mpath_relay_lock(void);
void mpath_relay_unlock(void);

/* Memory of this rank's buffers that is on a GPU; NULL: none is. */
static inline const mpath_memory_t *mpath_relay_memory(const mpath_call_t *call)
{
    const mpath_memory_t *send = call->send_memory, *recv = call->recv_memory;

    if ((send != NULL) && !mpath_memory_on_host(send->kind)) {
        return send;
    }
    return ((recv != NULL) && !mpath_memory_on_host(recv->kind)) ? recv : NULL;
}

static inline int mpath_relay_is_same_memory(const mpath_export_t *a, const mpath_export_t *b)
{
    return (a->how == b->how) && ((a->how == MPATH_EXPORT_NONE) ||
                                  ((a->base == b->base) && (a->bytes == b->bytes) && (a->buffer_id == b->buffer_id)));
}

/* In a mask of members; 0: the rank is none. */
static inline uint64_t mpath_relay_member_bit(const mpath_relay_t *relay, int rank)
{
    int member = relay->shared.member_of[rank];

    return (member >= 0) ? 1ull << member : 0;
}

/* Bytes that a member has yet to write into this rank's receive buffer. */
static inline uint64_t mpath_relay_missing_from(const mpath_relay_t *relay, int member)
{
    const mpath_relay_ring_t *ring = mpath_relay_ring(&relay->shared, relay->shared.my_member, member);

    return relay->expected[member] - atomic_load_explicit(&ring->landed_bytes, memory_order_acquire);
}

/* mover/relay_setup.c. Collective: the team's topology with every rank's GPU. MPATH_DECLINED, on all ranks alike: there is none. */
mpath_status_t mpath_relay_discover(mpath_relay_t *relay);

/*
 * mover/relay_setup.c. Collective: segment, slots, who can pass on. MPATH_DECLINED, on all ranks alike: not usable from now on.
 */
mpath_status_t mpath_relay_setup(mpath_relay_t *relay);
/*
 * Collective, when a rank's application has ended the context of its GPU and goes on in another, or has buffers on one
 * that was not known at the set-up: everything that was made with GPUs is made anew on all ranks. MPATH_DECLINED as
 * above.
 */
mpath_status_t mpath_relay_renew(mpath_relay_t *relay);
/* Collective, when NICs of the team's topology have failed or are back. May leave no way, as the others here. */
mpath_status_t mpath_relay_follow_topo(mpath_relay_t *relay);
/* Collective, when a rank has said that its GPU is short of memory: such ranks give their slots back. */
mpath_status_t mpath_relay_give_back(mpath_relay_t *relay);
void mpath_relay_cleanup(mpath_relay_t *relay);

/* Where a slot of a pool lies. */
static inline mpath_device_ptr_t mpath_relay_slot_at(mpath_device_ptr_t pool, const mpath_relay_t *relay,
                                                     mpath_relay_class_t slot_class, int slot)
{
    return pool + ((uint64_t)slot_class * (uint64_t)relay->bound.slots + (uint64_t)slot) * relay->bound.slot_bytes;
}

/* What all ranks know a plan by: each has another part of one by pairs of nodes. */
static inline uint64_t mpath_relay_signature(const mpath_relay_t *relay, const mpath_plan_t *plan)
{
    return mpath_plan_is_part(plan) ? relay->signature : mpath_plan_signature(plan);
}

/* mover/relay_setup.c: schedule and slots for a plan; opens the receive buffers that this rank writes to. Collective. */
mpath_status_t mpath_relay_take_plan(mpath_relay_t *relay, const mpath_plan_t *plan);
/* Whether all who may have to write to such a receive buffer of this rank have opened it. */
int mpath_relay_knows(const mpath_relay_t *relay, const mpath_export_t *memory);

/* mover/relay_setup.c: those of a topology that does not hold any more. */
void mpath_relay_close_buffers(mpath_relay_t *relay);

/* mover/relay_hop.c: each returns the number of events, or an error that is logged. */
int mpath_relay_take_arrivals(mpath_relay_t *relay);
int mpath_relay_finish_ops(mpath_relay_t *relay);
/* Sends one chunk on, of this rank's own or out of a slot. MPATH_NO_RESOURCE: it has to wait. */
mpath_status_t mpath_relay_hand(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk, const relay_item_t *item);
/* Puts a chunk that is in a slot of this rank into the queue of its outlet. */
mpath_status_t mpath_relay_queue(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk,
                                 mpath_relay_class_t slot_class, int slot, int owner);

/*
 * mover/relay_owners.c. Every round, and at the end of a call: tells other communicators of NICs that carry bytes of this
 * rank's own, and the ranks that send over NICs which this one lends whether others of theirs do.
 */
void mpath_relay_announce(mpath_relay_t *relay);
void mpath_relay_announce_end(mpath_relay_t *relay);
/* Whether the NIC that the op's chunk would borrow is busy with its owner's bytes in another communicator. */
int mpath_relay_yields(mpath_relay_t *relay, const relay_op_t *op);

/* mover/relay.c: sends on what can go. Number of events, or an error that is logged. */
int mpath_relay_feed(mpath_relay_t *relay);

/* mover/relay.c */
/* Nothing has come for long: takes the rails that chunks are awaited on for failed. MPATH_OK: there are none. */
mpath_status_t mpath_relay_give_rails_up(mpath_relay_t *relay, int seconds);

/*
 * mover/relay_hop.c: rails and the host's part: slots that a rail sends from and receives into, and slots on the host that
 * a destination fetches from.
 *
 * A rank that receives by rails has a window of slots for each that sends to it; the sender chooses the slot, so a
 * chunk that arrives always has one, and gets it back as a credit when the chunk has gone on from it.
 */

/*
 * Collective, for every new plan: makes what its hops need and is not there yet. MPATH_AGAIN, on all ranks: there are no
 * slots on hosts, and another topology is to be planned for.
 */
mpath_status_t mpath_relay_rails_prepare(mpath_relay_t *relay, const mpath_plan_t *plan);
/* Notes whether some rank's hops go over NICs, or through host memory. The same on all ranks. */
void mpath_relay_rails_look(mpath_relay_t *relay, const mpath_plan_t *plan, relay_bound_t *bound);
/* Most bytes of a chunk that crosses a rail. */
uint64_t mpath_relay_rails_chunk(const mpath_relay_t *relay);
void mpath_relay_rails_cleanup(mpath_relay_t *relay);

void mpath_relay_rails_begin(mpath_relay_t *relay);
void mpath_relay_rails_end(mpath_relay_t *relay);
/* Drives the NICs, and what waits for a slot. Number of events, or an error. */
int mpath_relay_rails_progress(mpath_relay_t *relay);
/* Nothing of the call is left in the rails. */
int mpath_relay_rails_idle(const mpath_relay_t *relay);
/* Whether the other end of the rail that the duty sends by has yet to give room back, which may be all that is missing. */
int mpath_relay_rails_owe(const mpath_relay_t *relay, const mpath_duty_t *duty);
/* Of a NIC of this node, for messages. */
const char *mpath_relay_rails_name(const mpath_relay_t *relay, int nic);
/* A call is given up: what comes is dropped; what is under way ends when the ranks settle. */
void mpath_relay_rails_stop(mpath_relay_t *relay);
/* It fails: nothing is under way afterwards. */
void mpath_relay_rails_abandon(mpath_relay_t *relay);
/*
 * When all ranks have settled after mpath_relay_rails_stop(): all slots and credits are where they belong, for the call's
 * repetition.
 */
mpath_status_t mpath_relay_rails_restart(mpath_relay_t *relay);
/* NICs, a bit each, on which something of the call has failed. */
mpath_nic_set_t mpath_relay_rails_lost(const mpath_relay_t *relay);

/* mover/relay_hop.c: before the pool goes. */
void mpath_relay_slots_forget_pool(mpath_relay_t *relay);

/* mover/relay_setup.c: slots on the GPUs for chunks that pass through. */

/*
 * Before a call: whether this rank's GPU is short of memory. Every 64 calls of the process that asks the driver, and of
 * every communicator once that has found so.
 */
int mpath_relay_pool_is_short(mpath_relay_t *relay);

#endif
