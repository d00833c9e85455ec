/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reserved memory: zeroed, of which a page is taken when it is first written to. For tables by rank or node of which most
 * jobs use little: nothing has to be allocated later, when it would be too late to fail.
 */
#ifndef MPATH_UTIL_RESERVE_H
#define MPATH_UTIL_RESERVE_H

#include <stddef.h>

/* Less than this is allocated whole: a page is not worth a mapping of its own. */
#define MPATH_RESERVE_LEAST_BYTES 8192

/* NULL: there is none. 0 bytes give a place, too. */
void *mpath_reserve(size_t bytes);
/* Of what was reserved: zeroed again, and its pages given back. */
void mpath_reserve_clear(void *memory, size_t bytes);
/* `bytes` in whole pages: what of reserved memory can be cleared by itself begins at a page, and ends with one. */
size_t mpath_reserve_pages(size_t bytes);
/* As many bytes as were reserved; NULL is nothing. */
void mpath_unreserve(void *memory, size_t bytes);

#endif
