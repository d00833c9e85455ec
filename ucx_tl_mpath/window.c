/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of numbered packets: rings that double when they are full. */
#include "ucx_tl_mpath/window.h"

#include <stdlib.h>

#define WINDOW_START 32u

static uint32_t first_size(uint32_t max)
{
    return max < WINDOW_START ? max : WINDOW_START;
}

mpath_status_t mpath_tx_window_init(mpath_tx_window_t *window, uint32_t max)
{
    uint8_t *done = calloc(first_size(max), sizeof(*done));

    if (done == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    window->base = 0;
    window->next = 0;
    window->size = first_size(max);
    window->max  = max;
    window->done = done;
    return MPATH_OK;
}

void mpath_tx_window_release(mpath_tx_window_t *window)
{
    free(window->done);
    window->done = NULL;
}

static mpath_status_t tx_grow(mpath_tx_window_t *window)
{
    uint32_t size = window->size * 2, psn;
    uint8_t *done;

    done = calloc(size, sizeof(*done));
    if (done == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (psn = window->base; psn != window->next; ++psn) {
        done[psn % size] = window->done[psn % window->size];
    }
    free(window->done);
    window->done = done;
    window->size = size;
    return MPATH_OK;
}

mpath_status_t mpath_tx_window_take(mpath_tx_window_t *window, uint32_t *psn_p)
{
    mpath_status_t status;

    if (mpath_tx_window_outstanding(window) >= window->max) {
        return MPATH_NO_RESOURCE;
    }
    if (mpath_tx_window_outstanding(window) == window->size) {
        status = tx_grow(window);
        if (status != MPATH_OK) {
            return status;
        }
    }
    window->done[window->next % window->size] = 0;
    *psn_p                                    = window->next++;
    return MPATH_OK;
}

void mpath_tx_window_untake(mpath_tx_window_t *window)
{
    --window->next;
}

int mpath_tx_window_done(mpath_tx_window_t *window, uint32_t psn)
{
    uint32_t base = window->base;

    if (psn - base >= window->next - base) {
        return 0; /* done before */
    }
    window->done[psn % window->size] = 1;
    while (window->base != window->next && window->done[window->base % window->size]) {
        ++window->base;
    }
    return window->base != base;
}

mpath_status_t mpath_rx_window_init(mpath_rx_window_t *window, uint32_t max)
{
    void **early = calloc(first_size(max), sizeof(*early));

    if (early == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    window->next  = 0;
    window->size  = first_size(max);
    window->max   = max;
    window->early = early;
    return MPATH_OK;
}

void mpath_rx_window_release(mpath_rx_window_t *window, void (*drop)(void *entry, void *arg), void *arg)
{
    uint32_t i;

    for (i = 0; window->early != NULL && i < window->size; ++i) {
        if (window->early[i] != NULL) {
            drop(window->early[i], arg);
        }
    }
    free(window->early);
    window->early = NULL;
}

mpath_rx_verdict_t mpath_rx_window_classify(const mpath_rx_window_t *window, uint32_t psn)
{
    uint32_t ahead = psn - window->next;

    if (ahead == 0) {
        return MPATH_RX_IN_ORDER;
    }
    if (mpath_psn_before(psn, window->next)) {
        return MPATH_RX_DUPLICATE;
    }
    if (ahead >= window->max) {
        return MPATH_RX_OUTSIDE;
    }
    if (ahead < window->size && window->early[psn % window->size] != NULL) {
        return MPATH_RX_DUPLICATE;
    }
    return MPATH_RX_EARLY;
}

static mpath_status_t rx_grow(mpath_rx_window_t *window, uint32_t ahead)
{
    uint32_t size = window->size, i;
    void **early;

    while (ahead >= size) {
        size *= 2;
    }
    early = calloc(size, sizeof(*early));
    if (early == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (i = 0; i < window->size; ++i) {
        early[(window->next + i) % size] = window->early[(window->next + i) % window->size];
    }
    free(window->early);
    window->early = early;
    window->size  = size;
    return MPATH_OK;
}

mpath_status_t mpath_rx_window_keep(mpath_rx_window_t *window, uint32_t psn, void *entry)
{
    uint32_t ahead = psn - window->next;
    mpath_status_t status;

    if (ahead >= window->size) {
        status = rx_grow(window, ahead);
        if (status != MPATH_OK) {
            return status;
        }
    }
    window->early[psn % window->size] = entry;
    return MPATH_OK;
}

void *mpath_rx_window_step(mpath_rx_window_t *window)
{
    uint32_t slot = ++window->next % window->size;
    void *entry   = window->early[slot];

    window->early[slot] = NULL;
    return entry;
}
