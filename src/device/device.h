/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices whose memory is not the host's, whoever makes them: one table of functions for each driver, in the shape of
 * libfabric's struct ofi_hmem_ops. A backend is one file that fills it: device/cuda/cuda.c, and tests/unit/fake_device.c,
 * which shows it. All that mpath does with devices, from streams with marks to the caches of other processes' memory, is
 * written once over this table, in the other files of this room; the rooms above use those.
 *
 * A process works with the devices of one driver: the first in the list of device/device.c that the application has
 * initialised. Until then no address can be one of a device.
 *
 * Functions return MPATH_DEVICE_DONE or an error, and set outputs on success only; those that return nothing end something, and
 * have nothing to say where the driver has shut down before. "In the context" means between context_enter() and
 * context_leave(). A function that may be missing says so and is NULL then.
 *
 * Thread-safety: every function may be called by any thread. After fork(), the child must not use a device.
 */
#ifndef MPATH_DEVICE_DEVICE_H
#define MPATH_DEVICE_DEVICE_H

#include "device/names.h"
#include "util/status.h"

struct mpath_gpu_info;
struct mpath_memory;
struct mpath_memory_block;

/* What streams of a device do by themselves. */
typedef struct mpath_device_features {
    int values; /* write words of memory (stream_write()) */
    int waits;  /* wait for some (stream_wait()) */
} mpath_device_features_t;

/* A context that has been entered, for who leaves it. */
typedef struct mpath_device_entered {
    int mode;
} mpath_device_entered_t;

/* One after the other, `row_bytes` from each start to the next. */
typedef struct mpath_device_rows {
    mpath_device_ptr_t target;
    const void *source; /* pinned memory of the host */
    size_t row_bytes, rows;
} mpath_device_rows_t;

typedef struct mpath_device_ops {
    const char *name; /* of the driver, for messages */

    /* The driver. */

    /* Whether the application has loaded and initialised it, and there is a device: mostly for good. Silent and cheap. */
    int (*is_ready)(void);

    /* Loads and initialises it: as mpath_gpu_driver_start(). */
    mpath_status_t (*start)(void);

    mpath_device_result_t (*driver_version)(int *version_p);

    /* Static text of an error, of the thread. */
    const char *(*error_string)(mpath_device_result_t result);

    /* Name of the driver's function whose error this thread got last. */
    const char *(*failed_call)(void);

    /* Devices, by ordinal. */

    mpath_device_result_t (*device_count)(int *count_p);

    /* All but the ordinal, which is there. */
    mpath_device_result_t (*device_info)(int ordinal, struct mpath_gpu_info *info);

    mpath_device_result_t (*device_uuid)(int ordinal, mpath_device_uuid_t *uuid_p);

    void (*device_features)(int ordinal, mpath_device_features_t *features_p);

    /* Whether kernels of a device may reach memory of another one. */
    mpath_device_result_t (*can_access)(int ordinal, int peer, int *can_p);

    /* As mpath_gpu_needs_flush(). */
    mpath_status_t (*needs_flush)(int ordinal, int *needs_p);

    /* In the context: as mpath_gpu_flush_writes(). Missing where no device needs it. */
    mpath_device_result_t (*flush_writes)(void);

    /* Contexts: what memory and streams belong to. */

    /*
     * *context_p NULL: the primary context of the device, made if there is none, which is set. *primary_p: it is that one, and
     * context_release() gives it back.
     */
    mpath_device_result_t (*context_take)(int ordinal, mpath_device_context_t *context_p, int *primary_p);

    void (*context_release)(int ordinal);

    /* The one that the calling thread has at the moment; an error where it has none, or one that has ended. */
    mpath_device_result_t (*context_current)(int *ordinal_p, mpath_device_context_t *context_p);

    /* Whether the application, or somebody else, has begun the primary context. */
    int (*context_is_begun)(int ordinal);

    /*
     * Whether the driver still knows memory of the host that was registered in a context: what it knows ends with that,
     * however it ends.
     */
    int (*context_knows)(const void *base);

    /* While it is entered, captures of streams by the application forbid this thread nothing. */
    mpath_device_result_t (*context_enter)(mpath_device_context_t context, mpath_device_entered_t *entered_p);

    void (*context_leave)(mpath_device_entered_t *entered);

    /* In the context: lets it reach memory of another one of this process. */
    mpath_device_result_t (*context_reach)(mpath_device_context_t other);

    /* In the context: waits for all work in it. */
    mpath_device_result_t (*context_drain)(void);

    /* Memory, in the context unless something else is said. */

    /*
     * In any context: what holds an address, with the fields of device/memory.h but `blocks`; kind HOST for what the driver
     * does not know. Of VMM memory it is the mapping around the address.
     */
    mpath_device_result_t (*memory_find)(uint64_t address, struct mpath_memory *memory);

    /* In any context: as mpath_memory_block(). Missing where there is no VMM memory. */
    mpath_status_t (*memory_block)(uint64_t address, struct mpath_memory_block *block);

    mpath_device_result_t (*memory_info)(size_t *free_bytes_p, size_t *total_bytes_p);

    mpath_device_result_t (*memory_take)(mpath_device_ptr_t *address_p, size_t bytes);

    void (*memory_give)(mpath_device_ptr_t address);

    /* Has ended when it returns, also while the application captures a stream. */
    mpath_device_result_t (*memory_clear)(mpath_device_ptr_t address, size_t bytes);

    /*
     * The application's copies into an allocation may return before their last bytes are there. Whether that has been
     * switched off for this one; if not, it is now, where it can be.
     */
    int (*memory_settled)(mpath_device_ptr_t base);

    /* Waits for the last bytes of such copies, as long as they may take: for what the default stream has, for 100 ms. */
    void (*memory_settle)(void);

    /* Memory of the host, whole pages, for all devices and contexts of the process. */
    mpath_device_result_t (*pin)(void *base, size_t bytes, mpath_device_ptr_t *device_base_p);

    void (*unpin)(void *base);

    /* Streams, in the context. */

    /* They wait for no other stream of the application, and have the highest priority. */
    mpath_device_result_t (*stream_make)(mpath_device_stream_t *stream_p);

    void (*stream_end)(mpath_device_stream_t stream);

    /* Between any addresses it knows, and to or from pageable memory. No stream: the default one, which others wait for. */
    mpath_device_result_t (*stream_copy)(mpath_device_stream_t stream, mpath_device_ptr_t target,
                                         mpath_device_ptr_t source, size_t bytes);

    /* Waits for all its work, by several threads as well. */
    mpath_device_result_t (*stream_drain)(mpath_device_stream_t stream);

    /* Copies that need no order among each other; may write to the lists. MPATH_DEVICE_NOT_SUPPORTED: one by one. */
    mpath_device_result_t (*stream_copy_all)(mpath_device_stream_t stream, mpath_device_ptr_t *targets,
                                             mpath_device_ptr_t *sources, size_t *bytes, size_t count);

    /* Within one device, by engines that leave its processors alone. MPATH_DEVICE_NOT_SUPPORTED: none can. */
    mpath_device_result_t (*stream_copy_aside)(mpath_device_stream_t stream, mpath_device_ptr_t target,
                                               mpath_device_ptr_t source, size_t bytes);

    mpath_device_result_t (*stream_copy_rows)(mpath_device_stream_t stream, const mpath_device_rows_t *rows);

    /* Of devices with such values and waits: as mpath_stream_write(), mpath_stream_wait(). */
    mpath_device_result_t (*stream_write)(mpath_device_stream_t stream, mpath_device_ptr_t address, uint64_t value);

    mpath_device_result_t (*stream_wait)(mpath_device_stream_t stream, mpath_device_ptr_t address, uint64_t value);

    /* Whether all work has ended, MPATH_DEVICE_NOT_READY, or the error that it ended with. */
    mpath_device_result_t (*stream_query)(mpath_device_stream_t stream);

    /* A place in a stream. */
    mpath_device_result_t (*event_make)(mpath_device_event_t *event_p);

    void (*event_end)(mpath_device_event_t event);

    mpath_device_result_t (*event_record)(mpath_device_event_t event, mpath_device_stream_t stream);

    mpath_device_result_t (*event_query)(mpath_device_event_t event);

    /* Kernels, in the context: those of device/kernels/, by name. Arguments are the one struct that a kernel takes. */

    /* Why there are none, as the rest of "...: copies between GPUs use copy engines only"; NULL: they are there. */
    const char *(*kernels_missing)(void);

    mpath_device_result_t (*kernels_load)(mpath_device_module_t *module_p);

    void (*kernels_unload)(mpath_device_module_t module);

    mpath_device_result_t (*kernel_find)(mpath_device_module_t module, const char *name,
                                         mpath_device_function_t *function_p);

    mpath_device_result_t (*kernel_launch)(mpath_device_stream_t stream, mpath_device_function_t function,
                                           const void *arguments, unsigned ctas, unsigned threads);

    /* A launch to be repeated: one kernel with these arguments, which are copied. */
    int (*has_graphs)(void);

    mpath_device_result_t (*graph_make)(mpath_device_function_t function, const void *arguments, unsigned ctas,
                                        unsigned threads, mpath_device_graph_t *graph_p);

    mpath_device_result_t (*graph_launch)(mpath_device_graph_t graph, mpath_device_stream_t stream);

    void (*graph_end)(mpath_device_graph_t graph);

    /* Memory for other processes, in the context; what is for a kind of memory may be missing where there is none. */

    /* Of kind DEVICE. */
    mpath_device_result_t (*ipc_export)(mpath_device_ptr_t base, mpath_device_ipc_t *handle_p);

    mpath_device_result_t (*ipc_open)(const mpath_device_ipc_t *handle, mpath_device_ptr_t *address_p);

    void (*ipc_close)(mpath_device_ptr_t address);

    /* Of kind VMM: the physical allocation at an address, as a descriptor or over a fabric. */
    mpath_device_result_t (*block_export_fd)(mpath_device_ptr_t address, int *fd_p);

    mpath_device_result_t (*block_export_fabric)(mpath_device_ptr_t address, mpath_device_fabric_t *handle_p);

    /* Addresses for blocks; then one after the other is mapped there, and access is given to all of them. */
    mpath_device_result_t (*blocks_reserve)(size_t bytes, mpath_device_ptr_t *address_p);

    mpath_device_result_t (*block_map_fd)(mpath_device_ptr_t address, size_t bytes, int fd);

    mpath_device_result_t (*block_map_fabric)(mpath_device_ptr_t address, size_t bytes,
                                              const mpath_device_fabric_t *handle);

    mpath_device_result_t (*blocks_allow)(mpath_device_ptr_t address, size_t bytes, int ordinal);

    /* In any context. The first `mapped_bytes` are mapped. */
    void (*blocks_release)(mpath_device_ptr_t address, size_t bytes, size_t mapped_bytes);

    /* Of kind POOL: the pool of an address, and what names the two. */
    mpath_device_result_t (*pool_find)(mpath_device_ptr_t address, mpath_device_pool_t *pool_p);

    mpath_device_result_t (*pool_export)(mpath_device_pool_t pool, int *fd_p);

    mpath_device_result_t (*pool_export_ptr)(mpath_device_ptr_t address, mpath_device_pool_ptr_t *handle_p);

    mpath_device_result_t (*pool_open)(int fd, mpath_device_pool_t *pool_p);

    mpath_device_result_t (*pool_allow)(mpath_device_pool_t pool, int ordinal);

    mpath_device_result_t (*pool_open_ptr)(mpath_device_pool_t pool, const mpath_device_pool_ptr_t *handle,
                                           mpath_device_ptr_t *address_p);

    void (*pool_close_ptr)(mpath_device_ptr_t address);

    void (*pool_close)(mpath_device_pool_t pool);
} mpath_device_ops_t;

/* The backends of the library. */
extern const mpath_device_ops_t mpath_device_cuda;

/*
 * The table of the driver whose devices this process works with; NULL while the application has not loaded and initialised
 * one. Silent, and takes about a tenth of a microsecond until then.
 */
const mpath_device_ops_t *mpath_device(void);

static inline int mpath_gpu_available(void)
{
    return mpath_device() != NULL;
}

/* Some call of the above has found one. Zero says nothing: it looks at nothing, and costs nothing. */
int mpath_gpu_was_found(void);

/* One more backend, asked before the others, for tests: before anything else of this room is used. */
void mpath_device_add(const mpath_device_ops_t *ops);

/* For messages: of the driver of mpath_device(), or of the one that is asked first. */
const char *mpath_device_driver_name(void);

/*
 * Loads and initialises a driver. MPATH_ERR_UNSUPPORTED, without a message: no driver or no device on this machine;
 * MPATH_ERR_IO, logged: there is one that fails.
 */
mpath_status_t mpath_gpu_driver_start(void);

/* Static text of a driver error: "CUDA_ERROR_INVALID_VALUE (invalid argument)". */
const char *mpath_device_error_string(mpath_device_result_t result);

/* MPATH_ERR_NO_MEMORY, MPATH_ERR_UNSUPPORTED or MPATH_ERR_IO. */
mpath_status_t mpath_device_status(mpath_device_result_t result);

/*
 * In the context of a device: makes memory of the host known to it and all others, the second one also allocates it, zeroed.
 * Errors are logged. For device/pinned.h, which others use.
 */
mpath_status_t mpath_device_pin(int ordinal, void *base, size_t bytes, mpath_device_ptr_t *device_base_p);

mpath_status_t mpath_device_pin_new(int ordinal, size_t bytes, void **base_p, mpath_device_ptr_t *device_base_p);

#endif
