/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of parameters. After a change, regenerate doc/parameters.md: mpath_info --params-doc. */
#include "util/param.h"

#include <stdio.h>

#define KIB 1024ll
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static const char *const level_values[]      = {"error", "warn", "info", "debug", "trace", NULL};
static const char *const access_values[]     = {"all", "affine", NULL};
static const char *const gate_values[]       = {"auto", "always", "never", NULL};
static const char *const gpu_way_values[]    = {"auto", "kernel", "push", NULL};
static const char *const gpu_probe_values[]  = {"auto", "file", "off", NULL};
static const char *const gpu_reduce_values[] = {"auto", "direct", "writes", "ring", "parts", "whole", NULL};
static const char *const gpu_rail_values[]   = {"auto", "direct", "host", NULL};
static const char *const sync_values[]       = {"none", "device", NULL};
static const char *const algorithm_values[]  = {"auto", "previous", "small", "lanes", NULL};
static const char *const routes_values[]     = {"auto", "previous", "direct", "lanes", NULL};
static const char *const adapt_values[]      = {"off", "run", "start", NULL};
static const char *const switch_values[]     = {"no", "yes", NULL};
static const char *const waits_values[]      = {"no", "yes", "auto", NULL};

#define PARAM_INT(_kind, _name, _initial, _min, _max, _unit, _level, _help)                                            \
    PARAM(_kind, _name, MPATH_PARAM_INT, _initial, _min, _max, NULL, _unit, _level, _help)
#define PARAM_BYTES(_kind, _name, _initial, _min, _max, _level, _help)                                                 \
    PARAM(_kind, _name, MPATH_PARAM_BYTES, _initial, _min, _max, NULL, "bytes", _level, _help)
#define PARAM_ENUM(_kind, _name, _initial, _values, _level, _help)                                                     \
    PARAM(_kind, _name, MPATH_PARAM_ENUM, _initial, 0, 0, _values, "", _level, _help)
#define PARAM(_kind, _name, _type, _initial, _min, _max, _values, _unit, _level, _help)                                \
    {                                                                                                                  \
#_name, _type, offsetof(mpath_settings_t, _name), _initial, _min, _max, _values, _unit, _level, _help, 0,      \
            _kind                                                                                                      \
    }
#define ROW_INT(...) PARAM_INT(MPATH_PARAM_OWN, __VA_ARGS__)
#define ROW_BYTES(...) PARAM_BYTES(MPATH_PARAM_OWN, __VA_ARGS__)
#define ROW_ENUM(...) PARAM_ENUM(MPATH_PARAM_OWN, __VA_ARGS__)
#define ROW_STRING(_name, _unit, _level, _help)                                                                        \
    PARAM(MPATH_PARAM_OWN, _name, MPATH_PARAM_STRING, "", 0, 0, NULL, _unit, _level, _help)
#define KEY_INT(...) PARAM_INT(MPATH_PARAM_KEY, __VA_ARGS__)
#define KEY_BYTES(...) PARAM_BYTES(MPATH_PARAM_KEY, __VA_ARGS__)
#define KEY_ENUM(...) PARAM_ENUM(MPATH_PARAM_KEY, __VA_ARGS__)
#define OLD_ENUM(...) PARAM_ENUM(MPATH_PARAM_OLD, __VA_ARGS__)

const mpath_param_t mpath_params[] = {
    ROW_INT(
        priority, "79", 0, 100, "", 5,
        "Priority among the coll components: the highest serves a collective. 78 is Open MPI's component for device "
        "buffers, which mpath must be above to see them"),
    ROW_ENUM(
        verbose, "warn", level_values, 1,
        "Messages up to this level are written to standard error or log_file: \"info\" is little more than a line per job, \"debug\" a line per call and more, \"trace\" a line per chunk"),
    ROW_STRING(
        log_file, "file", 3,
        "The log goes to this file, with time stamps; errors and warnings to standard error as well. %h, %p and %r in the "
        "name stand for host, process and rank. Empty: to standard error alone"),
    ROW_STRING(
        log_rooms, "rooms", 5,
        "Rooms of the sources whose lines above a warning are written: \"wire,rail\" these, \"^plan,tune\" all but these; "
        "the component is \"glue\". Empty: all"),
    ROW_STRING(
        summary, "file", 1,
        "In MPI_Finalize rank 0 writes what the job's calls were: carried and left, why, bytes by rail, predicted and "
        "taken times. \"1\": to standard error; else a file, in JSON where its name ends in .json, and %h, %p and %r "
        "in it stand for host, process and rank. Empty: not"),
    ROW_STRING(
        dump_plan, "file", 3,
        "Matrix and topology of the MPI_Alltoallv on host memory whose taken time differs most from that predicted for its "
        "static routes, as NAME.matrix.txt and NAME.topo.xml for mpath_plan, by rank 0; with %r or %p in NAME by each "
        "rank. Empty: not"),
    ROW_STRING(
        trace, "file", 3,
        "In MPI_Finalize each rank writes a timeline of its last calls, their phases and chunks by lane, for Perfetto "
        "and for mpath_trace merge. %h, %p and %r in the name stand for host, process and rank; without the last two "
        "the rank is appended. Empty: not"),
    ROW_ENUM(
        access, "all", access_values, 2,
        "NICs that a rank may drive: \"all\" those of its node, or only the one beside it (\"affine\"); in the second "
        "case the others are reached through the ranks beside them"),
    ROW_ENUM(gate, "auto", gate_values, 2,
             "When mpath runs instead of the function that it replaces: where its model says that it wins (\"auto\"), "
             "whenever it can (\"always\"), or not at all (\"never\")"),
    ROW_STRING(
        topo_file, "path", 3,
        "Topology file (mpath, NCCL or hwloc XML) used instead of discovery; a file with an error is reported and "
        "not used"),
    ROW_STRING(rails, "NIC names", 2,
               "NICs to use, comma-separated; the position in the list is the number of the rail, so it has to be the "
               "same on all nodes. Empty: every usable NIC, in the order of the names"),
    ROW_STRING(rail_rates, "bytes/s", 2,
               "Rate of the NICs in each direction: one value for all (\"25m\"), values of named NICs "
               "(\"rail0=25m,rail1=6250k\"), or both (\"25m,rail1=6250k\"); suffixes k, m and g are powers of 1000. "
               "Empty: as the system reports it"),
    ROW_STRING(
        rail_tls, "UCX_TLS", 5,
        "UCX transports that drive the NICs, as UCX_TLS lists them (\"rc_v\", \"dc_x\", \"ud\"). Empty: \"tcp\" on a "
        "network interface; on an InfiniBand or RoCE port \"ib\", of which UCX takes rc or dc for data, accelerated "
        "where the NIC can be, and ud to connect; \"shm\" between virtual nodes on one host (device \"memory\")"),
    {"max_paths", MPATH_PARAM_INT, offsetof(mpath_settings_t, max_paths), "0", 0, 64, NULL, "", 6,
     "Paths of a pair that are used, its first ones, the static route before all others: 1 is the routing without "
     "mpath; 0: all. To measure what each path adds; communicators keep the value of their first collective",
     1, MPATH_PARAM_OWN},
    ROW_BYTES(memory_bytes, "64m", MIB, 64 * GIB, 3,
              "Upper limit of the memory that a rank sets aside, once, to relay and to exchange data"),
    ROW_BYTES(
        node_memory_bytes, "512m", MIB, 1024 * GIB, 3,
        "Upper limit of the shared memory that the processes of a job on a node take for all their communicators; "
        "a quarter of /dev/shm where that is less. Communicators for which too little is left do with smaller "
        "queues, or use the previous functions"),
    ROW_INT(
        timeout_s, "120", 1, 86400, "s", 3,
        "A call whose data does not move for this long returns an error that names who waits for whom; also how often "
        "a wait for late ranks says so"),
    ROW_INT(
        agree_timeout_s, "21600", -1, 31536000, "s", 3,
        "A call for which some ranks have not come after this long returns an error that names them, on the ranks that "
        "wait: ranks may be late by right, but nobody sees a process die that was a communicator's only one on its node. "
        "With 0 they are waited for without end; but once no rail connects with their node any more for timeout_s, or "
        "their node says over a rail that it has sent what does not come, the call returns an error that names them. -1: "
        "not where no rail connects, either, for MPI messages that take another network than the rails"),
    ROW_INT(
        resend_after_s, "30", 0, 86400, "s", 3,
        "A rail over which awaited data does not come for this long counts as failed, as does one whose connection "
        "breaks: the call is repeated over the others, and the rail is left out until it is up again. With 0 a failed "
        "rail ends the call in an error"),
    ROW_ENUM(
        gpu, "yes", switch_values, 3,
        "Device buffers within a node are moved from GPU to GPU; with \"no\" they are copied to the host and back"),
    ROW_STRING(
        gpu_probe_file, "path", 5,
        "Text file with the rates of the GPUs. Empty: a file named after the GPUs and their driver in the folder of "
        "the cache"),
    ROW_ENUM(
        sync, "none", sync_values, 3,
        "What a collective on device buffers waits for before it reads them: nothing, the data is ready when it is "
        "called (\"none\"), or all work under way on the devices of its buffers, and on all devices for pinned and managed "
        "buffers (\"device\")"),
    ROW_BYTES(gpu_device_bytes, "64m", 2 * MIB, 64 * GIB, 3,
              "Upper limit of the GPU memory of a process for slots, large reductions and what passes through, in all "
              "communicators: later ones get less of what is left, and go other ways without"),
    ROW_BYTES(gpu_pinned_bytes, "64m", 64 * KIB, 64 * GIB, 3,
              "The same for its pinned host memory: slots for device data that does not go from GPU to GPU directly"),
    ROW_STRING(
        tune, "rules", 3,
        "Which algorithm carries which calls, whatever times are predicted: rules with commas between them, of which the "
        "last that fits counts, such as \"alltoallv:@planned:4k-inf,allreduce:@previous:0-64k\"; a rule is a "
        "collective, @algorithm, a range of bytes (of the busiest rank of an MPI_Alltoallv, else of the whole "
        "vector) and \"host\" or \"device\". mpath_info --why COLLECTIVE BYTES lists algorithms. Empty: by "
        "predicted time"),
    ROW_ENUM(
        deterministic, "no", switch_values, 4,
        "The same bits of reductions in every run. What mpath carries has them anyway, whatever the shares of the "
        "rails; with \"yes\" it also keeps carrying what the previous function, with an order of its own, would take "
        "over when rails have failed"),
    ROW_ENUM(
        adapt, "run", adapt_values, 3,
        "Shares of the rails and plans of MPI_Alltoallv follow the rates that these and MPI_Allreduce, MPI_Reduce_scatter "
        "and MPI_Allgather see (\"run\"), where nothing is known yet from a measurement before the first of the latter on "
        "(\"start\"), or the rates that the system reports (\"off\")"),
    ROW_STRING(
        adapt_file, "path", 3,
        "Text file in which rank 0 keeps for later jobs what calls have shown (rates of rails and NICs; on device memory of one "
        "node shares of the host and of kernels), unless adapt is \"off\"; it may be edited and deleted. Empty: none"),
    ROW_STRING(
        internals, "KEY=VALUE,...", 7,
        "How mpath works inside, for tests and measurements: keys with their values and commas between them, such as "
        "\"chunk_bytes=64k,gpu_way=push\". Keys, values and effects may change with any version. Empty: as mpath "
        "decides"),

    /* Keys of `internals`. */
    KEY_BYTES(small_bytes, "4k", 0, 64 * KIB, 5,
              "A call in which no pair sends more than this is done inside the exchange of the sizes, without a plan"),
    KEY_BYTES(
        leader_bytes, "16k", 0, 16 * MIB, 5,
        "Small pairs between two nodes travel in one message of their leaders, as long as it stays below this; larger "
        "ones, with access \"affine\", in one message of each rank that stays below this; still larger ones take the "
        "rails"),
    KEY_BYTES(min_fragment_bytes, "32k", 1, GIB, 5, "A pair's message is not split into pieces smaller than this"),
    KEY_INT(
        keep_routes_ppm, "20000", 0, 1000000, "millionths", 5,
        "When sizes or rates change, the routes of an earlier call stay while the busiest resource takes at most this "
        "much longer than with new ones; 0 plans every change anew"),
    KEY_BYTES(chunk_bytes, "128k", 4 * KIB, 64 * MIB, 5,
              "Largest piece that is handed from one hop to the next; smaller pieces shorten the pipeline, larger ones "
              "cost less processor time"),
    KEY_BYTES(node_min_bytes, "4097", 0, INT64_MAX, 6,
              "When all ranks share one node: from this size of the largest pair on, the previous function runs"),
    KEY_INT(
        resend_min_ms, "-1", -1, 86400000, "ms", 5,
        "Calls that are predicted to take this long can be repeated; their ranks end together, which costs an exchange "
        "of a few bytes. In shorter ones a failed rail ends the call in an error. -1: a hundred times what that "
        "exchange is reckoned to take: between two nodes 1 ms where all rails are InfiniBand or RoCE, else 25 ms; more "
        "between more nodes"),
    KEY_BYTES(
        symmetric_min_bytes, "16k", 0, INT64_MAX, 5,
        "Whole vector of an MPI_Allreduce, MPI_Reduce_scatter or MPI_Allgather below which the previous function runs"),
    KEY_INT(
        steps_nodes, "0", 0, 1048576, "", 5,
        "MPI_Allreduce, MPI_Reduce_scatter and MPI_Allgather go in steps, in which each node exchanges with one other at a time, "
        "between so many nodes or more. 0: between more than 16, where that is predicted to be faster"),
    KEY_INT(trace_chunks, "32768", 64, 16777216, "", 5,
            "Chunks that a rank keeps for its timeline, 48 bytes each, and a quarter as many calls and phases; older "
            "ones are dropped, and counted"),
    KEY_ENUM(check_plan, "no", switch_values, 9,
             "All ranks compare a checksum of their plans and the call fails where they differ; for debugging"),
    KEY_ENUM(gpu_way, "auto", gpu_way_values, 6,
             "How data goes from GPU to GPU: as predicted to be fastest (\"auto\"), written by a kernel of the sender "
             "(\"kernel\"), or written by copy engines of the sender (\"push\")"),
    KEY_ENUM(
        gpu_reduce, "auto", gpu_reduce_values, 6,
        "How GPUs combine the vectors of MPI_Allreduce: as predicted to be fastest (\"auto\"); with kernels that read "
        "everybody's part and write the result to all (\"direct\"); or, where that can be, \"direct\" elsewhere: in "
        "tiles that kernels wait for and write to who combines them (\"writes\") or to the next GPU, round a ring "
        "(\"ring\"); sent by kernels that are started before the agreement, in parts (\"parts\") or whole (\"whole\")"),
    KEY_ENUM(
        gpu_rail, "auto", gpu_rail_values, 6,
        "How rails get at device memory: by themselves where UCX, NICs and kernel can do GPUDirect RDMA and a trial "
        "transfer comes through (\"auto\"), wherever UCX knows CUDA memory and the trial comes through (\"direct\"), "
        "or through pinned host memory (\"host\"). All ranks of a communicator alike: what one cannot do none does"),
    KEY_ENUM(
        gpu_stream_waits, "auto", waits_values, 9,
        "What goes from GPU to GPU through host memory is enqueued on both GPUs in advance, whose streams wait for each "
        "other (cuStreamWaitValue64), where the driver can do that on both: where that is faster (\"auto\"), always "
        "(\"yes\"), or, with \"no\" on either rank of a pair, never: their hosts start every copy"),
    KEY_ENUM(
        gpu_probe, "auto", gpu_probe_values, 5,
        "Rates of the GPUs that predictions and plans use: those of an earlier probe, else the first call on device "
        "memory measures them, within a tenth of a second or so, and keeps them (\"auto\"); those of an earlier probe "
        "only (\"file\"); or those of an H200 (\"off\")"),
    KEY_INT(
        gpu_host_percent, "8", 0, 30, "%", 6,
        "Share of the bytes of a hot receiver that goes through host memory beside the copies from GPU to GPU, when "
        "these are large and pushed; less where another GPU would be the slowest then. 0: neither these nor large "
        "reductions use the host"),
    KEY_BYTES(
        gpu_host_min_bytes, "0", 0, UINT64_C(1) << 50, 6,
        "MPI_Allreduce and MPI_Allgather on device memory of one node: from so many bytes through a GPU's port on, a "
        "part goes through host memory beside the others, as much as makes the call shorter. 0: as many as the port "
        "carries in 340 us"),
    KEY_INT(
        gpu_help_percent, "-1", -1, 50, "%", 9,
        "Share of what copy engines push from GPU to GPU that a kernel of 32 blocks writes beside them: engines leave "
        "the links idle between two messages. -1: none, or some, as is measured to be faster in calls with three such "
        "messages or more"),
    KEY_BYTES(
        gpu_memory_bytes, "32m", 64 * KIB, 16 * GIB, 3,
        "Of gpu_device_bytes and gpu_pinned_bytes, upper limits of what one communicator takes at a time: pinned host memory of a rank for device data "
        "that cannot go from GPU to GPU directly, memory that it sets aside on its GPU for large reductions, and slots "
        "of rails, in either"),
    KEY_BYTES(gpu_chunk_bytes, "512k", 64 * KIB, 64 * MIB, 5,
              "Largest chunk of device memory that goes over a rail, where there is memory for the slots: copies of "
              "larger ones cost less processor time, smaller ones shorten the pipeline"),
    KEY_BYTES(gpu_relay_bytes, "64m", 2 * MIB, 16 * GIB, 3,
              "Upper limit of the GPU memory of a rank for chunks of device data that pass through its GPU, in all "
              "communicators, and within gpu_device_bytes: the first takes half of what is left, later ones a quarter"),
    KEY_INT(
        gpu_imports, "128", 0, 65536, "", 5,
        "Allocations of other processes' GPU memory that a process keeps open between calls. What their owners free "
        "stays taken on the GPU until it is closed here; with 0 that is at the end of each call, and opening it again "
        "takes milliseconds"),
    KEY_BYTES(
        pack_bytes, "1g", 0, INT64_MAX, 5,
        "Most memory that a rank takes for the packed copies of one call (datatypes with gaps, MPI_IN_PLACE); a call that "
        "needs more is left to the function that mpath replaces"),

    /* Names that go with the next version; the help says what to use. */
    OLD_ENUM(alltoallv_algorithm, "auto", routes_values, 5,
             "tune=alltoallv:@previous, @direct, or @planned for \"lanes\""),
    OLD_ENUM(allreduce_algorithm, "auto", algorithm_values, 5,
             "tune=allreduce:@previous, @inline for \"small\", or @pipeline for \"lanes\""),
    OLD_ENUM(reduce_scatter_algorithm, "auto", algorithm_values, 5,
             "tune=reduce_scatter:@previous, @inline for \"small\", or @pipeline for \"lanes\""),
    OLD_ENUM(allgather_algorithm, "auto", algorithm_values, 5,
             "tune=allgather:@previous, @inline for \"small\", or @pipeline for \"lanes\""),
};

const size_t mpath_params_count = sizeof(mpath_params) / sizeof(mpath_params[0]);

const mpath_param_removed_t mpath_params_removed[] = {
    {"gpu_batch", "all copies of a copy engine in a call are given to the CUDA driver at once where it can take them"},
    {"gpu_port_bps", "kernels use all that a GPU's port carries"},
    {NULL, NULL},
};

const char *const mpath_param_component_names[] = {"enable", "fallback", "nonblocking", NULL};

const char *mpath_param_remark(const mpath_param_t *param, const char *prefix, char *text, size_t size)
{
    if (param->kind == MPATH_PARAM_KEY) {
        snprintf(text, size, "goes with the next version: use %sinternals=%s=VALUE", prefix, param->name);
    } else {
        snprintf(text, size, "goes with the next version: use %s%s", prefix, param->help);
    }
    return text;
}
