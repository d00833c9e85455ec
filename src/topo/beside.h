/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is beside what in a machine, and what links to the host carry: the same rules for whoever describes one, by
 * discovery or from a file of NCCL or hwloc.
 */
#ifndef MPATH_TOPO_BESIDE_H
#define MPATH_TOPO_BESIDE_H

#include "topo/topo.h"

/* The generation of a PCIe link from "16.0 GT/s PCIe"; 0: the text does not tell, or is NULL. */
int mpath_pcie_generation(const char *link_speed);
/* What copies reach of a link, one direction. 0: unknown, taken for generation 4 and 16 lanes. */
uint64_t mpath_pcie_bps(int generation, int width);

/*
 * The NICs beside a GPU, a bit each: of those that are up the ones with most PCIe bridges in common with it, below one
 * root complex, else those of its NUMA node, else its part of all NICs, which its node's GPUs take in turns. `bridges`:
 * how many, by NIC; NULL: nothing tells. `numa` -1: not known; so is `gpu`, of `num_gpus`, and 0 may be the answer then.
 */
uint64_t mpath_beside_nics(const mpath_machine_t *machine, const int *bridges, int numa, int gpu, int num_gpus);

/*
 * The NICs of ranks. On a GPU: that of its place if it is beside the GPU, else one of the GPU's that are up, which ranks
 * whose GPUs have the same ones take in turns; that of its place where there is none. In host memory: that of its place,
 * without one those that are up, in turns. `gpus` NULL: there are none. MPATH_ERR_NO_MEMORY, logged.
 */
mpath_status_t mpath_beside_deal(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus, int num_nodes,
                                 mpath_place_t *places, int num_ranks);

/* The slot that a NIC is in. Ports of one card share it. */
#define MPATH_CARD_NAME_MAX 32
typedef struct mpath_slot {
    char card[MPATH_CARD_NAME_MAX]; /* its PCI address without the function; "": nothing tells */
    uint64_t bps;                   /* one direction; 0: nothing tells */
} mpath_slot_t;

/* "0000:42:00.1" is on card "0000:42:00". */
void mpath_slot_card(const char *pci, char card[MPATH_CARD_NAME_MAX]);

/*
 * Lowers the rates of NICs to what their slots carry: ports of a card that are up get no more than their slot together,
 * each its part. A slot that is told to be far below a NIC is that of a virtual machine, and is not believed. `slots`:
 * by NIC.
 */
void mpath_slots_limit(mpath_machine_t *machine, const mpath_slot_t *slots);

#endif
