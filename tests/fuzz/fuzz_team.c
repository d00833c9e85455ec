/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes what a rank reads of others over the control plane: the records of set-up, and the messages of leaders in agreements. The
 * other ranks, on other nodes, are a mirror: it answers each message with the same one, as far as that makes sense, and the input
 * changes it. With FUZZ_CALLS set-up is left as it is, and only messages of agreements are changed; of two nodes, of three, one
 * of which has two ranks, or of seven, whose leaders agree in rounds.
 *
 * Input: changes of four bytes each: the number of the message, the place in it (16 bits), what is added to the byte there; 0: the
 * message ends there. No message has the number 255: with that the place says of which rank the pairs with this one have another
 * size, and the last byte which, in units of PAIR_BYTES. With FUZZ_CALLS a byte before the changes chooses the nodes.
 */
#include "team/agree.h"
#include "team/agree_private.h"
#include "team/team_private.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define CHANGE_BYTES 4
#define CHANGE_OF_CALL 255
#define MESSAGES_MOST 64 /* that wait */
#define PATIENCE 200     /* looks in vain before the mirror is taken for dead */
#define PAIR_BYTES 40
#define RANKS_MOST 7
#define SAID_BYTES 12 /* of an entry of mpath_team_gather_few() */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Who is where; this rank is the first one, alone on its node. */
typedef struct shape {
    int size, node_of[RANKS_MOST], num_on[RANKS_MOST];
} shape_t;

static const shape_t shapes[] = {{.size = 2, .node_of = {0, 1}, .num_on = {1, 1}},
                                 {.size = 4, .node_of = {0, 1, 1, 2}, .num_on = {1, 2, 2, 1}}, /* by rank */
                                 {.size = 7, .node_of = {0, 1, 2, 3, 4, 5, 6}, .num_on = {1, 1, 1, 1, 1, 1, 1}}};

typedef struct message {
    int from;
    size_t bytes;
    char *data;
} message_t;

typedef struct receive {
    int from;
    char *to;
    size_t capacity;
} receive_t;

typedef struct mirror {
    const shape_t *shape;
    const uint8_t *changes;
    size_t num_changes;
    unsigned count; /* of messages to change so far */
    int is_set_up, changes_all, patience;
    uint32_t call; /* whose sums have been cancelled */
    uint64_t pairs[RANKS_MOST];
    message_t sent[MESSAGES_MOST];
    int num_sent;
    receive_t receives[MESSAGES_MOST];
} mirror_t;

static message_t *mirror_add(mirror_t *mirror, int from, const void *data, size_t bytes)
{
    message_t *message = &mirror->sent[mirror->num_sent];

    if (mirror->num_sent == MESSAGES_MOST) {
        return NULL;
    }
    mirror->num_sent++;
    *message = (message_t){.from = from, .bytes = bytes, .data = malloc(bytes + 1)};
    memcpy(message->data, data, bytes);
    return message;
}

/* Another node: its records differ from this rank's in the key. */
static void mirror_set_up(const mirror_t *mirror, message_t *message)
{
    size_t count = message->bytes / sizeof(team_record_t), have = 1;
    team_record_t mine;

    if (count == 0 || count > RANKS_MOST || message->bytes % sizeof(team_record_t) != 0) {
        return;
    }
    while (have < count) { /* in each round of the gather there are as many already, or more */
        have *= 2;
    }
    memcpy(&mine, message->data, sizeof(mine));
    for (size_t i = 0; i < count && have + i < (size_t)mirror->shape->size; i++) {
        team_record_t record = mine;

        record.node_key ^= (uint64_t)mirror->shape->node_of[have + i];
        memcpy(message->data + i * sizeof(record), &record, sizeof(record));
    }
}

/* All that the first one sends is what the others expect. */
static void mirror_record(mirror_t *mirror, const mpath_message_t *head, message_t *message)
{
    char *body = message->data + sizeof(*head);
    mpath_agree_record_t record;

    for (size_t i = 0; i < 2 && message->bytes >= sizeof(*head) + (i + 1) * sizeof(record); i++) {
        if (i > 0 && mirror->shape->size <= MPATH_AGREE_DIRECT_NODES) {
            break; /* small data */
        }
        memcpy(&record, body + i * sizeof(record), sizeof(record));
        record.difference = mirror->call == head->call ? 0 : 0 - record.difference;
        mirror->call      = head->call;
        memcpy(body + i * sizeof(record), &record, sizeof(record));
    }
}

/* The other node has as many blocks as ranks. */
static void mirror_blocks(const mirror_t *mirror, mpath_message_t *head, message_t *message, int ranks)
{
    size_t front = sizeof(*head) + sizeof(mpath_agree_record_t), bytes = message->bytes - front;

    if (mirror->shape->size > MPATH_AGREE_DIRECT_NODES || message->bytes < front) {
        return;
    }
    message->data = realloc(message->data, front + (size_t)ranks * bytes + 1);
    for (int i = 1; i < ranks; i++) {
        memcpy(message->data + front + (size_t)i * bytes, message->data + front, bytes);
    }
    message->bytes = front + (size_t)ranks * bytes;
    head->bytes    = message->bytes;
    memcpy(message->data, head, sizeof(*head));
}

/* The second rank of a node sends its data by itself. */
static void mirror_add_own(mirror_t *mirror, const mpath_message_t *head, int rank)
{
    static const char data[256 * PAIR_BYTES];
    mpath_message_t own = *head;
    uint64_t bytes      = mirror->pairs[rank] <= head->limit_bytes ? mirror->pairs[rank] : 0;
    char out[sizeof(own) + sizeof(bytes) + sizeof(data)];

    own.type  = MPATH_MESSAGE_OWN;
    own.bytes = sizeof(own) + sizeof(bytes) + bytes;
    memcpy(out, &own, sizeof(own));
    memcpy(out + sizeof(own), &bytes, sizeof(bytes));
    memcpy(out + sizeof(own) + sizeof(bytes), data, (size_t)bytes);
    (void)mirror_add(mirror, rank, out, (size_t)own.bytes);
}

static int shape_nodes(const shape_t *shape)
{
    return shape->node_of[shape->size - 1] + 1;
}

/* What goes some nodes back comes from so many nodes ahead, whose leader says the same of itself and those behind it. */
static void mirror_said(const mirror_t *mirror, int to, message_t *message)
{
    size_t front = sizeof(mpath_message_t) + sizeof(((mpath_team_few_t *)NULL)->most);
    int nodes = shape_nodes(mirror->shape), from = nodes - mirror->shape->node_of[to];
    uint32_t node;

    message->from = 0;
    while (mirror->shape->node_of[message->from] != from) {
        message->from++;
    }
    for (size_t at = front; at + SAID_BYTES <= message->bytes; at += SAID_BYTES) {
        memcpy(&node, message->data + at, sizeof(node));
        node = (node + (uint32_t)from) % (uint32_t)nodes;
        memcpy(message->data + at, &node, sizeof(node));
    }
}

static mpath_status_t mirror_isend(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    mirror_t *mirror = context;
    int in_rounds = mirror->shape->size > MPATH_AGREE_DIRECT_NODES, ranks = mirror->shape->num_on[to];
    message_t *message = mirror_add(mirror, to, data, bytes);
    mpath_message_t head;

    request->handle = NULL;
    if (message == NULL) {
        return MPATH_ERR_UNREACHABLE;
    }
    if (!mirror->is_set_up) {
        mirror_set_up(mirror, message);
    } else if (bytes >= sizeof(head)) {
        memcpy(&head, data, sizeof(head));
        if (in_rounds && (head.type == MPATH_MESSAGE_RECORD || head.type == MPATH_MESSAGE_BLOCKS)) {
            message->from = mirror->shape->size - to; /* what goes some nodes back comes from so many nodes ahead */
        }
        if (head.type == MPATH_MESSAGE_RECORD) {
            mirror_record(mirror, &head, message);
            if (ranks > 1 && mirror->pairs[to + 1] > 0) {
                mirror_add_own(mirror, &head, to + 1);
            }
        } else if (head.type == MPATH_MESSAGE_BLOCKS) {
            mirror_blocks(mirror, &head, message, ranks);
        } else if (head.type == MPATH_MESSAGE_SAID) {
            mirror_said(mirror, to, message);
        }
    }
    return MPATH_OK;
}

static mpath_status_t mirror_irecv(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request)
{
    mirror_t *mirror = context;

    for (int i = 0; i < MESSAGES_MOST; i++) {
        if (mirror->receives[i].to == NULL) {
            mirror->receives[i] = (receive_t){.from = from, .to = data, .capacity = bytes};
            request->handle     = &mirror->receives[i];
            return MPATH_OK;
        }
    }
    return MPATH_ERR_UNREACHABLE;
}

static void mirror_change(mirror_t *mirror, message_t *message)
{
    for (size_t i = 0; i < mirror->num_changes && mirror->changes_all; i++) {
        const uint8_t *change = mirror->changes + i * CHANGE_BYTES;
        size_t at             = change[1] + 256u * change[2];

        if (change[0] != mirror->count % 256 || at >= message->bytes) {
            continue;
        }
        if (change[3] == 0) {
            message->bytes = at;
        } else {
            message->data[at] = (char)(message->data[at] + change[3]);
        }
    }
    mirror->count += mirror->changes_all != 0;
}

static mpath_status_t mirror_test(void *context, mpath_oob_request_t *request, size_t *bytes_p)
{
    mirror_t *mirror   = context;
    receive_t *receive = request->handle;
    mpath_status_t status;
    message_t taken, *message = &taken;
    int next = 0;

    if (receive == NULL) {
        return MPATH_OK;
    }
    while (next < mirror->num_sent && mirror->is_set_up && mirror->sent[next].from != receive->from) {
        next++;
    }
    if (next == mirror->num_sent) {
        return mirror->patience-- > 0 ? MPATH_INPROGRESS : MPATH_ERR_UNREACHABLE;
    }
    taken            = mirror->sent[next];
    mirror->patience = PATIENCE;
    mirror->num_sent--;
    memmove(&mirror->sent[next], &mirror->sent[next + 1], (size_t)(mirror->num_sent - next) * sizeof(taken));
    mirror_change(mirror, message);
    status = message->bytes > receive->capacity ? MPATH_ERR_TRUNCATED : MPATH_OK;
    if (status == MPATH_OK) {
        memcpy(receive->to, message->data, message->bytes);
        if (bytes_p != NULL) {
            *bytes_p = message->bytes;
        }
    }
    free(message->data);
    receive->to     = NULL;
    request->handle = NULL;
    return status;
}

static void mirror_cancel(void *context, mpath_oob_request_t *request)
{
    receive_t *receive = request->handle;

    (void)context;
    if (receive != NULL) {
        receive->to = NULL;
    }
    request->handle = NULL;
}

static void mirror_progress(void *context)
{
    (void)context;
}

static void drop_line(mpath_log_level_t level, const char *line)
{
    (void)level;
    (void)line;
}

static mpath_context_t *make_context(void)
{
    static mpath_context_t *context;
    mpath_machine_t machine = {.num_nics = 2, .num_numa = 1, .host_memory_bps = 8000000000u};
    mpath_settings_t settings;

    if (context != NULL) {
        return context;
    }
    mpath_log_set_sink(drop_line);
    mpath_settings_init(&settings);
    settings.memory_bytes = 1 << 20;
    settings.access       = MPATH_REACH_AFFINE; /* so that ranks have data of their own to send */
    strcpy(machine.host, "mirror");
    for (int nic = 0; nic < machine.num_nics; nic++) {
        machine.nics[nic] = (mpath_nic_t){.rate_bps = 1000000000, .numa = -1, .rail = (int16_t)nic, .up = 1};
        strcpy(machine.nics[nic].name, nic == 0 ? "nic0" : "nic1");
    }
    if (mpath_context_create_on(&settings, &machine, 0, &context) != MPATH_OK) {
        abort();
    }
    return context;
}

/* Every node has something to say; what is taken is of nodes that there are. */
static mpath_status_t say(mpath_team_t *team, const mirror_t *mirror)
{
    char entries[RANKS_MOST * SAID_BYTES] = {0};
    mpath_team_few_t said = {.most = {1, 2, 3}, .entry_bytes = SAID_BYTES, .num_entries = 1, .entries = entries};
    mpath_status_t status = mpath_team_gather_few(team, &said);
    uint32_t node;

    for (size_t i = 0; status == MPATH_OK && i < said.num_entries; i++) {
        memcpy(&node, entries + i * SAID_BYTES, sizeof(node));
        if (said.num_entries > (size_t)shape_nodes(mirror->shape) || node >= (uint32_t)shape_nodes(mirror->shape)) {
            abort();
        }
    }
    if (status == MPATH_OK && mirror->num_changes == 0 && said.num_entries != (size_t)shape_nodes(mirror->shape)) {
        abort();
    }
    return status;
}

/* All that an accepted message announces has come, and nothing beyond. */
static mpath_status_t make_calls(mpath_team_t *team, mirror_t *mirror)
{
    char send[RANKS_MOST][256 * PAIR_BYTES] = {{0}}, recv[RANKS_MOST][256 * PAIR_BYTES], all[RANKS_MOST][16],
                                mine[16]    = {0};
    uint64_t offsets[RANKS_MOST];
    mpath_call_t call     = {.operation    = 1,
                             .send_bytes   = mirror->pairs,
                             .send_offsets = offsets,
                             .send_buffer  = send,
                             .recv_bytes   = mirror->pairs,
                             .recv_offsets = offsets,
                             .recv_buffer  = recv};
    mpath_status_t status = MPATH_OK;
    mpath_agreed_t agreed;
    int marked;

    for (int rank = 0; rank < RANKS_MOST; rank++) {
        mirror->pairs[rank] = PAIR_BYTES;
        offsets[rank]       = (uint64_t)rank * sizeof(send[0]);
    }
    for (size_t i = 0; i < mirror->num_changes; i++) {
        const uint8_t *change = mirror->changes + i * CHANGE_BYTES;

        if (change[0] == CHANGE_OF_CALL) {
            mirror->pairs[change[1] % RANKS_MOST] = (uint64_t)change[3] * PAIR_BYTES;
        }
    }
    for (int round = 0; round < 3 && status == MPATH_OK; round++) {
        status = mpath_agree(team, &call, &agreed);
    }
    if (status == MPATH_OK) {
        status = mpath_team_allgather(team, mine, sizeof(mine), all);
    }
    if (status == MPATH_OK) {
        status = mpath_team_settle(team, 0, mine, sizeof(mine), all, &marked);
    }
    return status == MPATH_OK ? say(team, mirror) : status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mirror_t mirror          = {.shape = &shapes[0], .changes = data, .patience = PATIENCE};
    mpath_oob_t oob          = {.context  = &mirror,
                                .name     = "mirror",
                                .isend    = mirror_isend,
                                .irecv    = mirror_irecv,
                                .test     = mirror_test,
                                .cancel   = mirror_cancel,
                                .progress = mirror_progress};
    mpath_context_t *context = make_context();
    mpath_team_t *team;

#ifdef FUZZ_CALLS
    if (size == 0) {
        return 0;
    }
    mirror.shape   = &shapes[data[0] % (sizeof(shapes) / sizeof(shapes[0]))];
    mirror.changes = data + 1;
    size--;
#else
    mirror.changes_all = 1;
#endif
    mirror.num_changes = size / CHANGE_BYTES;
    oob.size           = mirror.shape->size;
    if (mpath_team_create(context, &oob, &team) == MPATH_OK) {
        mirror.is_set_up = mirror.changes_all = 1;
        if (make_calls(team, &mirror) != MPATH_OK && mirror.num_changes == 0) {
            abort(); /* the mirror is none */
        }
        mpath_team_destroy(team);
    }
#ifdef FUZZ_CALLS
    else {
        abort();
    }
#endif
    for (int i = 0; i < mirror.num_sent; i++) {
        free(mirror.sent[i].data);
    }
    return 0;
}
