/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of collectives, kinds of memory, phases and algorithms, and strings as JSON writes them. */
#include "record/names.h"

#include "record/page.h"

#include <string.h>

static const char *const collective_names[MPATH_RECORD_COLLECTIVES] = {"none", "alltoallv", "allreduce",
                                                                       "reduce_scatter", "allgather"};
static const char *const memory_names[MPATH_RECORD_MEMORIES]        = {"host", "device"};
static const char *const phase_names[MPATH_RECORD_PHASES]           = {"idle", "setup",  "agree",   "plan",
                                                                       "move", "settle", "previous"};
static const char *const algorithm_names[MPATH_RECORD_ALGORITHMS] = {"other", "inline", "planned", "direct", "pipeline",
                                                                     "pairs", "eager",  "node",    "copied"};

const char *mpath_record_collective_name(unsigned collective)
{
    return collective_names[collective < MPATH_RECORD_COLLECTIVES ? collective : 0];
}

const char *mpath_record_memory_name(unsigned memory)
{
    return memory_names[memory < MPATH_RECORD_MEMORIES ? memory : 0];
}

const char *mpath_record_phase_name(unsigned phase)
{
    return phase_names[phase < MPATH_RECORD_PHASES ? phase : 0];
}

const char *mpath_record_algorithm_name(unsigned algorithm)
{
    return algorithm_names[algorithm < MPATH_RECORD_ALGORITHMS ? algorithm : 0];
}

mpath_record_algorithm_t mpath_record_algorithm_find(const char *name)
{
    unsigned algorithm = MPATH_RECORD_ALGORITHMS - 1;

    while (algorithm > MPATH_RECORD_OTHER && strcmp(algorithm_names[algorithm], name) != 0) {
        algorithm--;
    }
    return (mpath_record_algorithm_t)algorithm;
}

void mpath_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < 0x20 || c > 0x7e) {
            fprintf(out, "\\u%04x", c); /* names of hosts and communicators are bytes of who knows what encoding */
        } else {
            fputc(c, out);
        }
    }
    fputc('"', out);
}
