/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_pair PORT HOST|- OPERATION BYTES WINDOW SECONDS one|two: two processes over UCP, without MPI. "-" listens, the
 * other side connects to HOST. OPERATION is tag, stream, am, put or get: messages or accesses of BYTES, WINDOW of them
 * at a time, for SECONDS, from the one that connects to the other (one; a get the other way round) or both ways at once
 * (two). Every word is checked. SIGTERM to either side ends it earlier. Both sides print
 *     pair OPERATION bytes_per_second=B messages=N wrong=W
 * with the bytes per second of one direction. Status 1: wrong words; 3: the other side failed, and every request has
 * ended ("pair OPERATION peer failed: STATUS, R requests ended"); 4: all but a receive that has a part of its message.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define MAX_WINDOW 64
#define MAX_BLOB 4096
#define WAIT_S 60
#define INCOMPLETE_S 5 /* after a failure that long, what has not ended will not */
#define AM_ID 1

/* From 1.16 on UCX ends a rendezvous with a failed peer when nobody holds its memory any more. What is mapped, and not
 * named in the request, is held until it is unmapped. */
#define MAPS(_operation) (UCP_API_VERSION < UCP_VERSION(1, 16) || (_operation) >= OP_PUT)

typedef enum operation { OP_TAG, OP_STREAM, OP_AM, OP_PUT, OP_GET, NUM_OPS } operation_t;
static const char *const names[NUM_OPS] = {"tag", "stream", "am", "put", "get"};

typedef struct pair {
    int connects, two_way, window, fd;
    operation_t operation;
    size_t bytes;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    char *out, *in; /* window messages each */
    ucp_mem_h out_memh, in_memh;
    uint64_t peer_out, peer_in; /* where the other side has them */
    ucp_rkey_h out_rkey, in_rkey;
    ucs_status_ptr_t requests[2 * MAX_WINDOW + 1];
    int is_receive[2 * MAX_WINDOW + 1], receiving; /* receiving: what is added is one */
    int num_requests, ended, incomplete;
    int arrived, expected; /* active messages */
    ucs_status_t failure;  /* of the endpoint or a request */
    uint64_t wrong;
} pair_t;

typedef struct blob {
    uint64_t out, in;
    uint32_t address_bytes, out_key_bytes;
    char data[MAX_BLOB];
} blob_t;

static volatile sig_atomic_t ended;

static void end(int signal_number)
{
    (void)signal_number;
    ended = 1;
}

static void __attribute__((noreturn)) die(const char *what, const char *why)
{
    fprintf(stderr, "ucx_pair: %s: %s\n", what, why);
    exit(2);
}

static void check_status(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        die(what, ucs_status_string(status));
    }
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- the socket: addresses, and both sides at the same place ------------------------------------------------------ */

static int connect_sockets(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    double end_s          = now_s() + WAIT_S;
    const int yes         = 1;
    int fd, peer;

    if (getaddrinfo(strcmp(host, "-") == 0 ? NULL : host, port, &hints, &found) != 0) {
        die(host, "no address");
    }
    fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (strcmp(host, "-") == 0) {
        if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0 ||
            (peer = accept(fd, NULL, NULL)) < 0) {
            die(port, strerror(errno));
        }
        close(fd);
        fd = peer;
    } else {
        while (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
            if (now_s() > end_s) {
                die(host, strerror(errno));
            }
            close(fd);
            usleep(50000);
            fd = socket(AF_INET, SOCK_STREAM, 0);
        }
    }
    freeaddrinfo(found);
    /* Two marks in a row would make the second wait for a delayed acknowledgement: 40 ms of a window of 170. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    return fd;
}

/* Returns 0 when the other side is gone. UCX goes on meanwhile. */
static int swap(pair_t *pair, const void *mine, void *theirs, size_t bytes)
{
    struct pollfd wait = {.fd = pair->fd, .events = POLLIN};
    double end_s       = now_s() + WAIT_S;
    size_t done        = 0;
    ssize_t count;

    if (send(pair->fd, mine, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) {
        return 0;
    }
    while (done < bytes) {
        if (pair->worker != NULL) {
            ucp_worker_progress(pair->worker);
        }
        if (poll(&wait, 1, pair->worker != NULL ? 0 : 1000) == 1) {
            count = recv(pair->fd, (char *)theirs + done, bytes - done, 0);
            if (count <= 0) {
                return 0;
            }
            done += (size_t)count;
        } else if (now_s() > end_s) {
            die("the other side", "says nothing for 60 s");
        }
    }
    return 1;
}

/* --- UCP ---------------------------------------------------------------------------------------------------------- */

static void note_failure(pair_t *pair, ucs_status_t status)
{
    pair->failure = pair->failure == UCS_OK ? status : pair->failure;
}

static void endpoint_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    note_failure(arg, status);
}

static void add(pair_t *pair, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request)) {
        note_failure(pair, UCS_PTR_STATUS(request));
        ++pair->ended;
    } else if (request != NULL) {
        pair->is_receive[pair->num_requests] = pair->receiving;
        pair->requests[pair->num_requests++] = request;
    }
}

/* Data of messages that come by rendezvous are asked for at once, as ucx_perftest does. Asked for after the progress in
 * which they came, the question stands behind what the other side asked for meanwhile: active messages keep their
 * order. */
static ucs_status_t message_arrived(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                                    const ucp_am_recv_param_t *param)
{
    const ucp_request_param_t plain = {0};
    pair_t *pair                    = arg;
    uint32_t slot;

    memcpy(&slot, header, sizeof(slot));
    if (header_bytes != sizeof(slot) || slot >= (uint32_t)pair->window || bytes != pair->bytes) {
        ++pair->wrong;
        return UCS_OK;
    }
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        ++pair->arrived;
        add(pair, ucp_am_recv_data_nbx(pair->worker, data, pair->in + slot * pair->bytes, bytes, &plain));
        return UCS_INPROGRESS;
    }
    memcpy(pair->in + slot * pair->bytes, data, bytes);
    ++pair->arrived;
    return UCS_OK;
}

static void open_ucp(pair_t *pair)
{
    ucp_params_t params            = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                      .features   = UCP_FEATURE_TAG | UCP_FEATURE_STREAM | UCP_FEATURE_AM | UCP_FEATURE_RMA};
    ucp_worker_params_t worker     = {0};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id  = AM_ID,
                                      .cb  = message_arrived,
                                      .arg = pair};

    check_status(ucp_init(&params, NULL, &pair->context), "ucp_init");
    check_status(ucp_worker_create(pair->context, &worker, &pair->worker), "ucp_worker_create");
    check_status(ucp_worker_set_am_recv_handler(pair->worker, &handler), "ucp_worker_set_am_recv_handler");
}

static size_t append(blob_t *blob, size_t at, const void *data, size_t bytes)
{
    if (at + bytes > sizeof(blob->data)) {
        die("addresses", "too long");
    }
    memcpy(blob->data + at, data, bytes);
    return at + bytes;
}

/* Maps a window's memory and appends its key. */
static uint32_t map(pair_t *pair, blob_t *blob, size_t *at, char *memory, ucp_mem_h *memh)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = memory,
                                   .length     = (size_t)pair->window * pair->bytes};
    size_t bytes;
    void *key;

    check_status(ucp_mem_map(pair->context, &params, memh), "ucp_mem_map");
    check_status(ucp_rkey_pack(pair->context, *memh, &key, &bytes), "ucp_rkey_pack");
    *at = append(blob, *at, key, bytes);
    ucp_rkey_buffer_release(key);
    return (uint32_t)bytes;
}

static void connect_ucp(pair_t *pair)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .err_mode        = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler.cb  = endpoint_failed,
                              .err_handler.arg = pair};
    static blob_t mine, theirs;
    ucp_address_t *address;
    size_t bytes, at;

    check_status(ucp_worker_get_address(pair->worker, &address, &bytes), "ucp_worker_get_address");
    at                 = append(&mine, 0, address, bytes);
    mine.address_bytes = (uint32_t)bytes;
    mine.out           = (uint64_t)(uintptr_t)pair->out;
    mine.in            = (uint64_t)(uintptr_t)pair->in;
    if (MAPS(pair->operation)) {
        mine.out_key_bytes = map(pair, &mine, &at, pair->out, &pair->out_memh);
        map(pair, &mine, &at, pair->in, &pair->in_memh);
    }
    ucp_worker_release_address(pair->worker, address);
    if (!swap(pair, &mine, &theirs, sizeof(mine))) {
        die("the other side", "ended before it told its address");
    }
    params.address = (const ucp_address_t *)theirs.data;
    check_status(ucp_ep_create(pair->worker, &params, &pair->ep), "ucp_ep_create");
    at = theirs.address_bytes;
    if (MAPS(pair->operation)) {
        check_status(ucp_ep_rkey_unpack(pair->ep, theirs.data + at, &pair->out_rkey), "ucp_ep_rkey_unpack");
        at += theirs.out_key_bytes;
        check_status(ucp_ep_rkey_unpack(pair->ep, theirs.data + at, &pair->in_rkey), "ucp_ep_rkey_unpack");
    }
    pair->peer_out = theirs.out;
    pair->peer_in  = theirs.in;
}

/* --- one window of messages --------------------------------------------------------------------------------------- */

static uint64_t word(uint64_t message, int sender, size_t index)
{
    uint64_t mixed = (message * 2 + (uint64_t)sender) * 0x9e3779b97f4a7c15ull + index * 0xbf58476d1ce4e5b9ull;

    return mixed ^ (mixed >> 29);
}

static void fill(pair_t *pair, uint64_t first)
{
    uint64_t *words = (uint64_t *)pair->out;
    size_t per      = pair->bytes / sizeof(uint64_t), slot, i;

    for (slot = 0; slot < (size_t)pair->window; ++slot) {
        for (i = 0; i < per; ++i) {
            words[slot * per + i] = word(first + slot, pair->connects, i);
        }
    }
    memset(pair->in, 0, (size_t)pair->window * pair->bytes);
}

static void check(pair_t *pair, uint64_t first)
{
    const uint64_t *words = (const uint64_t *)pair->in;
    size_t per            = pair->bytes / sizeof(uint64_t), slot, i;

    for (slot = 0; slot < (size_t)pair->window; ++slot) {
        for (i = 0; i < per; ++i) {
            pair->wrong += words[slot * per + i] != word(first + slot, !pair->connects, i);
        }
    }
}

static void start_receive(pair_t *pair, int slot)
{
    const ucp_request_param_t plain = {0};
    ucp_request_param_t whole       = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    char *in                        = pair->in + (size_t)slot * pair->bytes;
    size_t length;

    switch (pair->operation) {
    case OP_TAG:
        add(pair, ucp_tag_recv_nbx(pair->worker, in, pair->bytes, (ucp_tag_t)slot, UINT64_MAX, &plain));
        break;
    case OP_STREAM:
        add(pair, ucp_stream_recv_nbx(pair->ep, in, pair->bytes, &length, &whole));
        break;
    case OP_GET:
        add(pair, ucp_get_nbx(pair->ep, in, pair->bytes, pair->peer_out + (size_t)slot * pair->bytes, pair->out_rkey,
                              &plain));
        break;
    default:
        break;
    }
}

static void start_send(pair_t *pair, int slot)
{
    const ucp_request_param_t plain = {0};
    const char *out                 = pair->out + (size_t)slot * pair->bytes;
    static uint32_t slots[MAX_WINDOW];

    switch (pair->operation) {
    case OP_TAG:
        add(pair, ucp_tag_send_nbx(pair->ep, out, pair->bytes, (ucp_tag_t)slot, &plain));
        break;
    case OP_STREAM:
        add(pair, ucp_stream_send_nbx(pair->ep, out, pair->bytes, &plain));
        break;
    case OP_AM:
        slots[slot] = (uint32_t)slot;
        add(pair, ucp_am_send_nbx(pair->ep, AM_ID, &slots[slot], sizeof(slots[slot]), out, pair->bytes, &plain));
        break;
    case OP_PUT:
        add(pair,
            ucp_put_nbx(pair->ep, out, pair->bytes, pair->peer_in + (size_t)slot * pair->bytes, pair->in_rkey, &plain));
        break;
    default:
        break;
    }
}

static void reap(pair_t *pair)
{
    ucs_status_t status;
    int i = 0;

    while (i < pair->num_requests) {
        status = ucp_request_check_status(pair->requests[i]);
        if (status == UCS_INPROGRESS) {
            ++i;
            continue;
        }
        if (status != UCS_OK) {
            note_failure(pair, status);
        }
        ++pair->ended;
        ucp_request_free(pair->requests[i]);
        pair->requests[i]   = pair->requests[--pair->num_requests];
        pair->is_receive[i] = pair->is_receive[pair->num_requests];
    }
}

/* Until all requests have ended. Receives that nobody sends for any more have to be cancelled. */
static void finish(pair_t *pair)
{
    double end_s = now_s() + WAIT_S, cancelled_s = 0;
    int i;

    while (pair->num_requests > pair->incomplete || (pair->arrived < pair->expected && pair->failure == UCS_OK)) {
        ucp_worker_progress(pair->worker);
        reap(pair);
        if (pair->failure != UCS_OK && pair->operation == OP_TAG && cancelled_s == 0) {
            cancelled_s = now_s();
            for (i = 0; i < pair->num_requests; ++i) {
                ucp_request_cancel(pair->worker, pair->requests[i]);
            }
        }
        pair->incomplete = cancelled_s != 0 && now_s() > cancelled_s + INCOMPLETE_S && pair->num_requests == 1 &&
                           pair->is_receive[0];
        if (now_s() > end_s) {
            die(names[pair->operation], "requests that do not end");
        }
    }
}

/* Seconds; below 0: the other side is gone. */
static double transfer(pair_t *pair)
{
    const ucp_request_param_t plain = {0};
    int sends = pair->two_way || pair->connects == (pair->operation != OP_GET), receives = pair->two_way || !sends;
    char mark = 0, other;
    double start_s;
    int slot;

    pair->arrived  = 0;
    pair->expected = pair->operation == OP_AM && receives ? pair->window : 0;
    if (!swap(pair, &mark, &other, 1)) {
        return -1;
    }
    start_s         = now_s();
    pair->receiving = 1;
    for (slot = 0; receives && slot < pair->window; ++slot) {
        start_receive(pair, slot);
    }
    pair->receiving = 0;
    for (slot = 0; sends && slot < pair->window; ++slot) {
        start_send(pair, slot);
    }
    if (pair->operation == OP_PUT && sends) {
        add(pair, ucp_ep_flush_nbx(pair->ep, &plain));
    }
    finish(pair);
    return pair->failure == UCS_OK && swap(pair, &mark, &other, 1) ? now_s() - start_s : -1;
}

/* The other side is gone: UCX has to find out by itself, if only because something is sent. */
static int report_failure(pair_t *pair)
{
    const ucp_request_param_t plain = {0};
    double end_s                    = now_s() + WAIT_S;

    while (pair->failure == UCS_OK && now_s() < end_s) {
        add(pair, ucp_tag_send_nbx(pair->ep, pair->out, 8, 0, &plain));
        finish(pair);
        usleep(1000);
    }
    if (pair->failure == UCS_OK) {
        die(names[pair->operation], "UCX does not notice that the other side is gone");
    }
    finish(pair);
    printf("pair %s peer failed: %s, %d requests ended%s\n", names[pair->operation], ucs_status_string(pair->failure),
           pair->ended, pair->incomplete ? ", 1 receive is incomplete" : "");
    return 3 + pair->incomplete;
}

static int run(pair_t *pair, double limit_s)
{
    double total_s = 0, began_s = now_s(), taken_s;
    uint64_t messages = 0;
    int receives = pair->two_way || pair->connects == (pair->operation == OP_GET), first = 1;
    char more = 1, other = 1;

    while (more && other) {
        fill(pair, messages);
        taken_s = transfer(pair);
        if (taken_s < 0) {
            return report_failure(pair);
        }
        if (receives) {
            check(pair, messages);
        }
        messages += (uint64_t)pair->window;
        total_s += first ? 0 : taken_s; /* the first ones connect */
        first = 0;
        more  = (now_s() - began_s < limit_s && !ended) || total_s == 0;
        if (!swap(pair, &more, &other, 1)) {
            return report_failure(pair);
        }
    }
    printf("pair %s bytes_per_second=%.0f messages=%lu wrong=%lu\n", names[pair->operation],
           (double)(messages - (uint64_t)pair->window) * (double)pair->bytes / total_s, (unsigned long)messages,
           (unsigned long)pair->wrong);
    return pair->wrong != 0;
}

static void close_ucp(pair_t *pair)
{
    const ucp_request_param_t plain = {0};
    char mark                       = 0;

    if (MAPS(pair->operation)) {
        ucp_rkey_destroy(pair->out_rkey);
        ucp_rkey_destroy(pair->in_rkey);
        ucp_mem_unmap(pair->context, pair->out_memh);
        ucp_mem_unmap(pair->context, pair->in_memh);
    }
    add(pair, ucp_ep_close_nbx(pair->ep, &plain));
    finish(pair);
    (void)swap(pair, &mark, &mark, 1);
    ucp_worker_destroy(pair->worker);
    ucp_cleanup(pair->context);
}

int main(int argc, char **argv)
{
    static pair_t pair;
    int status;

    while (argc == 8 && pair.operation < NUM_OPS && strcmp(names[pair.operation], argv[3]) != 0) {
        ++pair.operation;
    }
    if (argc != 8 || pair.operation == NUM_OPS || atoi(argv[4]) < 8 || atoi(argv[5]) < 1 ||
        atoi(argv[5]) > MAX_WINDOW) {
        fprintf(stderr, "usage: ucx_pair PORT HOST|- tag|stream|am|put|get BYTES WINDOW SECONDS one|two\n");
        return 2;
    }
    signal(SIGTERM, end);
    pair.connects = strcmp(argv[2], "-") != 0;
    pair.bytes    = (size_t)atoi(argv[4]) / sizeof(uint64_t) * sizeof(uint64_t);
    pair.window   = atoi(argv[5]);
    pair.two_way  = strcmp(argv[7], "two") == 0;
    pair.out      = calloc((size_t)pair.window, pair.bytes);
    pair.in       = calloc((size_t)pair.window, pair.bytes);
    if (pair.out == NULL || pair.in == NULL) {
        die("memory", "none");
    }
    pair.fd = connect_sockets(argv[2], argv[1]);
    open_ucp(&pair);
    connect_ucp(&pair);
    status = run(&pair, atof(argv[6]));
    fflush(stdout);
    if (!pair.incomplete) { /* a worker with a receive that does not end cannot be destroyed */
        close_ucp(&pair);
    }
    return status;
}
