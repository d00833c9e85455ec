/* SPDX-License-Identifier: BSD-3-Clause */
/* Names for what devices have. What the handles point to only the backend knows (device/device.h). */
#ifndef MPATH_DEVICE_NAMES_H
#define MPATH_DEVICE_NAMES_H

#include <stddef.h>
#include <stdint.h>

/* What a driver says: one of these, or any other number, which is an error. The values are CUDA's; another backend translates. */
typedef int mpath_device_result_t;

enum {
    MPATH_DEVICE_DONE             = 0,
    MPATH_DEVICE_NO_MEMORY        = 2,
    MPATH_DEVICE_PEER_UNSUPPORTED = 217, /* a device cannot reach the other one's memory */
    MPATH_DEVICE_NOT_FOUND        = 500,
    MPATH_DEVICE_NOT_READY        = 600, /* work is under way */
    MPATH_DEVICE_NOT_SUPPORTED    = 801
};

typedef unsigned long long mpath_device_ptr_t; /* an address that a device knows */
typedef struct mpath_device_context *mpath_device_context_t;
typedef struct mpath_device_stream *mpath_device_stream_t;
typedef struct mpath_device_event *mpath_device_event_t;
typedef struct mpath_device_module *mpath_device_module_t;     /* the kernels, loaded */
typedef struct mpath_device_function *mpath_device_function_t; /* a kernel */
typedef struct mpath_device_graph *mpath_device_graph_t;       /* a launch that is made again and again */
typedef struct mpath_device_pool *mpath_device_pool_t;

/* Names a device in all processes of the machine. */
typedef struct mpath_device_uuid {
    unsigned char bytes[16];
} mpath_device_uuid_t;

/* What another process opens memory with: an allocation, a pointer of a pool, a physical allocation over a fabric. */
typedef struct mpath_device_ipc {
    unsigned char bytes[64];
} mpath_device_ipc_t;

typedef struct mpath_device_pool_ptr {
    unsigned char bytes[64];
} mpath_device_pool_ptr_t;

typedef struct mpath_device_fabric {
    unsigned char bytes[64];
} mpath_device_fabric_t;

#endif
