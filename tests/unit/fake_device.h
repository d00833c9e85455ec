/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests: devices of another vendor, whose memory is the host's. fake_device.c is all there is of them. */
#ifndef MPATH_TESTS_UNIT_FAKE_DEVICE_H
#define MPATH_TESTS_UNIT_FAKE_DEVICE_H

#include "device/device.h"

#define FAKE_DEVICES 4

/* To be added before anything of device/ is used (mpath_device_add()). */
extern const mpath_device_ops_t fake_device;

/* As an application: starts the driver, and takes memory of a device. NULL: there is no more. */
void fake_device_starts(void);

void *fake_device_take(int ordinal, size_t bytes);

void fake_device_give(void *address);

/* Calls of functions that move bytes on streams so far. */
unsigned fake_device_copies(void);

/* What is taken, pinned or open now: streams, events, contexts, memory, pinned memory, that of other processes. */
unsigned fake_device_held(void);

#endif
