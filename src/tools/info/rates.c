/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info: prints a file of what calls have shown. */
#include "tools/info/rates.h"

#include "tune/trial.h"
#include "tune/nic_rates.h"
#include "tune/history_file.h"
#include "tune/start.h"
#include "util/log.h"
#include "util/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const class_names[] = {"below 4 MiB", "below 64 MiB", "64 MiB and more"};
#define NUM_CLASSES ((int)(sizeof(class_names) / sizeof(class_names[0])))

/* What others have learned is of all sizes. */
static int has_classes(const char *operation)
{
    return (strcmp(operation, "allreduce") == 0) || (strcmp(operation, "reduce_scatter") == 0) ||
           (strcmp(operation, "allgather") == 0);
}

static void show_size(const mpath_history_line_t *line)
{
    if ((line->key.kind == MPATH_HISTORY_HOST_SHARE) && (line->key.size_class < 63)) {
        uint64_t bytes = UINT64_C(1) << line->key.size_class, kib = bytes >> 10, mib = kib >> 10;

        printf(", from %" PRIu64 " %s on",
               (mib > 0)   ? mib
               : (kib > 0) ? kib
                           : bytes,
               (mib > 0)   ? "MiB"
               : (kib > 0) ? "KiB"
                           : "bytes");
    } else if ((line->key.kind == MPATH_HISTORY_HELP) && (line->key.size_class < MPATH_TRIAL_KINDS)) {
        printf(", calls of about %.3g ms, of kind %d", (double)mpath_trial_kind_ns(line->key.size_class) / 1e6,
               line->key.size_class);
    } else if ((line->key.kind == MPATH_HISTORY_RATES) && (line->key.size_class < NUM_CLASSES) &&
               has_classes(line->key.operation)) {
        printf(", %s", class_names[line->key.size_class]);
    } else if (line->key.size_class != 0) {
        printf(", size class %d", line->key.size_class);
    }
}

static void show_rails(const mpath_history_line_t *line)
{
    mpath_nic_set_t worth = mpath_rates_worth(line->num_rails, line->bps);
    double sum            = 0;
    char text[MPATH_NUMBER_SHOWN];

    for (int rail = 0; rail < line->num_rails; rail++) {
        sum += ((worth >> rail) & 1) ? (double)line->bps[rail] : 0;
    }
    for (int rail = 0; rail < line->num_rails; rail++) {
        if (line->bps[rail] == 0) {
            continue; /* the node has no NIC there */
        }
        mpath_number_show((double)line->bps[rail], "B/s", text);
        printf("    rail %-2d %s, share %.1f %%\n", rail, text,
               ((worth >> rail) & 1) ? 100.0 * (double)line->bps[rail] / sum : 0.0);
    }
}

static void show_line(void *argument, const mpath_history_line_t *line)
{
    int *lines = argument;

    printf("  machine %016" PRIx64 ", %s", line->key.machine, line->key.operation);
    show_size(line);
    printf("\n");
    switch (line->key.kind) {
    case MPATH_HISTORY_NODE_RATES:
        printf("    node %d\n", line->key.node);
        show_rails(line);
        break;
    case MPATH_HISTORY_HOST_SHARE:
        printf("    through the host beside the links between GPUs: %.1f %%\n",
               100.0 * (double)line->value / MPATH_TUNE_WHOLE);
        break;
    case MPATH_HISTORY_HELP:
        printf("    by a kernel beside copy engines: %" PRIu64 " %%\n", line->value);
        break;
    default:
        show_rails(line);
    }
    (*lines)++;
}

mpath_status_t info_show_rates(const char *path)
{
    int lines = 0;
    mpath_status_t status;

    printf("what calls have shown, in %s\n", path);
    status = mpath_history_read(path, show_line, &lines);
    if (status == MPATH_DECLINED) {
        mpath_error("%s: there is no such file; rails start with their nominal rates", path);
        return MPATH_ERR_IO;
    }
    if (status == MPATH_ERR_IO) {
        mpath_error("%s cannot be read (%s)", path, strerror(errno));
    }
    if (status == MPATH_OK) {
        printf("%d line%s; remove a line, or the file, and what it says is learned anew\n", lines,
               (lines == 1) ? "" : "s");
    }
    return status;
}
