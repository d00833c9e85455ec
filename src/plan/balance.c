/* SPDX-License-Identifier: BSD-3-Clause */
/* Maximum flow between the NICs of a node, shortest paths first (Edmonds and Karp, J. ACM 19(2), 1972). */
#include "plan/balance.h"

#include <string.h>

void mpath_balance_init(mpath_balance_t *balance, int num_nics)
{
    int nic;

    balance->num_nics = num_nics;
    for (nic = 0; nic < num_nics; nic++) {
        memset(balance->left[nic], 0, (size_t)num_nics * sizeof(balance->left[nic][0]));
        memset(balance->flow[nic], 0, (size_t)num_nics * sizeof(balance->flow[nic][0]));
    }
}

int mpath_balance_is_tight(const mpath_balance_t *balance)
{
    uint64_t excess = 0, room = 0;
    int nic;

    for (nic = 0; nic < balance->num_nics; nic++) {
        excess += balance->excess[nic];
        room += balance->room[nic];
    }
    return excess > 0 && room / 2 < excess;
}

/* A shortest path of arcs from overloaded NICs to one with room; its end, -1: there is none. */
static int find_path(const mpath_balance_t *b, int *from)
{
    int queue[MPATH_MAX_NICS], head = 0, tail = 0, j, k;

    for (k = 0; k < b->num_nics; k++) {
        from[k] = -1;
        if (b->excess[k] > 0) {
            from[k]       = k;
            queue[tail++] = k;
        }
    }
    while (head < tail) {
        j = queue[head++];
        for (k = 0; k < b->num_nics; k++) {
            if (from[k] < 0 && b->left[j][k] > 0) {
                from[k] = j;
                if (b->room[k] > 0) {
                    return k;
                }
                queue[tail++] = k;
            }
        }
    }
    return -1;
}

/* Sends what the path carries. */
static void augment(mpath_balance_t *b, const int *from, int end)
{
    uint64_t bytes = b->room[end], back;
    int j, k;

    for (k = end; from[k] != k; k = from[k]) {
        bytes = b->left[from[k]][k] < bytes ? b->left[from[k]][k] : bytes;
    }
    bytes = b->excess[k] < bytes ? b->excess[k] : bytes;
    b->excess[k] -= bytes;
    b->room[end] -= bytes;
    for (k = end; from[k] != k; k = from[k]) {
        j    = from[k];
        back = b->flow[k][j] < bytes ? b->flow[k][j] : bytes;
        b->flow[k][j] -= back;
        b->flow[j][k] += bytes - back;
        b->left[j][k] -= bytes;
        b->left[k][j] += bytes;
    }
}

void mpath_balance_solve(mpath_balance_t *balance)
{
    int from[MPATH_MAX_NICS], end;

    for (end = find_path(balance, from); end >= 0; end = find_path(balance, from)) {
        augment(balance, from, end);
    }
}
