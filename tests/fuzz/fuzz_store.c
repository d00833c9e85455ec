/* SPDX-License-Identifier: BSD-3-Clause */
/* Fuzzes the reader of the file of what calls have shown: whatever it accepts is of a known kind and within its limits. */
#include "tune/history_file.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void no_log(mpath_log_level_t level, const char *line)
{
    (void)level;
    (void)line;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    mpath_log_set_sink(no_log);
    return 0;
}

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_line(void *argument, const mpath_history_line_t *line)
{
    (void)argument;
    check((line->key.size_class >= 0) && (line->key.operation[0] != '\0'));
    check(memchr(line->key.operation, 0, sizeof(line->key.operation)) != NULL);
    check(mpath_history_is_same(&line->key, &line->key));
    switch (line->key.kind) {
    case MPATH_HISTORY_RATES:
        check((line->num_rails > 0) && (line->num_rails <= MPATH_MAX_NICS));
        for (int rail = 0; rail < line->num_rails; rail++) {
            check((line->bps[rail] > 0) && (line->bps[rail] <= (uint64_t)MPATH_MAX_RATE_BPS));
        }
        break;
    case MPATH_HISTORY_NODE_RATES: {
        uint64_t most = 0;

        check((line->num_rails > 0) && (line->num_rails <= MPATH_MAX_NICS) && (line->key.node >= 0));
        for (int rail = 0; rail < line->num_rails; rail++) {
            most = (line->bps[rail] > most) ? line->bps[rail] : most;
        }
        check((most > 0) && (most <= (uint64_t)MPATH_MAX_RATE_BPS));
        break;
    }
    case MPATH_HISTORY_HOST_SHARE:
        check((line->num_rails == 0) && (line->value < 1000000));
        break;
    case MPATH_HISTORY_HELP:
        check((line->num_rails == 0) && (line->value <= 100));
        break;
    default:
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FILE *in = (size > 0) ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;

    if (in != NULL) {
        (void)mpath_history_parse(in, "input", check_line, NULL);
        fclose(in);
    }
    return 0;
}
