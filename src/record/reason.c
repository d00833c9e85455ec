/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of reasons. */
#include "record/reason.h"

#include <string.h>

enum {
    KEY_PARAMETER,
    KEY_FASTER_BEFORE,
    KEY_PREDICTED,
    KEY_ONE_RAIL,
    KEY_ONE_NODE,
    KEY_SHORT,
    KEY_NOT_CARRIED,
    KEY_NO_PATH,
    KEY_SETUP,
    KEY_OTHER
};

static const struct {
    const char *name, *text;
} keys[MPATH_REASON_KEYS] = {
    [KEY_PARAMETER]     = {"parameter", "a parameter leaves them to it, or forces what cannot carry them"},
    [KEY_FASTER_BEFORE] = {"faster_before", "calls before have shown that it is faster, or that is being tried"},
    [KEY_PREDICTED]     = {"predicted", "mpath is predicted to be no faster"},
    [KEY_ONE_RAIL]      = {"one_rail", "there is one rail, or one that counts"},
    [KEY_ONE_NODE]      = {"one_node", "all data stays inside nodes"},
    [KEY_SHORT]         = {"short", "they are short"},
    [KEY_NOT_CARRIED]   = {"not_carried", "mpath does not carry such data or such an operation"},
    [KEY_NO_PATH]       = {"no_path", "not all ranks reach each other over the rails"},
    [KEY_SETUP]         = {"setup", "mpath could not be set up, or its rails or its memory"},
    [KEY_OTHER]         = {"other", "another reason"},
};

static const struct {
    const char *text;
    int key;
} reasons[MPATH_REASONS] = {
    {MPATH_WHY_PARAMETER, KEY_PARAMETER},
    {MPATH_WHY_NOT_SHORT, KEY_PARAMETER},
    {MPATH_WHY_VECTOR_NOT_SHORT, KEY_PARAMETER},
    {MPATH_WHY_NOT_ALL_SHORT, KEY_PARAMETER},
    {MPATH_WHY_FASTER, KEY_FASTER_BEFORE},
    {MPATH_WHY_FASTER_BY_HOST, KEY_FASTER_BEFORE},
    {MPATH_WHY_TURNS, KEY_FASTER_BEFORE},
    {MPATH_WHY_CALLS_BEFORE, KEY_SHORT},
    {MPATH_WHY_PREDICTED, KEY_PREDICTED},
    {MPATH_WHY_SAME_ROUTES, KEY_PREDICTED},
    {MPATH_WHY_ONE_RAIL_ROUTES, KEY_ONE_RAIL},
    {MPATH_WHY_ONE_RAIL, KEY_ONE_RAIL},
    {MPATH_WHY_SLOW_RAILS, KEY_ONE_RAIL},
    {MPATH_WHY_INSIDE_NODES, KEY_ONE_NODE},
    {MPATH_WHY_ONE_NODE, KEY_ONE_NODE},
    {MPATH_WHY_NODE_OF_GPUS, KEY_ONE_NODE},
    {MPATH_WHY_LESS, KEY_SHORT},
    {MPATH_WHY_NOT_CARRIED, KEY_NOT_CARRIED},
    {MPATH_WHY_NOT_SHARED, KEY_NOT_CARRIED},
    {MPATH_WHY_NOT_RELAYED, KEY_NOT_CARRIED},
    {MPATH_WHY_COPIES_TOO, KEY_PREDICTED},
    {MPATH_WHY_NO_COPIES, KEY_SETUP},
    {MPATH_WHY_OPERATION, KEY_NOT_CARRIED},
    {MPATH_WHY_NO_DEVICE_MEMORY, KEY_NOT_CARRIED},
    {MPATH_WHY_NO_PATH, KEY_NO_PATH},
    {MPATH_WHY_NO_GPU_PATH, KEY_NO_PATH},
    {MPATH_WHY_TOPOLOGY, KEY_NO_PATH},
    {MPATH_WHY_NO_RAIL, KEY_NO_PATH},
    {MPATH_WHY_EMPTY_NODE, KEY_NO_PATH},
    {MPATH_WHY_RAILS_CLOSED, KEY_SETUP},
    {MPATH_WHY_NO_SETUP, KEY_SETUP},
    {MPATH_WHY_IN_USE, KEY_SETUP},
    {MPATH_WHY_NO_RELAYS, KEY_SETUP},
    {MPATH_WHY_NO_SLOTS, KEY_SETUP},
    {MPATH_WHY_STAYS_OUT, KEY_SETUP},
    {MPATH_WHY_PARAMETERS_DIFFER, KEY_SETUP},
    {"another reason", KEY_OTHER},
};

int mpath_reason_find(const char *text)
{
    int reason = 0;

    while (reason < MPATH_REASONS - 1 && (text == NULL || strcmp(reasons[reason].text, text) != 0)) {
        reason++;
    }
    return reason;
}

const char *mpath_reason_text(int reason)
{
    return reasons[reason].text;
}

int mpath_reason_key_of(int reason)
{
    return reasons[reason].key;
}

const char *mpath_reason_key(int reason)
{
    return keys[reasons[reason].key].name;
}

const char *mpath_reason_key_name(int key)
{
    return keys[key].name;
}

const char *mpath_reason_key_text(int key)
{
    return keys[key].text;
}
