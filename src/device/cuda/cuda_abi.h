/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of the CUDA driver's binary interface that mpath uses, declared here, so that the build needs no CUDA header
 * and one binary runs with and without a driver. Values and layouts are those of NVIDIA's cuda.h, where the function of
 * the same name is documented; a unit test compares them with that header where it is installed. Function names are the
 * symbols of libcuda.so.1, versions included. Names are mpath's own, so that both headers can be included together.
 */
#ifndef MPATH_DEVICE_CUDA_CUDA_ABI_H
#define MPATH_DEVICE_CUDA_CUDA_ABI_H

#include "device/names.h"

typedef mpath_device_result_t mpath_cu_result_t;
typedef int mpath_cu_device_t;
typedef mpath_device_ptr_t mpath_cu_ptr_t;
typedef unsigned long long mpath_cu_mem_t; /* a physical allocation of cuMemCreate */
typedef mpath_device_context_t mpath_cu_context_t;
typedef mpath_device_stream_t mpath_cu_stream_t;
typedef mpath_device_event_t mpath_cu_event_t;
typedef mpath_device_module_t mpath_cu_module_t;
typedef mpath_device_function_t mpath_cu_function_t;
typedef mpath_device_pool_t mpath_cu_pool_t;
typedef struct CUgraph_st *mpath_cu_graph_t;
typedef struct CUgraphNode_st *mpath_cu_graph_node_t;
typedef mpath_device_graph_t mpath_cu_graph_exec_t;

enum {
    MPATH_CU_SUCCESS                 = 0,
    MPATH_CU_INVALID_VALUE           = 1,
    MPATH_CU_OUT_OF_MEMORY           = 2,
    MPATH_CU_NOT_INITIALIZED         = 3,
    MPATH_CU_DEINITIALIZED           = 4,
    MPATH_CU_NO_DEVICE               = 100,
    MPATH_CU_INVALID_DEVICE          = 101,
    MPATH_CU_INVALID_CONTEXT         = 201,
    MPATH_CU_ALREADY_MAPPED          = 208,
    MPATH_CU_NO_BINARY_FOR_GPU       = 209,
    MPATH_CU_PEER_UNSUPPORTED        = 217,
    MPATH_CU_NOT_FOUND               = 500,
    MPATH_CU_NOT_READY               = 600,
    MPATH_CU_PEER_ALREADY_ENABLED    = 704,
    MPATH_CU_CONTEXT_IS_DESTROYED    = 709,
    MPATH_CU_HOST_ALREADY_REGISTERED = 712,
    MPATH_CU_NOT_PERMITTED           = 800,
    MPATH_CU_NOT_SUPPORTED           = 801
};

/* CUpointer_attribute */
enum {
    MPATH_CU_PTR_CONTEXT         = 1,  /* mpath_cu_context_t; NULL for pools and VMM */
    MPATH_CU_PTR_MEMORY_TYPE     = 2,  /* unsigned */
    MPATH_CU_PTR_DEVICE_POINTER  = 3,  /* mpath_cu_ptr_t */
    MPATH_CU_PTR_SYNC_MEMOPS     = 6,  /* unsigned: copies that do not say async have ended when they return */
    MPATH_CU_PTR_BUFFER_ID       = 7,  /* unsigned long long, unique in the process */
    MPATH_CU_PTR_IS_MANAGED      = 8,  /* unsigned */
    MPATH_CU_PTR_DEVICE_ORDINAL  = 9,  /* int */
    MPATH_CU_PTR_IS_IPC_CAPABLE  = 10, /* unsigned: cuIpcGetMemHandle works */
    MPATH_CU_PTR_RANGE_START     = 11, /* mpath_cu_ptr_t */
    MPATH_CU_PTR_RANGE_BYTES     = 12, /* size_t */
    MPATH_CU_PTR_MAPPED          = 13, /* unsigned */
    MPATH_CU_PTR_ALLOWED_HANDLES = 14, /* uint64_t, bits of MPATH_CU_HANDLE_ */
    MPATH_CU_PTR_POOL            = 17, /* mpath_cu_pool_t, NULL when of no pool */
    MPATH_CU_PTR_MAPPING_BYTES   = 18, /* size_t: of the one mapping around the pointer */
    MPATH_CU_PTR_MAPPING_START   = 19, /* mpath_cu_ptr_t */
    MPATH_CU_PTR_PHYSICAL_BLOCK  = 20  /* unsigned long long, unique in the process */
};

enum { MPATH_CU_MEMORY_HOST = 1, MPATH_CU_MEMORY_DEVICE = 2 };

/* CUdevice_attribute */
enum {
    MPATH_CU_DEV_MULTIPROCESSORS   = 16,
    MPATH_CU_DEV_PCI_BUS           = 33,
    MPATH_CU_DEV_PCI_DEVICE        = 34,
    MPATH_CU_DEV_COPY_ENGINES      = 40,
    MPATH_CU_DEV_PCI_DOMAIN        = 50,
    MPATH_CU_DEV_CAPABILITY_MAJOR  = 75,
    MPATH_CU_DEV_CAPABILITY_MINOR  = 76,
    MPATH_CU_DEV_POOLS             = 115,
    MPATH_CU_DEV_RDMA              = 116,
    MPATH_CU_DEV_RDMA_FLUSH        = 117,
    MPATH_CU_DEV_RDMA_ORDER        = 118,
    MPATH_CU_DEV_64_BIT_STREAM_OPS = 122,
    MPATH_CU_DEV_MPS               = 133,
    MPATH_CU_DEV_HOST_NUMA         = 134
};

/* Flags of the functions below. */
enum {
    MPATH_CU_STREAM_NON_BLOCKING     = 1,
    MPATH_CU_CAPTURE_RELAXED         = 2, /* of the thread: captures of streams forbid it nothing */
    MPATH_CU_EVENT_DISABLE_TIMING    = 2,
    MPATH_CU_HOST_REGISTER_PORTABLE  = 1,
    MPATH_CU_HOST_REGISTER_DEVICEMAP = 2,
    MPATH_CU_IPC_LAZY_PEER_ACCESS    = 1,
    MPATH_CU_WRITE_DEFAULT           = 0,
    MPATH_CU_WAIT_GEQ                = 0, /* cyclic: the difference, as a signed number, is not negative */
    MPATH_CU_ATTACH_GLOBAL           = 1, /* cuMemAllocManaged */
    MPATH_CU_LOCATION_DEVICE         = 1,
    MPATH_CU_ALLOCATION_PINNED       = 1,
    MPATH_CU_ACCESS_READ_WRITE       = 3,
    MPATH_CU_HANDLE_FD               = 1,
    MPATH_CU_HANDLE_FABRIC           = 8,
    MPATH_CU_GRANULARITY_MINIMUM     = 0,
    MPATH_CU_RDMA_ORDER_NONE         = 0,
    MPATH_CU_RDMA_ORDER_OWNER        = 100,
    MPATH_CU_RDMA_FLUSH_BY_HOST      = 1,
    MPATH_CU_RDMA_FLUSH_CURRENT      = 0,
    MPATH_CU_RDMA_FLUSH_TO_OWNER     = 100
};

typedef mpath_device_uuid_t mpath_cu_uuid_t;

/* Opaque; passed by value to cuIpcOpenMemHandle. */
typedef mpath_device_ipc_t mpath_cu_ipc_t;

/* CUmemFabricHandle: names a physical allocation to every process of its IMEX domain. */
typedef mpath_device_fabric_t mpath_cu_fabric_t;

typedef struct mpath_cu_location {
    int type;
    int id; /* device ordinal */
} mpath_cu_location_t;

typedef struct mpath_cu_mem_prop {
    int type;         /* MPATH_CU_ALLOCATION_PINNED */
    int handle_types; /* bits of MPATH_CU_HANDLE_ */
    mpath_cu_location_t location;
    void *win32;
    unsigned char compression, gpudirect_rdma;
    unsigned short usage;
    unsigned char reserved[4];
} mpath_cu_mem_prop_t;

typedef struct mpath_cu_access {
    mpath_cu_location_t location;
    int flags;
} mpath_cu_access_t;

typedef struct mpath_cu_pool_prop {
    int type;
    int handle_types;
    mpath_cu_location_t location;
    void *win32;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
} mpath_cu_pool_prop_t;

/* CUDA_KERNEL_NODE_PARAMS_v1 */
typedef struct mpath_cu_kernel_node {
    mpath_cu_function_t function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **arguments, **extra;
} mpath_cu_kernel_node_t;

typedef mpath_device_pool_ptr_t mpath_cu_pool_ptr_t;

/* CUDA_MEMCPY2D_v2 */
typedef struct mpath_cu_copy_2d {
    size_t source_x, source_y;
    int source_type;
    const void *source_host;
    mpath_cu_ptr_t source;
    void *source_array;
    size_t source_pitch;
    size_t target_x, target_y;
    int target_type;
    void *target_host;
    mpath_cu_ptr_t target;
    void *target_array;
    size_t target_pitch;
    size_t row_bytes, rows;
} mpath_cu_copy_2d_t;

/*
 * X(member, symbol, (parameters)): every function returns mpath_cu_result_t. Those of the second list may be missing in
 * older drivers, their member is NULL then.
 */
#define MPATH_CU_FUNCTIONS(X)                                                                                          \
    X(Init, cuInit, (unsigned flags))                                                                                  \
    X(DriverGetVersion, cuDriverGetVersion, (int *version))                                                            \
    X(GetErrorString, cuGetErrorString, (mpath_cu_result_t error, const char **text))                                  \
    X(GetErrorName, cuGetErrorName, (mpath_cu_result_t error, const char **text))                                      \
    X(DeviceGetCount, cuDeviceGetCount, (int *count))                                                                  \
    X(DeviceGet, cuDeviceGet, (mpath_cu_device_t * device, int ordinal))                                               \
    X(DeviceGetName, cuDeviceGetName, (char *name, int bytes, mpath_cu_device_t device))                               \
    X(DeviceGetUuid, cuDeviceGetUuid, (mpath_cu_uuid_t * uuid, mpath_cu_device_t device))                              \
    X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, mpath_cu_device_t device))                                 \
    X(DeviceGetAttribute, cuDeviceGetAttribute, (int *value, int attribute, mpath_cu_device_t device))                 \
    X(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *can, mpath_cu_device_t device, mpath_cu_device_t peer))        \
    X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (mpath_cu_context_t * context, mpath_cu_device_t device))      \
    X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (mpath_cu_device_t device))                               \
    X(DevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, (mpath_cu_device_t device, unsigned *flags, int *active))  \
    X(CtxGetCurrent, cuCtxGetCurrent, (mpath_cu_context_t * context))                                                  \
    X(CtxSetCurrent, cuCtxSetCurrent, (mpath_cu_context_t context))                                                    \
    X(CtxPushCurrent, cuCtxPushCurrent_v2, (mpath_cu_context_t context))                                               \
    X(CtxPopCurrent, cuCtxPopCurrent_v2, (mpath_cu_context_t * context))                                               \
    X(CtxGetDevice, cuCtxGetDevice, (mpath_cu_device_t * device))                                                      \
    X(CtxSynchronize, cuCtxSynchronize, (void))                                                                        \
    X(CtxEnablePeerAccess, cuCtxEnablePeerAccess, (mpath_cu_context_t peer, unsigned flags))                           \
    X(PointerGetAttribute, cuPointerGetAttribute, (void *value, int attribute, mpath_cu_ptr_t pointer))                \
    X(PointerGetAttributes, cuPointerGetAttributes,                                                                    \
      (unsigned count, int *attributes, void **values, mpath_cu_ptr_t pointer))                                        \
    X(MemGetInfo, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                                        \
    X(MemAlloc, cuMemAlloc_v2, (mpath_cu_ptr_t * pointer, size_t bytes))                                               \
    X(MemFree, cuMemFree_v2, (mpath_cu_ptr_t pointer))                                                                 \
    X(MemAllocManaged, cuMemAllocManaged, (mpath_cu_ptr_t * pointer, size_t bytes, unsigned flags))                    \
    X(MemHostAlloc, cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags))                                    \
    X(MemFreeHost, cuMemFreeHost, (void *pointer))                                                                     \
    X(MemHostRegister, cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned flags))                            \
    X(MemHostUnregister, cuMemHostUnregister, (void *pointer))                                                         \
    X(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                                                           \
      (mpath_cu_ptr_t * device_pointer, void *pointer, unsigned flags))                                                \
    X(MemGetAddressRange, cuMemGetAddressRange_v2, (mpath_cu_ptr_t * base, size_t * bytes, mpath_cu_ptr_t pointer))    \
    X(IpcGetMemHandle, cuIpcGetMemHandle, (mpath_cu_ipc_t * handle, mpath_cu_ptr_t pointer))                           \
    X(IpcOpenMemHandle, cuIpcOpenMemHandle_v2, (mpath_cu_ptr_t * pointer, mpath_cu_ipc_t handle, unsigned flags))      \
    X(IpcCloseMemHandle, cuIpcCloseMemHandle, (mpath_cu_ptr_t pointer))                                                \
    X(Memcpy, cuMemcpy, (mpath_cu_ptr_t target, mpath_cu_ptr_t source, size_t bytes))                                  \
    X(MemcpyHtoD, cuMemcpyHtoD_v2, (mpath_cu_ptr_t target, const void *source, size_t bytes))                          \
    X(MemcpyDtoH, cuMemcpyDtoH_v2, (void *target, mpath_cu_ptr_t source, size_t bytes))                                \
    X(Memcpy2DAsync, cuMemcpy2DAsync_v2, (const mpath_cu_copy_2d_t *copy, mpath_cu_stream_t stream))                   \
    X(MemcpyAsync, cuMemcpyAsync,                                                                                      \
      (mpath_cu_ptr_t target, mpath_cu_ptr_t source, size_t bytes, mpath_cu_stream_t stream))                          \
    X(MemsetD8, cuMemsetD8_v2, (mpath_cu_ptr_t pointer, unsigned char value, size_t bytes))                            \
    X(MemsetD8Async, cuMemsetD8Async,                                                                                  \
      (mpath_cu_ptr_t pointer, unsigned char value, size_t bytes, mpath_cu_stream_t stream))                           \
    X(StreamCreateWithPriority, cuStreamCreateWithPriority,                                                            \
      (mpath_cu_stream_t * stream, unsigned flags, int priority))                                                      \
    X(CtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int *least, int *greatest))                             \
    X(StreamDestroy, cuStreamDestroy_v2, (mpath_cu_stream_t stream))                                                   \
    X(StreamQuery, cuStreamQuery, (mpath_cu_stream_t stream))                                                          \
    X(StreamSynchronize, cuStreamSynchronize, (mpath_cu_stream_t stream))                                              \
    X(EventCreate, cuEventCreate, (mpath_cu_event_t * event, unsigned flags))                                          \
    X(EventDestroy, cuEventDestroy_v2, (mpath_cu_event_t event))                                                       \
    X(EventRecord, cuEventRecord, (mpath_cu_event_t event, mpath_cu_stream_t stream))                                  \
    X(EventQuery, cuEventQuery, (mpath_cu_event_t event))                                                              \
    X(ModuleLoadData, cuModuleLoadData, (mpath_cu_module_t * module, const void *image))                               \
    X(ModuleUnload, cuModuleUnload, (mpath_cu_module_t module))                                                        \
    X(ModuleGetFunction, cuModuleGetFunction,                                                                          \
      (mpath_cu_function_t * function, mpath_cu_module_t module, const char *name))                                    \
    X(LaunchKernel, cuLaunchKernel,                                                                                    \
      (mpath_cu_function_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,              \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, mpath_cu_stream_t stream, void **arguments,          \
       void **extra))

/* Of the copies of a batch. */
typedef struct mpath_cu_copy_attributes {
    int source_order; /* MPATH_CU_COPY_STREAM_ORDER: sources are read in the order of the stream */
    int source_hint[2], target_hint[2];
    unsigned flags;
} mpath_cu_copy_attributes_t;

#define MPATH_CU_COPY_STREAM_ORDER 1
#define MPATH_CU_COPY_OVERLAP_WITH_COMPUTE 1 /* a flag: engines rather than multiprocessors */

#define MPATH_CU_OPTIONAL_FUNCTIONS(X)                                                                                 \
    X(StreamWriteValue64, cuStreamWriteValue64_v2,                                                                     \
      (mpath_cu_stream_t stream, mpath_cu_ptr_t address, uint64_t value, unsigned flags))                              \
    X(StreamWaitValue64, cuStreamWaitValue64_v2,                                                                       \
      (mpath_cu_stream_t stream, mpath_cu_ptr_t address, uint64_t value, unsigned flags))                              \
    X(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *mode))                                 \
    X(StreamIsCapturing, cuStreamIsCapturing, (mpath_cu_stream_t stream, int *status))                                 \
    X(PointerSetAttribute, cuPointerSetAttribute, (const void *value, int attribute, mpath_cu_ptr_t pointer))          \
    X(MemcpyBatchAsync, cuMemcpyBatchAsync_v2,                                                                         \
      (mpath_cu_ptr_t * targets, mpath_cu_ptr_t * sources, size_t * bytes, size_t count,                               \
       mpath_cu_copy_attributes_t * attributes, size_t * indices, size_t attributes_count, mpath_cu_stream_t stream))  \
    X(FlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites, (int target, int scope))                                   \
    X(GraphCreate, cuGraphCreate, (mpath_cu_graph_t * graph, unsigned flags))                                          \
    X(GraphAddKernelNode, cuGraphAddKernelNode,                                                                        \
      (mpath_cu_graph_node_t * node, mpath_cu_graph_t graph, const mpath_cu_graph_node_t *after, size_t after_count,   \
       const mpath_cu_kernel_node_t *kernel))                                                                          \
    X(GraphInstantiate, cuGraphInstantiateWithFlags,                                                                   \
      (mpath_cu_graph_exec_t * exec, mpath_cu_graph_t graph, unsigned long long flags))                                \
    X(GraphLaunch, cuGraphLaunch, (mpath_cu_graph_exec_t exec, mpath_cu_stream_t stream))                              \
    X(GraphExecDestroy, cuGraphExecDestroy, (mpath_cu_graph_exec_t exec))                                              \
    X(GraphDestroy, cuGraphDestroy, (mpath_cu_graph_t graph))                                                          \
    X(MemGetAllocationGranularity, cuMemGetAllocationGranularity,                                                      \
      (size_t * bytes, const mpath_cu_mem_prop_t *prop, int option))                                                   \
    X(MemCreate, cuMemCreate,                                                                                          \
      (mpath_cu_mem_t * handle, size_t bytes, const mpath_cu_mem_prop_t *prop, unsigned long long flags))              \
    X(MemRelease, cuMemRelease, (mpath_cu_mem_t handle))                                                               \
    X(MemAddressReserve, cuMemAddressReserve,                                                                          \
      (mpath_cu_ptr_t * pointer, size_t bytes, size_t alignment, mpath_cu_ptr_t hint, unsigned long long flags))       \
    X(MemAddressFree, cuMemAddressFree, (mpath_cu_ptr_t pointer, size_t bytes))                                        \
    X(MemMap, cuMemMap,                                                                                                \
      (mpath_cu_ptr_t pointer, size_t bytes, size_t offset, mpath_cu_mem_t handle, unsigned long long flags))          \
    X(MemUnmap, cuMemUnmap, (mpath_cu_ptr_t pointer, size_t bytes))                                                    \
    X(MemSetAccess, cuMemSetAccess,                                                                                    \
      (mpath_cu_ptr_t pointer, size_t bytes, const mpath_cu_access_t *access, size_t count))                           \
    X(MemRetainAllocationHandle, cuMemRetainAllocationHandle, (mpath_cu_mem_t * handle, void *pointer))                \
    X(MemExportToShareableHandle, cuMemExportToShareableHandle,                                                        \
      (void *shareable, mpath_cu_mem_t handle, int type, unsigned long long flags))                                    \
    X(MemImportFromShareableHandle, cuMemImportFromShareableHandle,                                                    \
      (mpath_cu_mem_t * handle, void *shareable, int type))                                                            \
    X(MemPoolCreate, cuMemPoolCreate, (mpath_cu_pool_t * pool, const mpath_cu_pool_prop_t *prop))                      \
    X(MemPoolDestroy, cuMemPoolDestroy, (mpath_cu_pool_t pool))                                                        \
    X(DeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (mpath_cu_pool_t * pool, mpath_cu_device_t device))          \
    X(MemAllocFromPoolAsync, cuMemAllocFromPoolAsync,                                                                  \
      (mpath_cu_ptr_t * pointer, size_t bytes, mpath_cu_pool_t pool, mpath_cu_stream_t stream))                        \
    X(MemFreeAsync, cuMemFreeAsync, (mpath_cu_ptr_t pointer, mpath_cu_stream_t stream))                                \
    X(MemPoolSetAccess, cuMemPoolSetAccess, (mpath_cu_pool_t pool, const mpath_cu_access_t *access, size_t count))     \
    X(MemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle,                                                \
      (void *shareable, mpath_cu_pool_t pool, int type, unsigned long long flags))                                     \
    X(MemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle,                                            \
      (mpath_cu_pool_t * pool, void *shareable, int type, unsigned long long flags))                                   \
    X(MemPoolExportPointer, cuMemPoolExportPointer, (mpath_cu_pool_ptr_t * data, mpath_cu_ptr_t pointer))              \
    X(MemPoolImportPointer, cuMemPoolImportPointer,                                                                    \
      (mpath_cu_ptr_t * pointer, mpath_cu_pool_t pool, mpath_cu_pool_ptr_t * data))

#define MPATH_CU_MEMBER(_member, _symbol, _parameters) mpath_cu_result_t(*_member) _parameters;

/* The driver's functions. */
typedef struct mpath_cu {
    MPATH_CU_FUNCTIONS(MPATH_CU_MEMBER)
    MPATH_CU_OPTIONAL_FUNCTIONS(MPATH_CU_MEMBER)
} mpath_cu_t;

#endif
