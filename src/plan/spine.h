/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Spine: how the bytes from one node to another one are divided where a route may go from one rail to another, over the spine that
 * joins rails. Each NIC of the sender has a part to send and each of the receiver a part to receive; both sum up to the
 * bytes. Three kinds of routes bring that about:
 *
 *   static     rail i to rail j, of the pairs whose ranks sit beside these; nobody else has this one where both nodes have both rails
 *   matched    rail r to rail r, where both nodes have it
 *   crossing   rail r to rail s, where a node lacks one of them; any pair has these
 *
 * Bytes stay on their static routes as far as the parts at both ends allow. What stays on crossing ones between rails that both nodes
 * have is a circulation over these rails: then a rail has as much left to send as to receive, which matched routes take. As many bytes
 * as that needs, and no more, leave the routes that end where too little is left to receive, along the shortest chains of such routes. What moves takes
 * the rail of its source or of its destination where these have something left, at the cost of one relay, and others then.
 *
 * Integers only, the same on both nodes. The spine itself is no resource: where it is scarce, a topology says so of all NICs of a node
 * together (its uplink), and which of them a route takes does not matter.
 */
#ifndef MPATH_PLAN_SPINE_H
#define MPATH_PLAN_SPINE_H

#include "plan/block.h"

#define MPATH_SPINE_ARCS 3 /* at most on the line, for each rail */

/* out, in and the bytes of all cells are there. */
void mpath_spine_divide(mpath_block_t *block);

#endif
