/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/beside.h"

#include "util/log.h"
#include "util/number.h"

#include <stdlib.h>
#include <string.h>

/* What copies reached of PCIe 5 with 16 lanes on one host with 8 H200: 55 GB/s of 63. */
#define PCIE_PER_MILLE 873
#define UNKNOWN_PCIE_GENERATION 4
#define UNKNOWN_PCIE_WIDTH 16
/* A slot that is told to carry less than this part of a NIC's rate is one that a virtual machine has made up. */
#define SLOT_DOUBTED_BELOW 8

/* --- links to the host ------------------------------------------------------------------------------------------- */

int mpath_pcie_generation(const char *link_speed)
{
    static const int64_t speeds[] = {0, 2500, 5000, 8000, 16000, 32000, 64000, 128000};
    int64_t milli;

    if ((link_speed == NULL) || (mpath_number_parse_milli(link_speed, &milli) != MPATH_OK)) {
        return 0;
    }
    for (int generation = 1; generation < (int)(sizeof(speeds) / sizeof(speeds[0])); generation++) {
        if (speeds[generation] == milli) {
            return generation;
        }
    }
    return 0;
}

uint64_t mpath_pcie_bps(int generation, int width)
{
    /* one lane in each direction, after its line code */
    static const unsigned lane_mbps[] = {0, 250, 500, 985, 1969, 3938, 7563, 15125};
    int known                         = (int)(sizeof(lane_mbps) / sizeof(lane_mbps[0])) - 1;

    generation = (generation > 0) ? generation : UNKNOWN_PCIE_GENERATION;
    generation = (generation > known) ? known : generation;
    width      = (width > 0) ? width : UNKNOWN_PCIE_WIDTH;
    return lane_mbps[generation] * UINT64_C(1000000) * (uint64_t)width * PCIE_PER_MILLE / 1000;
}

/* --- NICs of a GPU, and of a rank on it -------------------------------------------------------------------------- */

static uint64_t nics_by_bridges(const mpath_machine_t *machine, const int *bridges)
{
    uint64_t nics = 0;
    int most      = 1;

    for (int nic = 0; (bridges != NULL) && (nic < machine->num_nics); nic++) {
        if (machine->nics[nic].up && (bridges[nic] >= most)) {
            nics = (bridges[nic] > most) ? 0 : nics;
            most = bridges[nic];
            nics |= 1ull << nic;
        }
    }
    return nics;
}

static uint64_t nics_by_numa(const mpath_machine_t *machine, int numa)
{
    uint64_t nics = 0;

    for (int nic = 0; (numa >= 0) && (nic < machine->num_nics); nic++) {
        nics |= (machine->nics[nic].up && (machine->nics[nic].numa == numa)) ? 1ull << nic : 0;
    }
    return nics;
}

/* GPUs and NICs in turns, whichever are more. */
static uint64_t nics_by_number(const mpath_machine_t *machine, int gpu, int num_gpus)
{
    uint64_t nics = 0;

    if ((gpu < 0) || (machine->num_nics == 0)) {
        return 0;
    }
    for (int nic = gpu % machine->num_nics; nic < machine->num_nics; nic += num_gpus) {
        nics |= 1ull << nic;
    }
    return nics;
}

uint64_t mpath_beside_nics(const mpath_machine_t *machine, const int *bridges, int numa, int gpu, int num_gpus)
{
    uint64_t nics = nics_by_bridges(machine, bridges);

    nics = (nics != 0) ? nics : nics_by_numa(machine, numa);
    return (nics != 0) ? nics : nics_by_number(machine, gpu, num_gpus);
}

static uint64_t nics_up(const mpath_machine_t *machine)
{
    uint64_t up = 0;

    for (int nic = 0; nic < machine->num_nics; nic++) {
        up |= machine->nics[nic].up ? 1ull << nic : 0;
    }
    return up;
}

/* Ranks seen so far on a node. */
typedef struct seen {
    int all, on_gpu[MPATH_MAX_GPUS];
} seen_t;

static int32_t take_turn(uint64_t nics, int turn)
{
    for (turn %= __builtin_popcountll(nics); turn > 0; turn--) {
        nics &= nics - 1;
    }
    return __builtin_ctzll(nics);
}

static int32_t deal_on_host(const mpath_machine_t *machine, int turn, int32_t placed)
{
    uint64_t nics = nics_up(machine);

    return ((placed >= 0) || (nics == 0)) ? placed : take_turn(nics, turn);
}

static int32_t deal_on_gpu(const mpath_machine_t *machine, const mpath_node_gpus_t *gpus, const seen_t *seen,
                           const mpath_place_t *place)
{
    uint64_t up = nics_up(machine), nics = gpus->gpus[place->gpu].nics & up;
    int turn = 0;

    if ((nics == 0) || ((place->nic >= 0) && ((nics >> place->nic) & 1))) {
        return place->nic;
    }
    for (int gpu = 0; gpu < gpus->num_gpus; gpu++) {
        turn += ((gpus->gpus[gpu].nics & up) == nics) ? seen->on_gpu[gpu] : 0;
    }
    return take_turn(nics, turn);
}

mpath_status_t mpath_beside_deal(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus, int num_nodes,
                                 mpath_place_t *places, int num_ranks)
{
    seen_t *all = calloc((size_t)num_nodes, sizeof(*all)), *seen;
    mpath_place_t *place;

    if (all == NULL) {
        mpath_error("topology: no memory to deal out the NICs of %d nodes", num_nodes);
        return MPATH_ERR_NO_MEMORY;
    }
    for (place = places; place < places + num_ranks; place++) {
        seen = &all[place->node];
        if ((gpus != NULL) && (place->gpu >= 0) && (place->gpu < gpus[place->node].num_gpus)) {
            place->nic = deal_on_gpu(&machines[place->node], &gpus[place->node], seen, place);
            seen->on_gpu[place->gpu]++;
        } else {
            place->nic = deal_on_host(&machines[place->node], seen->all, place->nic);
        }
        seen->all++;
    }
    free(all);
    return MPATH_OK;
}

/* --- slots ------------------------------------------------------------------------------------------------------- */

void mpath_slot_card(const char *pci, char card[MPATH_CARD_NAME_MAX])
{
    const char *function = strrchr(pci, '.');
    size_t length        = (function != NULL) ? (size_t)(function - pci) : strlen(pci);

    memset(card, 0, MPATH_CARD_NAME_MAX);
    if (length < MPATH_CARD_NAME_MAX) {
        memcpy(card, pci, length);
    }
}

__extension__ typedef unsigned __int128 wide_t;

static int is_slot_of(const mpath_slot_t *slot, const mpath_slot_t *other)
{
    return (slot == other) || ((slot->card[0] != '\0') && (strcmp(slot->card, other->card) == 0));
}

/* What a NIC and those that are up beside it in its slot would take of it. One that is down waits for a better time. */
static uint64_t slot_wanted(const mpath_machine_t *machine, const mpath_slot_t *slots, const uint64_t *rates, int nic)
{
    uint64_t wanted = machine->nics[nic].up ? 0 : rates[nic];

    for (int other = 0; machine->nics[nic].up && (other < machine->num_nics); other++) {
        if (machine->nics[other].up && is_slot_of(&slots[nic], &slots[other])) {
            wanted += rates[other];
        }
    }
    return wanted;
}

void mpath_slots_limit(mpath_machine_t *machine, const mpath_slot_t *slots)
{
    uint64_t rates[MPATH_MAX_NICS], wanted, rate;

    for (int nic = 0; nic < machine->num_nics; nic++) {
        rates[nic] = machine->nics[nic].rate_bps;
    }
    for (int nic = 0; nic < machine->num_nics; nic++) {
        if ((slots[nic].bps == 0) || (slots[nic].bps < rates[nic] / SLOT_DOUBTED_BELOW)) {
            continue;
        }
        wanted = slot_wanted(machine, slots, rates, nic);
        if (wanted > slots[nic].bps) {
            rate                        = (uint64_t)((wide_t)rates[nic] * slots[nic].bps / wanted);
            machine->nics[nic].rate_bps = (rate > 0) ? rate : 1;
        }
    }
}
