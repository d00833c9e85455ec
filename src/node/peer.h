/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "peer": copies between the memory of two GPUs of a node, straight from and to the places where the bytes belong.
 * The sender's process has opened the receiver's allocation (device/ipc_import.h) and does everything:
 *
 *   kernel  one launch for all of its fragments, divided over the CTAs by bytes
 *   push    copy engines, one fragment after the other
 *
 * Which is fastest depends on the sizes, on how much the same GPU sends and receives at a time, and on what the
 * machine's copies reach; mpath_peer_predict_ns() tells. Completion is a word of host memory that all processes of the
 * node see, written after the bytes: a number that only grows, so nothing is ever reset.
 */
#ifndef MPATH_NODE_PEER_H
#define MPATH_NODE_PEER_H

#include "device/kernels/copy.h"
#include "device/stream.h"
#include "topo/discover/gpu_probe.h"

#include <stdatomic.h>

/* A word as devices address it; address 0: none. */
typedef struct mpath_peer_word {
    mpath_device_ptr_t address;
    uint64_t value;
} mpath_peer_word_t;

/* A fragment for a copy engine. */
typedef struct mpath_peer_fragment {
    mpath_device_ptr_t target, source;
    uint64_t bytes;
} mpath_peer_fragment_t;

/*
 * Enqueues the fragments, at once where the driver can take them so, else in order, and then writes `done`. A stream without
 * words (mpath_stream_has_values()) may not be asked for any. Errors are logged.
 */
mpath_status_t mpath_peer_engine(mpath_stream_t *stream, const mpath_peer_fragment_t *fragments, unsigned count,
                                 mpath_peer_word_t done);

/* CTAs of a copy inside a GPU beside engine copies to others; from how many bytes on engines make that, too. */
#define MPATH_PEER_LOCAL_CTAS 16
#define MPATH_PEER_ASIDE_BYTES (UINT64_C(16) << 20)

typedef enum mpath_peer_lane { MPATH_PEER_KERNEL, MPATH_PEER_PUSH } mpath_peer_lane_t;

/* What copies of a machine reach, bytes per second in one direction; plain data, the same on all ranks of a team. */
typedef struct mpath_peer_rates {
    uint64_t pair_bps;             /* an engine's copy between two GPUs, alone */
    uint64_t kernel_bps;           /* a kernel's writes */
    uint64_t staged_bps;           /* through host memory into one GPU, within what the host can do for all of them */
    uint64_t beside_bps;           /* the same beside copies that come in from other GPUs: what it adds to these */
    uint64_t one_bps;              /* the same, out of one GPU only */
    uint64_t both_bps;             /* through the host out of one GPU and into it at once, in each direction */
    uint64_t host_bps;             /* into all GPUs of the machine together, while as much comes out of them */
    uint32_t engine_ns, kernel_ns; /* from the call to the host's seeing the end of a small one */
} mpath_peer_rates_t;

/* What was measured on H200 behind an NVSwitch. */
void mpath_peer_rates_init(mpath_peer_rates_t *rates);

/* What a probe has measured, of the slowest GPU or pair; what it has not stays as it is. */
void mpath_peer_rates_set(mpath_peer_rates_t *rates, const mpath_gpu_probe_t *probe);

/*
 * Through host memory into a GPU beside copies between GPUs, out of so many others: the rate, and nanoseconds until the
 * first bytes are there, which are those of whole chunks through the host.
 */
void mpath_peer_beside(const mpath_peer_rates_t *rates, int senders, uint64_t *bps_p, uint64_t *start_ns_p);

/* What a lane would have to carry. */
typedef struct mpath_peer_load {
    uint64_t port_bytes; /* through the busiest port: what one GPU sends, or what it receives */
    uint64_t both_bytes; /* the most that one GPU sends and receives together */
    unsigned fragments;  /* the most fragments of one GPU */
    uint64_t order_ns;   /* of engines, what their order takes by its own model; 0: there is none yet */
    int small_pages;     /* engines work on memory that is mapped so: mpath_export_has_small_pages() */
} mpath_peer_load_t;

/* What an order of engine copies counts with: the rate of a GPU's port, and what passes between two fragments. */
void mpath_peer_order_rates(const mpath_peer_rates_t *rates, uint64_t *port_bps_p, uint64_t *fragment_ns_p);

/* Nanoseconds until a load has been carried, from measurements on GPUs behind an NVSwitch: doc/gpu-design.md. */
uint64_t mpath_peer_predict_ns(const mpath_peer_rates_t *rates, mpath_peer_lane_t lane, const mpath_peer_load_t *load);

/*
 * Copies of the lane "peer" by kernels that are made again: an application mostly exchanges the same buffers by the
 * same counts, call after call. A launch like an earlier one becomes a repeat (device/graph.h), whose end the host sees
 * some 2 us earlier.
 *
 * Thread-safety: as of the streams; who owns it has one launch under way at a time.
 */

typedef struct mpath_peer_again mpath_peer_again_t;

/* The number of a call, in host memory; `address`: as devices know it. Nothing writes it while a launch is under way.
 */
typedef struct mpath_peer_number {
    _Atomic uint64_t *word;
    mpath_device_ptr_t address;
} mpath_peer_number_t;

/* NULL: no memory, which costs nothing but time; not logged. */
mpath_peer_again_t *mpath_peer_again_create(void);

/* Its launches have ended. NULL: nothing. */
void mpath_peer_again_destroy(mpath_peer_again_t *again);

/*
 * As mpath_launch_copy(), for a launch without waits and mark, and with one flag, whose value goes through `number`.
 * `again` may be NULL.
 */
mpath_status_t mpath_peer_again_launch(mpath_peer_again_t *again, mpath_stream_t *stream,
                                       const mpath_launch_copy_t *launch, const mpath_peer_number_t *number);

#endif
