/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates of NICs as the user states them: "25m", "rail0=25m,rail1=6250k", "25m,rail1=6250k". */
#include "topo/discover/machine.h"
#include "util/log.h"
#include "util/number.h"

#include <string.h>

#define RATE_HELP "a rate in bytes/s (suffixes k, m, g: powers of 1000)"

static int name_matches(const mpath_nic_t *nic, const char *name, size_t length)
{
    return (strlen(nic->name) == length) && (memcmp(nic->name, name, length) == 0);
}

/* One entry; named ones win over a value for all, whatever their order, so there are two passes. */
static void rates_apply_entry(const char *entry, size_t length, int named_pass, mpath_machine_t *machine)
{
    const char *equals = memchr(entry, '=', length);
    const char *text   = (equals != NULL) ? equals + 1 : entry;
    size_t name_length = (equals != NULL) ? (size_t)(equals - entry) : 0;
    int64_t rate_bps;
    int i, found = 0;

    if ((equals != NULL) != named_pass) {
        return;
    }
    if (mpath_number_parse(text, length - (size_t)(text - entry), MPATH_NUMBER_RATE, 1, MPATH_MAX_RATE_BPS,
                           &rate_bps) != MPATH_OK) {
        mpath_warn("parameter rail_rates: '%.*s' is not " RATE_HELP "; ignored", (int)length, entry);
        return;
    }
    for (i = 0; i < machine->num_nics; i++) {
        if (!named_pass || name_matches(&machine->nics[i], entry, name_length)) {
            machine->nics[i].rate_bps = (uint64_t)rate_bps;
            found                     = 1;
        }
    }
    if (named_pass && !found) {
        mpath_warn("parameter rail_rates: no NIC '%.*s' in use on %s; ignored", (int)name_length, entry, machine->host);
    }
}

void mpath_machine_apply_rates(const char *rail_rates, mpath_machine_t *machine)
{
    const char *entry;
    size_t length;
    int named_pass;

    if ((rail_rates == NULL) || (rail_rates[0] == '\0')) {
        return;
    }
    for (named_pass = 0; named_pass <= 1; named_pass++) {
        for (entry = rail_rates;; entry += length + 1) {
            length = strcspn(entry, ",");
            rates_apply_entry(entry, length, named_pass, machine);
            if (entry[length] == '\0') {
                break;
            }
        }
    }
}
