/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_uct [CASE...]: the transport mpath by UCT's own interface, two interfaces in this process: what addresses, active
 * messages, the pending queue, flush, fence, gets, cancelling, memory that was taken back and the end of a peer have to
 * do by UCT's rules. Prints PASS or FAIL for each case. The rails are those of UCX_MPATH_RAILS.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucs/async/async_fwd.h>
#include <uct/api/uct.h>

#define AM_ID 3
#define MAX_MESSAGES 4096
#define BIG_BYTES 60000
#define LIMIT_S 300
#define DEVICE_ADDRESS_LIMIT 31 /* what UCP packs into its address */
#define IFACE_ADDRESS_LIMIT 63

typedef struct side {
    uct_worker_h worker;
    uct_iface_h iface;
    uct_iface_attr_t attr;
    uct_ep_h ep;
    int failed;
} side_t;

static ucs_async_context_t *async;
static uct_component_h component;
static uct_md_h md;
static side_t here, there; /* endpoints lead from here to there */
static uint32_t arrived[MAX_MESSAGES];
static unsigned num_arrived;
static uint64_t watched, *watch; /* the memory when the last message came */
static const char *why;

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            why = #condition;                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void progress(void)
{
    uct_worker_progress(here.worker);
    if (there.worker != NULL) {
        uct_worker_progress(there.worker);
    }
}

/* Progresses until the condition, which may do something, holds. */
#define WAIT_FOR(condition)                                                                                            \
    do {                                                                                                               \
        double end_s = now_s() + LIMIT_S;                                                                              \
        int holds;                                                                                                     \
                                                                                                                       \
        while (!(holds = (condition)) && now_s() < end_s) {                                                            \
            progress();                                                                                                \
        }                                                                                                              \
        if (!holds) {                                                                                                  \
            why = #condition;                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/*
 * --- two sides -----------------------------------------------------------------------------------------------------
 */

static ucs_status_t message_arrived(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)flags;
    if (length >= sizeof(uint64_t) && num_arrived < MAX_MESSAGES) {
        uint64_t number;

        memcpy(&number, data, sizeof(number));
        arrived[num_arrived++] = (uint32_t)number;
        watched                = watch != NULL ? *watch : 0;
    }
    return UCS_OK;
}

static ucs_status_t endpoint_failed(void *arg, uct_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    ((side_t *)arg)->failed = 1;
    return UCS_OK;
}

static ucs_status_t open_md(void)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_component_h *components;
    uct_md_config_t *config;
    ucs_status_t status;
    unsigned count, i;

    status = uct_query_components(&components, &count);
    if (status != UCS_OK) {
        return status;
    }
    for (i = 0; i < count; ++i) {
        if (uct_component_query(components[i], &attr) == UCS_OK && strcmp(attr.name, "mpath") == 0) {
            component = components[i];
        }
    }
    uct_release_component_list(components);
    if (component == NULL) {
        return UCS_ERR_NO_DEVICE;
    }
    status = uct_md_config_read(component, NULL, NULL, &config);
    if (status == UCS_OK) {
        status = uct_md_open(component, "mpath", config, &md);
        uct_config_release(config);
    }
    return status;
}

static ucs_status_t open_side(side_t *side)
{
    uct_iface_params_t params = {.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                                               UCT_IFACE_PARAM_FIELD_RX_HEADROOM | UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
                                               UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                                               UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS,
                                 .open_mode       = UCT_IFACE_OPEN_MODE_DEVICE,
                                 .err_handler     = endpoint_failed,
                                 .err_handler_arg = side};
    uct_iface_config_t *config;
    ucs_status_t status;

    memset(side, 0, sizeof(*side));
    params.mode.device.tl_name  = "mpath";
    params.mode.device.dev_name = "rails";
    status                      = uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &side->worker);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_md_iface_config_read(md, "mpath", NULL, NULL, &config);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_iface_open(md, side->worker, &params, config, &side->iface);
    uct_config_release(config);
    if (status != UCS_OK) {
        return status;
    }
    uct_iface_progress_enable(side->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    uct_iface_set_am_handler(side->iface, AM_ID, message_arrived, NULL, 0);
    return uct_iface_query(side->iface, &side->attr);
}

/* `knows`: 0: it knows where the other side is, as anybody can, and not the secret with which its address begins. */
static ucs_status_t connect_as(side_t *from, side_t *to, int knows, uct_ep_h *ep_p)
{
    char device[256], address[256];
    uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                                            UCT_EP_PARAM_FIELD_IFACE_ADDR,
                              .iface      = from->iface,
                              .dev_addr   = (uct_device_addr_t *)device,
                              .iface_addr = (uct_iface_addr_t *)address};
    ucs_status_t status;

    if (to->attr.device_addr_len > sizeof(device) || to->attr.iface_addr_len > sizeof(address)) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    status = uct_iface_get_device_address(to->iface, (uct_device_addr_t *)device);
    if (status == UCS_OK) {
        status = uct_iface_get_address(to->iface, (uct_iface_addr_t *)address);
    }
    if (status == UCS_OK && !uct_iface_is_reachable(from->iface, params.dev_addr, params.iface_addr)) {
        status = UCS_ERR_UNREACHABLE;
    }
    if (!knows) {
        address[0] ^= 1;
    }
    return status == UCS_OK ? uct_ep_create(&params, ep_p) : status;
}

static ucs_status_t connect_to(side_t *from, side_t *to)
{
    return connect_as(from, to, 1, &from->ep);
}

static void close_side(side_t *side)
{
    if (side->ep != NULL) {
        uct_ep_destroy(side->ep);
    }
    if (side->iface != NULL) {
        uct_iface_close(side->iface);
    }
    if (side->worker != NULL) {
        uct_worker_destroy(side->worker);
    }
    memset(side, 0, sizeof(*side));
}

static void open_both(void)
{
    num_arrived = 0;
    watch       = NULL;
    REQUIRE(open_side(&here) == UCS_OK);
    REQUIRE(open_side(&there) == UCS_OK);
    REQUIRE(connect_to(&here, &there) == UCS_OK);
}

/*
 * --- operations ----------------------------------------------------------------------------------------------------
 */

typedef struct counted {
    uct_completion_t completion;
    int calls;
} counted_t;

static void counted_done(uct_completion_t *completion)
{
    ++((counted_t *)completion)->calls;
}

static counted_t counted(void)
{
    counted_t result = {.completion = {.func = counted_done, .count = 1, .status = UCS_OK}};

    return result;
}

static size_t pack_number(void *destination, void *arg)
{
    memset(destination, 0x5a, BIG_BYTES);
    memcpy(destination, arg, sizeof(uint64_t));
    return BIG_BYTES;
}

/* Small and large ones in turn, which take different rails. */
static ucs_status_t send_number(uint64_t number)
{
    ssize_t packed;

    if (number % 3 != 0) {
        return uct_ep_am_short(here.ep, AM_ID, number, &number, sizeof(number));
    }
    packed = uct_ep_am_bcopy(here.ep, AM_ID, pack_number, &number, 0);
    return packed >= 0 ? UCS_OK : (ucs_status_t)packed;
}

static void send_all(uint64_t first, uint64_t count)
{
    uint64_t number;
    ucs_status_t status;

    for (number = first; number < first + count; ++number) {
        WAIT_FOR((status = send_number(number)) != UCS_ERR_NO_RESOURCE);
        REQUIRE(status == UCS_OK);
    }
}

static uint64_t memory[BIG_BYTES / 8], source[BIG_BYTES / 8];

static ucs_status_t put(const void *buffer, size_t bytes, void *to, uct_rkey_t rkey, uct_mem_h memh, counted_t *done)
{
    uct_iov_t iov = {.buffer = (void *)buffer, .length = bytes, .memh = memh, .stride = 0, .count = 1};

    return uct_ep_put_zcopy(here.ep, &iov, 1, (uint64_t)(uintptr_t)to, rkey, &done->completion);
}

typedef struct registered {
    uct_mem_h source, memory;
    uct_rkey_bundle_t key;
    int failed;
} registered_t;

static registered_t register_memory(void)
{
    registered_t result = {0};
    char packed[512];
    uct_md_attr_t attr;

    result.failed = uct_md_query(md, &attr) != UCS_OK || attr.rkey_packed_size > sizeof(packed) ||
                    uct_md_mem_reg(md, source, sizeof(source), UCT_MD_MEM_ACCESS_ALL, &result.source) != UCS_OK ||
                    uct_md_mem_reg(md, memory, sizeof(memory), UCT_MD_MEM_ACCESS_ALL, &result.memory) != UCS_OK ||
                    uct_md_mkey_pack(md, result.memory, packed) != UCS_OK ||
                    uct_rkey_unpack(component, packed, &result.key) != UCS_OK;
    return result;
}

static void deregister_memory(registered_t *registered)
{
    uct_rkey_release(component, &registered->key);
    uct_md_mem_dereg(md, registered->source);
    uct_md_mem_dereg(md, registered->memory);
}

/*
 * --- cases ---------------------------------------------------------------------------------------------------------
 */

/* UCP has no room for more, however many rails there are; and other memory than the host's is not offered. */
static void case_limits(void)
{
    uct_md_attr_t attr;

    REQUIRE(here.attr.device_addr_len <= DEVICE_ADDRESS_LIMIT);
    REQUIRE(here.attr.iface_addr_len <= IFACE_ADDRESS_LIMIT);
    REQUIRE(uct_md_query(md, &attr) == UCS_OK);
    REQUIRE(attr.cap.reg_mem_types == UCS_BIT(UCS_MEMORY_TYPE_HOST));
    REQUIRE(attr.cap.access_mem_types == UCS_BIT(UCS_MEMORY_TYPE_HOST));
    REQUIRE(attr.cap.detect_mem_types == 0);
    REQUIRE(attr.cap.alloc_mem_types == 0);
}

static void case_order(void)
{
    unsigned i;

    send_all(0, 1000);
    WAIT_FOR(num_arrived == 1000);
    for (i = 0; i < num_arrived; ++i) {
        REQUIRE(arrived[i] == i);
    }
}

typedef struct waiting {
    uct_pending_req_t super;
    uint64_t number;
} waiting_t;

static unsigned num_purged;

static ucs_status_t send_waiting(uct_pending_req_t *request)
{
    return send_number(((waiting_t *)request)->number);
}

static void purge_waiting(uct_pending_req_t *request, void *arg)
{
    (void)request;
    (void)arg;
    ++num_purged;
}

/* What waits goes in its order, before anything newer, and comes back when it is purged. */
static void case_pending(void)
{
    static waiting_t waiting[64];
    uint64_t next = 0;
    unsigned i;

    send_all(0, 1); /* connects */
    WAIT_FOR(num_arrived == 1);
    num_arrived = 0;
    while (send_number(next) == UCS_OK && next < MAX_MESSAGES - 200) {
        ++next;
    }
    REQUIRE(next > 0 && next < MAX_MESSAGES - 200);
    for (i = 0; i < 64; ++i) {
        waiting[i].super.func = send_waiting;
        waiting[i].number     = next + i;
        REQUIRE(uct_ep_pending_add(here.ep, &waiting[i].super, 0) == UCS_OK);
    }
    REQUIRE(send_number(next + 64) == UCS_ERR_NO_RESOURCE);
    WAIT_FOR(num_arrived == next + 64);
    for (i = 0; i < num_arrived; ++i) {
        REQUIRE(arrived[i] == i);
    }
    num_arrived = 0;
    for (next = 0; send_number(next) == UCS_OK; ++next) {
    }
    for (i = 0; i < 64; ++i) {
        REQUIRE(uct_ep_pending_add(here.ep, &waiting[i].super, 0) == UCS_OK);
    }
    num_purged = 0;
    uct_ep_pending_purge(here.ep, purge_waiting, NULL);
    REQUIRE(num_purged == 64);
    WAIT_FOR(num_arrived == next);
}

/* A flush completes when the bytes are in the peer's memory, and that without any other call of its user. */
static void case_flush(void)
{
    registered_t registered = register_memory();
    counted_t done, flushed;
    ucs_status_t status;
    uint64_t round;

    REQUIRE(!registered.failed);
    for (round = 1; round <= 50; ++round) {
        source[0]                 = round;
        source[BIG_BYTES / 8 - 1] = round;
        done                      = counted();
        flushed                   = counted();
        WAIT_FOR((status = put(source, BIG_BYTES, memory, registered.key.rkey, registered.source, &done)) !=
                 UCS_ERR_NO_RESOURCE);
        REQUIRE(status == UCS_OK || status == UCS_INPROGRESS);
        status = uct_ep_flush(here.ep, 0, &flushed.completion);
        REQUIRE(status == UCS_OK || status == UCS_INPROGRESS);
        WAIT_FOR(status == UCS_OK || flushed.calls == 1);
        REQUIRE(memory[0] == round && memory[BIG_BYTES / 8 - 1] == round && done.calls == 1);
        WAIT_FOR((status = uct_iface_flush(here.iface, 0, NULL)) != UCS_INPROGRESS);
        REQUIRE(status == UCS_OK);
    }
    deregister_memory(&registered);
}

static ucs_status_t put_number(uint64_t number, uct_rkey_t rkey)
{
    return uct_ep_put_short(here.ep, &number, sizeof(number), (uint64_t)(uintptr_t)memory, rkey);
}

/* Of two puts to one place the one behind the fence is what is left; a message behind a put finds it done. */
static void case_fence(void)
{
    registered_t registered = register_memory();
    ucs_status_t status;
    counted_t done;
    uint64_t round;

    REQUIRE(!registered.failed);
    watch = memory;
    for (round = 1; round <= 200; ++round) {
        source[0] = 1000 + round;
        done      = counted();
        WAIT_FOR((status = put(source, BIG_BYTES, memory, registered.key.rkey, registered.source, &done)) !=
                 UCS_ERR_NO_RESOURCE);
        REQUIRE(status == UCS_OK || status == UCS_INPROGRESS);
        REQUIRE(uct_ep_fence(here.ep, 0) == UCS_OK);
        WAIT_FOR((status = put_number(2000 + round, registered.key.rkey)) != UCS_ERR_NO_RESOURCE);
        REQUIRE(status == UCS_OK);
        send_all(3 * round + 1, 1);
        WAIT_FOR(num_arrived == round);
        REQUIRE(watched == 2000 + round);
        WAIT_FOR(status == UCS_OK && (done.calls == 1 || uct_iface_flush(here.iface, 0, NULL) == UCS_OK));
    }
    deregister_memory(&registered);
}

static void case_get(void)
{
    registered_t registered = register_memory();
    uct_iov_t iov           = {.buffer = source, .length = BIG_BYTES, .memh = registered.source, .count = 1};
    counted_t done          = counted();
    ucs_status_t status;
    unsigned i;

    REQUIRE(!registered.failed);
    for (i = 0; i < BIG_BYTES / 8; ++i) {
        memory[i] = i * 7 + 1;
    }
    WAIT_FOR((status = uct_ep_get_zcopy(here.ep, &iov, 1, (uint64_t)(uintptr_t)memory, registered.key.rkey,
                                        &done.completion)) != UCS_ERR_NO_RESOURCE);
    REQUIRE(status == UCS_INPROGRESS || status == UCS_OK);
    WAIT_FOR(status == UCS_OK || done.calls == 1);
    REQUIRE(done.completion.status == UCS_OK && memcmp(source, memory, BIG_BYTES) == 0);
    deregister_memory(&registered);
}

/* Who greets without the secret of the other side's address is not answered; the others are. */
static void case_stranger(void)
{
    uint64_t number = 7000000;
    uct_ep_h stranger;
    unsigned i;

    REQUIRE(connect_as(&here, &there, 0, &stranger) == UCS_OK);
    for (i = 0; i < 200; ++i) {
        send_all(i, 1);
        WAIT_FOR(num_arrived == i + 1);
        REQUIRE(arrived[i] == i);
        REQUIRE(uct_ep_am_short(stranger, AM_ID, number, &number, sizeof(number)) == UCS_ERR_NO_RESOURCE);
    }
    uct_ep_destroy(stranger);
}

/* Keepalive: asking is free of an answer, and both go on. */
static void case_check(void)
{
    ucs_status_t status;
    int i;

    REQUIRE((here.attr.cap.flags & UCT_IFACE_FLAG_EP_CHECK) != 0);
    send_all(0, 10);
    for (i = 0; i < 100; ++i) {
        status = uct_ep_check(here.ep, 0, NULL);
        REQUIRE(status == UCS_OK || status == UCS_ERR_NO_RESOURCE);
        progress();
    }
    send_all(10, 10);
    WAIT_FOR(num_arrived == 20);
    REQUIRE(!here.failed);
}

/* A flush that cancels ends what is under way, once. */
static void case_cancel(void)
{
    registered_t registered = register_memory();
    static counted_t done[64];
    counted_t flushed = counted();
    ucs_status_t status;
    unsigned count, i;

    REQUIRE(!registered.failed);
    send_all(0, 1);
    WAIT_FOR(num_arrived == 1);
    for (count = 0; count < 64; ++count) {
        done[count] = counted();
        status      = put(source, BIG_BYTES, memory, registered.key.rkey, registered.source, &done[count]);
        if (status != UCS_INPROGRESS) {
            break;
        }
    }
    REQUIRE(count > 0);
    status = uct_ep_flush(here.ep, UCT_FLUSH_FLAG_CANCEL, &flushed.completion);
    REQUIRE(status == UCS_OK || status == UCS_INPROGRESS);
    WAIT_FOR(status == UCS_OK || flushed.calls == 1);
    for (i = 0; i < count; ++i) {
        WAIT_FOR(done[i].calls > 0);
        REQUIRE(done[i].calls == 1);
    }
    deregister_memory(&registered);
}

/* The other interface is closed with operations under way: they end, the handler is called, later ones are refused. */
static void case_peer_ends(void)
{
    registered_t registered = register_memory();
    static counted_t done[64];
    ucs_status_t status;
    unsigned count, i;
    uint64_t number;

    REQUIRE(!registered.failed);
    send_all(0, 1);
    WAIT_FOR(num_arrived == 1);
    for (count = 0; count < 64; ++count) {
        done[count] = counted();
        if (put(source, BIG_BYTES, memory, registered.key.rkey, registered.source, &done[count]) != UCS_INPROGRESS) {
            break;
        }
    }
    REQUIRE(count > 0);
    close_side(&there);
    WAIT_FOR(here.failed);
    for (i = 0; i < count; ++i) {
        WAIT_FOR(done[i].calls > 0);
        REQUIRE(done[i].calls == 1);
    }
    number = 1;
    status = uct_ep_am_short(here.ep, AM_ID, number, &number, sizeof(number));
    REQUIRE(status != UCS_OK && status != UCS_ERR_NO_RESOURCE);
    deregister_memory(&registered);
}

/* Memory that was taken back: the access is refused, the connection ends at both sides, nothing is touched. */
static void refused(int reads)
{
    registered_t registered = register_memory();
    uct_iov_t iov           = {.buffer = source, .length = 8, .memh = registered.source, .count = 1};
    counted_t done          = counted();
    ucs_status_t status;
    uct_md_attr_t attr;

    REQUIRE(!registered.failed && uct_md_query(md, &attr) == UCS_OK);
    if (!(attr.cap.flags & UCT_MD_FLAG_INVALIDATE)) { /* rails that reach memory by themselves */
        deregister_memory(&registered);
        return;
    }
    memory[0] = 1;
    WAIT_FOR((status = put_number(2, registered.key.rkey)) != UCS_ERR_NO_RESOURCE);
    REQUIRE(status == UCS_OK);
    WAIT_FOR(uct_iface_flush(here.iface, 0, NULL) == UCS_OK);
    REQUIRE(memory[0] == 2);
    REQUIRE(uct_md_mem_dereg(md, registered.memory) == UCS_OK);
    if (reads) {
        source[0] = 7;
        WAIT_FOR((status = uct_ep_get_zcopy(here.ep, &iov, 1, (uint64_t)(uintptr_t)memory, registered.key.rkey,
                                            &done.completion)) != UCS_ERR_NO_RESOURCE);
        REQUIRE(status == UCS_INPROGRESS);
        WAIT_FOR(done.calls == 1);
        REQUIRE(source[0] == 7);
    } else {
        WAIT_FOR((status = put_number(3, registered.key.rkey)) != UCS_ERR_NO_RESOURCE);
        REQUIRE(status == UCS_OK);
    }
    WAIT_FOR(here.failed);
    REQUIRE(memory[0] == 2);
    uct_rkey_release(component, &registered.key);
    uct_md_mem_dereg(md, registered.source);
}

static void case_refused_put(void)
{
    refused(0);
}

static void case_refused_get(void)
{
    refused(1);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"limits", case_limits},
             {"order", case_order},
             {"pending", case_pending},
             {"flush", case_flush},
             {"fence", case_fence},
             {"get", case_get},
             {"stranger", case_stranger},
             {"check", case_check},
             {"cancel", case_cancel},
             {"refused_put", case_refused_put},
             {"refused_get", case_refused_get},
             {"peer_ends", case_peer_ends}};

static int wanted(const char *name, int argc, char **argv)
{
    int i;

    for (i = 1; i < argc; ++i) {
        if (strcmp(argv[i], name) == 0) {
            return 1;
        }
    }
    return argc == 1;
}

int main(int argc, char **argv)
{
    int failed = 0;
    size_t i;

    if (ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async) != UCS_OK || open_md() != UCS_OK) {
        printf("FAIL: open: no transport mpath\n");
        return 1;
    }
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        if (!wanted(cases[i].name, argc, argv)) {
            continue;
        }
        why = NULL;
        open_both();
        if (why == NULL) {
            cases[i].run();
        }
        printf("%s: %s%s%s\n", why == NULL ? "PASS" : "FAIL", cases[i].name,
               why == NULL ? "" : ": not so: ", why == NULL ? "" : why);
        fflush(stdout);
        failed |= why != NULL;
        close_side(&here);
        close_side(&there);
    }
    uct_md_close(md);
    ucs_async_context_destroy(async);
    return failed;
}
