/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys of registered memory: those of the memory domains behind all rails in one,
 *
 *     region (64 bits, for accesses by messages), rails that follow (16 bits), for each in order: length (8 bits), key
 *
 * as many as fit into what UCP can carry. A rail without a key does its puts and gets by messages.
 */
#include "ucx_tl_mpath/md.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES (sizeof(uint64_t) + sizeof(uint16_t))
#define MAX_PACKED_BYTES 240 /* UCP keeps the length in a byte */

/* Keys are unpacked without a memory domain, so the process remembers what its rails are made of. */
static uct_component_h rail_components[UCT_MPATH_MAX_RAILS];

void uct_mpath_rkey_init(uct_mpath_md_t *md)
{
    size_t bytes = HEAD_BYTES;
    const uct_mpath_child_md_t *child;
    uct_mpath_rail_t *rail;
    unsigned i;

    for (i = 0; i < md->num_rails; ++i) {
        rail = &md->rails[i];
        if (rail->rma_transport[0] == '\0') {
            continue;
        }
        child                         = &md->children[rail->rma_child];
        rail_components[rail->number] = child->component;
        if (child->rkey_bytes == 0 || child->rkey_bytes > UINT8_MAX ||
            bytes + 1 + child->rkey_bytes > MAX_PACKED_BYTES) {
            continue;
        }
        rail->has_rkey = 1;
        bytes += 1 + child->rkey_bytes;
    }
    md->rkey_bytes = bytes;
}

ucs_status_t uct_mpath_rkey_pack(const uct_mpath_md_t *md, uct_mem_h memh, void *buffer)
{
    const uct_mpath_memh_t *own = memh;
    uint8_t *to                 = (uint8_t *)buffer + HEAD_BYTES;
    uint16_t rails              = 0;
    const uct_mpath_rail_t *rail;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < md->num_rails; ++i) {
        rail = &md->rails[i];
        if (!rail->has_rkey) {
            continue;
        }
        status = uct_md_mkey_pack(md->children[rail->rma_child].md, uct_mpath_child_memh(memh, rail->rma_child),
                                  to + 1);
        if (status != UCS_OK) {
            return status;
        }
        rails |= (uint16_t)(1u << rail->number);
        *to = (uint8_t)md->children[rail->rma_child].rkey_bytes;
        to += 1 + *to;
    }
    memcpy(buffer, &own->region, sizeof(own->region));
    memcpy((uint8_t *)buffer + sizeof(own->region), &rails, sizeof(rails));
    return UCS_OK;
}

static void release(uct_mpath_rkey_t *rkey)
{
    uint64_t rest;
    int number;

    for (rest = rkey->rails; rest != 0; rest &= rest - 1) {
        number = __builtin_ctzll(rest);
        uct_rkey_release(rkey->component[number], &rkey->child[number]);
    }
    free(rkey);
}

ucs_status_t uct_mpath_rkey_unpack(const void *buffer, uct_rkey_t *rkey_p, void **handle_p)
{
    const uint8_t *from = (const uint8_t *)buffer + HEAD_BYTES;
    uct_mpath_rkey_t *rkey;
    ucs_status_t status;
    uint16_t rails;
    int number;

    *rkey_p   = 0;
    *handle_p = NULL;
    rkey      = calloc(1, sizeof(*rkey));
    if (rkey == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    memcpy(&rkey->region, buffer, sizeof(rkey->region));
    memcpy(&rails, (const uint8_t *)buffer + sizeof(rkey->region), sizeof(rails));
    for (; rails != 0; rails &= (uint16_t)(rails - 1), from += 1 + *from) {
        number = __builtin_ctz(rails);
        if (rail_components[number] == NULL) {
            continue; /* the peer has a rail that is not here */
        }
        status = uct_rkey_unpack(rail_components[number], from + 1, &rkey->child[number]);
        if (status != UCS_OK) {
            release(rkey);
            return status;
        }
        rkey->component[number] = rail_components[number];
        rkey->rails |= UCS_BIT(number);
    }
    *rkey_p   = (uct_rkey_t)rkey;
    *handle_p = rkey;
    return UCS_OK;
}

void uct_mpath_rkey_release(void *handle)
{
    if (handle != NULL) {
        release(handle);
    }
}
