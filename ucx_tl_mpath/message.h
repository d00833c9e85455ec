/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a message of another process must be before anything in it is used: long enough for what it announces, and its
 * numbers within the tables that they index. Who reads a message that has passed need not look at its length again. No
 * UCX in here.
 */
#ifndef UCX_TL_MPATH_MESSAGE_H
#define UCX_TL_MPATH_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Nonzero when `data` is a whole message of this id (UCT_MPATH_ID_..., wire.h). segment_bytes: of the largest packet with
 * its headers; what a get asks for has to fit into one. Messages inside of relay heads are looked at by themselves.
 */
int mpath_message_is_whole(uint8_t id, const void *data, size_t length, size_t segment_bytes);

#endif
