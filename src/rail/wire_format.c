/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading what other processes have sent to a rail. */
#include "rail/wire_format.h"

#include <string.h>

#define RAIL_ADDRESS_MAGIC 0x6d705242u /* changes with the structures of the header */

void rail_address_write(uint64_t uid, uint32_t worker_bytes, rail_address_t *head)
{
    *head = (rail_address_t){.magic = RAIL_ADDRESS_MAGIC, .worker_bytes = worker_bytes, .uid = uid};
}

mpath_status_t rail_address_read(const void *address, size_t bytes, rail_address_t *head)
{
    if (bytes < sizeof(*head)) {
        return MPATH_ERR_PARAM;
    }
    memcpy(head, address, sizeof(*head));
    return ((head->magic == RAIL_ADDRESS_MAGIC) && (head->worker_bytes > 0) &&
            (head->worker_bytes <= bytes - sizeof(*head)))
               ? MPATH_OK
               : MPATH_ERR_PARAM;
}

rail_wire_verdict_t rail_wire_read(uint64_t uid, const void *header, size_t header_bytes, size_t bytes,
                                   rail_wire_t *wire)
{
    uint64_t receiver = 0;

    if (header_bytes >= sizeof(receiver)) {
        memcpy(&receiver, header, sizeof(receiver));
    }
    if ((receiver != uid) || (uid == 0)) {
        return RAIL_WIRE_STRANGER;
    }
    if (header_bytes != sizeof(*wire)) {
        return RAIL_WIRE_BROKEN;
    }
    memcpy(wire, header, sizeof(*wire));
    return (wire->chunk.bytes == bytes) ? RAIL_WIRE_CHUNK : RAIL_WIRE_BROKEN;
}
