/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes what rails read of messages and addresses of other processes: nothing behind the end is read, and what is
 * accepted is of the job, whole and consistent.
 */
#include "rail/wire_format.h"

#include <stdlib.h>
#include <string.h>

#define UID 0x6d70617468756964ull

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

/* The first byte: how many bytes of data came along; half of the inputs name the right receiver. */
static void try_header(const uint8_t *data, size_t size)
{
    size_t bytes = data[0], header_bytes = size - 1;
    uint8_t *header = malloc(header_bytes + 1);
    uint64_t uid    = UID;
    rail_wire_t wire;

    check(header != NULL);
    memcpy(header, data + 1, header_bytes);
    if ((data[0] & 1) && (header_bytes >= sizeof(uid))) {
        memcpy(header, &uid, sizeof(uid));
    }
    header = realloc(header, (header_bytes > 0) ? header_bytes : 1); /* so that reading further shows */
    check(header != NULL);
    switch (rail_wire_read(UID, header, header_bytes, bytes, &wire)) {
    case RAIL_WIRE_CHUNK:
        check((header_bytes == sizeof(wire)) && (wire.receiver == UID) && (wire.chunk.bytes == bytes));
        break;
    case RAIL_WIRE_STRANGER:
        check((header_bytes < sizeof(uid)) || (memcmp(header, &uid, sizeof(uid)) != 0));
        break;
    case RAIL_WIRE_BROKEN:
        check((header_bytes >= sizeof(uid)) && (memcmp(header, &uid, sizeof(uid)) == 0));
        break;
    default:
        abort();
    }
    free(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rail_address_t head;

    if (rail_address_read(data, size, &head) == MPATH_OK) {
        check((head.worker_bytes > 0) && (sizeof(head) + head.worker_bytes <= size));
    }
    if (size > 0) {
        try_header(data, size);
    }
    return 0;
}
