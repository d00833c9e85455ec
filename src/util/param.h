/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameters. Each is declared once, in the table of param_table.c, with type, unit, default, range and a line of help.
 * The Open MPI component registers them as MCA variables coll_mpath_<name>; other programs read the environment
 * variable MPATH_<NAME>. mpath_info and doc/parameters.md are generated from the same table.
 *
 * What is for tests and measurements is no parameter of its own but a key of one, `internals`: "KEY=VALUE,KEY=VALUE".
 *
 * Sizes accept the suffixes k, m and g (powers of 1024). A value that cannot be parsed or is out of range is reported
 * with the parameter's name, and the default stays in force.
 */
#ifndef MPATH_UTIL_PARAM_H
#define MPATH_UTIL_PARAM_H

#include "util/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum mpath_param_type {
    MPATH_PARAM_INT,   /* int */
    MPATH_PARAM_BYTES, /* uint64_t, bytes */
    MPATH_PARAM_ENUM,  /* int: index into the names */
    MPATH_PARAM_STRING /* const char *; owned by whoever set it */
} mpath_param_type_t;

typedef enum mpath_param_kind {
    MPATH_PARAM_OWN, /* a parameter */
    MPATH_PARAM_KEY, /* a key of parameter internals; its name is still taken as that of a parameter, for one release */
    MPATH_PARAM_OLD  /* still taken, for one release; its help says what to use instead */
} mpath_param_kind_t;

typedef struct mpath_param {
    const char *name; /* as in coll_mpath_<name> */
    mpath_param_type_t type;
    size_t offset;             /* in mpath_settings_t */
    const char *initial;       /* default, as text */
    int64_t min, max;          /* of INT and BYTES */
    const char *const *values; /* of ENUM: NULL-terminated */
    const char *unit;          /* "" when none */
    int level;                 /* MPI_T verbosity, 1 (user, basic) to 9 (developer, all) */
    const char *help;          /* one line */
    int writable;              /* may be changed through MPI_T; communicators made afterwards see it */
    mpath_param_kind_t kind;
} mpath_param_t;

typedef enum mpath_access {
    MPATH_ACCESS_ALL,   /* a rank drives every NIC of its node */
    MPATH_ACCESS_AFFINE /* a rank reaches only the NIC beside it, and relays through its neighbours */
} mpath_access_t;

typedef enum mpath_gate {
    MPATH_GATE_AUTO,   /* mpath runs where the model says that it wins */
    MPATH_GATE_ALWAYS, /* mpath runs whenever it can */
    MPATH_GATE_NEVER   /* the previous function always runs */
} mpath_gate_t;

typedef enum mpath_sync {
    MPATH_SYNC_NONE,  /* data in device buffers is ready when a collective is called */
    MPATH_SYNC_DEVICE /* mpath waits for the work under way on the devices of the buffers first */
} mpath_sync_t;

typedef enum mpath_forced {
    MPATH_ALGORITHM_AUTO,
    MPATH_ALGORITHM_PREVIOUS, /* the function that mpath replaces */
    MPATH_ALGORITHM_SMALL,    /* inside the agreement, where that has room */
    MPATH_ALGORITHM_LANES     /* shared out over the rails, however small */
} mpath_forced_t;

/* Of MPI_Alltoallv and MPI_Alltoall. */
typedef enum mpath_routes {
    MPATH_ROUTES_AUTO,
    MPATH_ROUTES_PREVIOUS, /* the function that mpath replaces */
    MPATH_ROUTES_DIRECT,   /* the static route of each pair */
    MPATH_ROUTES_LANES     /* those of the plan, whatever their predicted time */
} mpath_routes_t;

typedef enum mpath_adapt {
    MPATH_ADAPT_OFF,
    MPATH_ADAPT_RUN,  /* shares of rails follow what calls show */
    MPATH_ADAPT_START /* and rails are measured before the first blocking one */
} mpath_adapt_t;

typedef enum mpath_gpu_way {
    MPATH_GPU_WAY_AUTO,   /* what is predicted to be fastest */
    MPATH_GPU_WAY_KERNEL, /* the sender's multiprocessors write */
    MPATH_GPU_WAY_PUSH    /* the sender's copy engines write */
} mpath_gpu_way_t;

typedef enum mpath_gpu_probe_use {
    MPATH_GPU_PROBE_AUTO, /* rates of an earlier probe; else measured by the first call, and kept */
    MPATH_GPU_PROBE_FILE, /* of an earlier probe only */
    MPATH_GPU_PROBE_OFF   /* those of an H200 */
} mpath_gpu_probe_use_t;

/* Whether streams wait for each other's copies on their way through the host: */
typedef enum mpath_gpu_waits {
    MPATH_GPU_WAITS_NO,
    MPATH_GPU_WAITS_YES,
    MPATH_GPU_WAITS_AUTO /* by the bytes of a pair, and whether processors are shared */
} mpath_gpu_waits_t;

typedef enum mpath_gpu_reduce {
    MPATH_GPU_REDUCE_AUTO,   /* by predicted time */
    MPATH_GPU_REDUCE_DIRECT, /* each kernel reads its part from all GPUs and writes the result to all */
    MPATH_GPU_REDUCE_WRITES, /* kernels only write to other GPUs, and wait for each other */
    MPATH_GPU_REDUCE_RING,   /* the same, each to the next GPU only */
    MPATH_GPU_REDUCE_PARTS,  /* kernels send each other parts before the agreement, and results */
    MPATH_GPU_REDUCE_WHOLE,  /* the same with whole vectors */
    MPATH_GPU_REDUCE_ALGORITHMS
} mpath_gpu_reduce_t;

typedef enum mpath_gpu_rail {
    MPATH_GPU_RAIL_AUTO,   /* by themselves where UCX, NICs and kernel can do GPUDirect RDMA and a trial shows it */
    MPATH_GPU_RAIL_DIRECT, /* wherever UCX knows CUDA memory and a trial shows it */
    MPATH_GPU_RAIL_HOST    /* through pinned host slots */
} mpath_gpu_rail_t;

/* The values of all parameters of a process. */
typedef struct mpath_settings {
    int priority;
    int verbose;           /* mpath_log_level_t */
    const char *log_file;  /* "": standard error */
    const char *log_rooms; /* see mpath_log_set_rooms() */
    const char *dump_plan; /* files' name without an end; "": none */
    const char *trace;     /* a file's name, of each rank; "": none */
    int trace_chunks;      /* that are kept for it */
    const char *summary;   /* "1": to standard error; a file's name; "": none */
    int access;            /* mpath_access_t */
    int gate;              /* mpath_gate_t */
    const char *topo_file;
    const char *rails;           /* comma-separated NIC names, or "" for every NIC found */
    const char *rail_rates;      /* bytes per second of the NICs, see mpath_machine_discover(); "": as found */
    const char *rail_tls;        /* UCX transports of the rails; "": by the kind of the device */
    uint64_t small_bytes;        /* pairs up to this many bytes travel inside the agreement */
    uint64_t leader_bytes;       /* data in a message between two nodes' leaders */
    uint64_t min_fragment_bytes; /* a pair is not split below this */
    int max_paths;               /* of a pair, its first ones; 0: all */
    int keep_routes_ppm;         /* earlier routes stay while they cost at most this more */
    uint64_t chunk_bytes;        /* upper limit of a chunk */
    uint64_t memory_bytes;       /* upper limit of relay and exchange memory per rank */
    uint64_t node_memory_bytes;  /* upper limit of shared memory per node and job */
    uint64_t node_min_bytes;     /* one node only: from this largest pair on, the previous function runs */
    int timeout_s;               /* deadline of a call without any progress */
    int agree_timeout_s;         /* deadline for ranks that have not called; 0: none while rails connect, -1: none */
    int resend_after_s;         /* a rail that brings nothing for so long counts as failed; 0: calls are not repeated */
    int resend_min_ms;          /* calls that take less are not repeated; -1: by what it costs */
    int gpu;                    /* device buffers are moved between GPUs, not through the host */
    int gpu_way;                /* mpath_gpu_way_t */
    int gpu_stream_waits;       /* mpath_gpu_waits_t */
    int gpu_probe;              /* mpath_gpu_probe_use_t */
    const char *gpu_probe_file; /* "": in the cache, named after the GPUs */
    int gpu_host_percent;       /* of a hot receiver's bytes, through host memory */
    int gpu_help_percent;       /* of what engines push, by a kernel beside them; -1: by trial */
    uint64_t gpu_host_min_bytes; /* through a GPU's port, from where on a part of reductions and gathers does, too */
    int gpu_reduce;              /* mpath_gpu_reduce_t */
    int gpu_rail;                /* mpath_gpu_rail_t: how rails get at device memory */
    int sync;                    /* mpath_sync_t */
    uint64_t gpu_device_bytes;   /* upper limit of GPU memory of the process; see device/usage.h */
    uint64_t gpu_pinned_bytes;   /* of pinned host memory for slots */
    uint64_t gpu_memory_bytes;   /* of what a communicator takes of either at a time */
    uint64_t gpu_chunk_bytes;    /* largest chunk of device memory over a rail */
    uint64_t gpu_relay_bytes;    /* upper limit of GPU memory for chunks that pass through, per process */
    int gpu_imports;             /* allocations of other processes that stay open between calls */
    const char *tune;            /* which algorithm carries which calls, see coll/tuning.h; "": by predicted time */
    const char *internals;       /* KEY=VALUE, ... of the rows of kind MPATH_PARAM_KEY; "": none */
    int alltoallv_algorithm;     /* mpath_routes_t; these four go: `tune` says the same */
    int allreduce_algorithm;     /* mpath_forced_t */
    int reduce_scatter_algorithm;
    int allgather_algorithm;
    /* Whole vector of an Allreduce, Reduce_scatter or Allgather; below: the previous function */
    uint64_t symmetric_min_bytes;
    int steps_nodes;        /* reductions and gathers go in steps between so many nodes; 0: by predicted time */
    int deterministic;      /* reductions keep their order of combination whatever fails */
    int adapt;              /* mpath_adapt_t */
    const char *adapt_file; /* where what calls have shown is kept; "": nowhere */
    int check_plan;         /* all ranks compare a checksum of their plans */
    uint64_t pack_bytes;    /* upper limit of the packed copies of one call */
} mpath_settings_t;

/* The table and the number of its rows. */
extern const mpath_param_t mpath_params[];
extern const size_t mpath_params_count;

/* Parameters that were there before: whoever still sets one is told, for one release. Ends with a name of NULL. */
typedef struct mpath_param_removed {
    const char *name;
    const char *instead; /* what holds now, or what to use: no sentence, it stands after a colon and in a table */
} mpath_param_removed_t;

extern const mpath_param_removed_t mpath_params_removed[];

/* The parameters coll_mpath_<name> that only the Open MPI component has; ends with NULL. */
extern const char *const mpath_param_component_names[];

/* The environment variable of a parameter: "MPATH_<NAME>". */
void mpath_param_env_name(const mpath_param_t *param, char *name, size_t size);

/* Writes doc/parameters.md. */
void mpath_params_write_doc(FILE *out);

/* Sets every parameter to its default. */
void mpath_settings_init(mpath_settings_t *settings);

/*
 * Sets one parameter from text. On MPATH_ERR_PARAM the old value stays and `message` (of `size` bytes) says what is
 * wrong with the text. A STRING keeps the pointer.
 */
mpath_status_t mpath_settings_set(mpath_settings_t *settings, const mpath_param_t *param, const char *text,
                                  char *message, size_t size);

/* Of a key of `internals`: what is wrong, and what is used now; all of them only during the call. */
typedef void (*mpath_param_refused_t)(const char *key, const char *problem, const char *used, void *arg);

/*
 * Sets what settings->internals says, over what was set before. Each item that cannot be used is told to `refused`, and what
 * was set before stays.
 */
void mpath_settings_read_internals(mpath_settings_t *settings, mpath_param_refused_t refused, void *arg);

/*
 * What to say of a row that is no parameter any more, after its name: "goes with the next version, use ..."; the prefix of
 * names that stands before `internals` and `tune` there. Returns `text`.
 */
const char *mpath_param_remark(const mpath_param_t *param, const char *prefix, char *text, size_t size);

/* Overrides from the environment (MPATH_<NAME>); a bad value is logged as a warning and ignored. */
void mpath_settings_from_env(mpath_settings_t *settings);

/* Writes the value of a parameter as text. */
void mpath_settings_get(const mpath_settings_t *settings, const mpath_param_t *param, char *text, size_t size);

#endif
