/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rail a team uses. A NIC that has failed and is back gets a new rail, since connections of before cannot be
 * relied upon; the old one stays for the teams that have not come to that yet, and is closed when the last of them has
 * left it. So each team goes over in a call of its own, whatever the other teams of the process are at. The second one
 * to go over finds the rail that the first one has opened.
 */
#include "exec/fabric_private.h"

#include "util/log.h"

static int is_nic(const mpath_fabric_t *fabric, int nic)
{
    return (nic >= 0) && (nic < fabric->machine->num_nics);
}

/* Under one hold of the lock: a rail that nobody uses may be replaced and closed by another team at any time. */
int mpath_fabric_join(mpath_fabric_t *fabric, int nic, uint64_t id, mpath_fabric_arrive_t arrive, void *argument)
{
    mpath_status_t status;
    int number;

    if (!is_nic(fabric, nic)) {
        mpath_error("rail number %d is out of range: this node has %d NICs", nic, fabric->machine->num_nics);
        return (int)MPATH_ERR_PARAM;
    }
    pthread_mutex_lock(&fabric->lock);
    number = fabric->newest[nic];
    status = mpath_fabric_join_rail(fabric, number, id, arrive, argument);
    pthread_mutex_unlock(&fabric->lock);
    return (status == MPATH_OK) ? number : (int)status;
}

const char *mpath_fabric_rail_name(const mpath_fabric_t *fabric, int number)
{
    int nic = fabric->rails[number].nic;

    return is_nic(fabric, nic) ? fabric->machine->nics[nic].name : "?";
}

/* Under the fabric's lock. */
static int find_free(const mpath_fabric_t *fabric)
{
    for (int number = 0; number < MPATH_FABRIC_RAILS; number++) {
        if (fabric->rails[number].nic < 0) {
            return number;
        }
    }
    return -1;
}

static int is_fresh(const mpath_fabric_t *fabric, int number, int than)
{
    return (number != than) && !fabric->rails[number].suspect;
}

int mpath_fabric_can_renew(mpath_fabric_t *fabric, int number)
{
    int can;

    pthread_mutex_lock(&fabric->lock);
    can = is_fresh(fabric, fabric->newest[fabric->rails[number].nic], number) || (find_free(fabric) >= 0);
    pthread_mutex_unlock(&fabric->lock);
    return can;
}

void mpath_fabric_suspect(mpath_fabric_t *fabric, int number)
{
    atomic_store(&fabric->rails[number].suspect, 1);
}

/* Closes a rail that has been replaced and that nobody uses any more; under the fabric's lock. */
static void close_unused(mpath_fabric_t *fabric, int number)
{
    rail_t *rail = rail_lock(fabric, number);

    if ((rail->nic >= 0) && (fabric->newest[rail->nic] != number) && (rail->num_teams == 0)) {
        mpath_fabric_rail_close(rail);
        rail->nic     = -1;
        rail->suspect = 0;
    }
    rail_unlock(rail);
}

/* Another rail on the NIC, which new teams use from now on; under the fabric's lock. Its number, or negative status. */
static int open_another(mpath_fabric_t *fabric, int nic)
{
    int next = find_free(fabric), before = fabric->newest[nic];
    mpath_status_t status;
    rail_t *rail;

    if (next < 0) {
        return (int)MPATH_ERR_NO_MEMORY;
    }
    rail      = rail_lock(fabric, next);
    rail->nic = nic;
    status    = mpath_fabric_rail_open(fabric, rail);
    if (status == MPATH_OK) {
        fabric->newest[nic] = next;
        rail_unlock(rail);
        close_unused(fabric, before);
        return next;
    }
    mpath_fabric_rail_close(rail);
    rail->nic = -1;
    rail_unlock(rail);
    return (int)status;
}

void mpath_fabric_freshen(mpath_fabric_t *fabric, int nic)
{
    pthread_mutex_lock(&fabric->lock);
    if (is_nic(fabric, nic) && fabric->rails[fabric->newest[nic]].suspect) {
        (void)open_another(fabric, nic);
    }
    pthread_mutex_unlock(&fabric->lock);
}

mpath_status_t mpath_fabric_renew(mpath_fabric_t *fabric, int number, int *number_p)
{
    int nic, next;

    pthread_mutex_lock(&fabric->lock);
    nic  = fabric->rails[number].nic;
    next = fabric->newest[nic];
    if (!is_fresh(fabric, next, number)) {
        if (find_free(fabric) < 0) {
            mpath_error(
                "NIC %s: the communicators of this process still hold too many rails of before its failures; the "
                "previous functions serve the one that was to use it again",
                fabric->machine->nics[nic].name);
        }
        next = open_another(fabric, nic);
    }
    pthread_mutex_unlock(&fabric->lock);
    if (next < 0) {
        return (mpath_status_t)next;
    }
    *number_p = next;
    return MPATH_OK;
}

mpath_status_t mpath_fabric_join_rail(mpath_fabric_t *fabric, int number, uint64_t id, mpath_fabric_arrive_t arrive,
                                      void *argument)
{
    rail_team_t team      = {.id = id, .arrive = arrive, .argument = argument};
    rail_t *rail          = rail_lock(fabric, number);
    mpath_status_t status = mpath_fabric_rail_join(rail, &team);

    rail_unlock(rail);
    return status;
}

/* Under the fabric's lock. */
static void leave(mpath_fabric_t *fabric, int number, uint64_t id)
{
    rail_t *rail = rail_lock(fabric, number);

    mpath_fabric_rail_leave(rail, id);
    rail_unlock(rail);
    close_unused(fabric, number);
}

void mpath_fabric_leave_rail(mpath_fabric_t *fabric, int number, uint64_t id)
{
    pthread_mutex_lock(&fabric->lock);
    leave(fabric, number, id);
    pthread_mutex_unlock(&fabric->lock);
}

void mpath_fabric_leave(mpath_fabric_t *fabric, uint64_t id)
{
    pthread_mutex_lock(&fabric->lock);
    for (int number = 0; number < MPATH_FABRIC_RAILS; number++) {
        if (fabric->rails[number].nic >= 0) {
            leave(fabric, number, id);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
}
