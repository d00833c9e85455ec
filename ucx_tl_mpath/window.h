/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two ends of a numbered stream of packets that travel over several rails. The sender's window knows which packets
 * are done and bounds how far it may run ahead; the receiver's window tells packets that come in order from early ones,
 * which it keeps, and from those that have come before (a packet is sent again when its rail fails).
 *
 * Numbers are 32 bits and wrap. Both windows start small and grow by doubling up to `max`, a power of two that both
 * ends agree on; a packet beyond it can only come from a sender that broke the agreement. No UCX in here.
 */
#ifndef UCX_TL_MPATH_WINDOW_H
#define UCX_TL_MPATH_WINDOW_H

#include "util/status.h"

#include <stdint.h>

typedef struct mpath_tx_window {
    uint32_t base; /* oldest number that is not done; equal to next: nothing is outstanding */
    uint32_t next; /* number of the next packet */
    uint32_t size, max;
    uint8_t *done; /* by number % size */
} mpath_tx_window_t;

mpath_status_t mpath_tx_window_init(mpath_tx_window_t *window, uint32_t max);
void mpath_tx_window_release(mpath_tx_window_t *window);

/* The next number. MPATH_NO_RESOURCE when `max` are outstanding. */
mpath_status_t mpath_tx_window_take(mpath_tx_window_t *window, uint32_t *psn_p);
/* Takes back the number that was taken last. */
void mpath_tx_window_untake(mpath_tx_window_t *window);
/* A packet is done. Nonzero when this moved the base. */
int mpath_tx_window_done(mpath_tx_window_t *window, uint32_t psn);

static inline uint32_t mpath_tx_window_outstanding(const mpath_tx_window_t *window)
{
    return window->next - window->base;
}

/* Nonzero when `a` comes before `b`. */
static inline int mpath_psn_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

typedef enum mpath_rx_verdict {
    MPATH_RX_IN_ORDER,
    MPATH_RX_EARLY,
    MPATH_RX_DUPLICATE,
    MPATH_RX_OUTSIDE /* further ahead than the sender may be */
} mpath_rx_verdict_t;

typedef struct mpath_rx_window {
    uint32_t next; /* number that is in order */
    uint32_t size, max;
    void **early; /* by number % size: NULL where nothing has come */
} mpath_rx_window_t;

mpath_status_t mpath_rx_window_init(mpath_rx_window_t *window, uint32_t max);
/* What is still kept goes to `drop`. */
void mpath_rx_window_release(mpath_rx_window_t *window, void (*drop)(void *entry, void *arg), void *arg);

mpath_rx_verdict_t mpath_rx_window_classify(const mpath_rx_window_t *window, uint32_t psn);
/* Keeps an early packet; entry is not NULL. */
mpath_status_t mpath_rx_window_keep(mpath_rx_window_t *window, uint32_t psn, void *entry);
/* The packet in order has been dealt with: steps over it and takes out the next one if it is there, else NULL. */
void *mpath_rx_window_step(mpath_rx_window_t *window);

#endif
