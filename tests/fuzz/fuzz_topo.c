/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer: the input as a topology file. What the reader accepts must build, and must read back identically after
 * being written; so does what ranks and more nodes make of it. Input that is no XML also goes through the reader of NIC rates.
 */
#include "topo/discover/machine.h"
#include "topo/file/xml.h"
#include "util/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(_condition)                                                                                            \
    do {                                                                                                               \
        if (!(_condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #_condition);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static void ignore_line(mpath_log_level_t level, const char *line)
{
    (void)level;
    REQUIRE(strlen(line) < 1024);
}

/* A few pairs, all of their paths. */
static void walk_paths(const mpath_topo_t *topo)
{
    int ranks = mpath_topo_num_ranks(topo), s, d, k, count;
    mpath_path_t path;
    char text[256];

    for (s = 0; (s < ranks) && (s < 8); s++) {
        for (d = 0; (d < ranks) && (d < 8); d++) {
            count = mpath_topo_num_paths(topo, s, d);
            for (k = 0; k < count; k++) {
                mpath_topo_path(topo, s, d, k, &path);
                mpath_topo_path_format(topo, &path, text, sizeof(text));
                REQUIRE(path.hops[path.num_hops - 1].to == d);
            }
        }
    }
}

static void reload(const mpath_topo_t *topo, const mpath_topo_file_t *file)
{
    mpath_topo_file_t again;
    char *text  = NULL;
    size_t size = 0;
    FILE *out;

    out = open_memstream(&text, &size);
    REQUIRE(out != NULL);
    REQUIRE(mpath_topo_file_write(topo, out) == MPATH_OK);
    fclose(out);
    REQUIRE(mpath_topo_file_parse("again", text, size, &again) == MPATH_OK);
    REQUIRE((again.num_nodes == file->num_nodes) && (again.num_ranks == file->num_ranks));
    REQUIRE(memcmp(again.machines, file->machines, (size_t)file->num_nodes * sizeof(*file->machines)) == 0);
    REQUIRE((file->num_ranks == 0) ||
            (memcmp(again.places, file->places, (size_t)file->num_ranks * sizeof(*file->places)) == 0));
    REQUIRE((again.gpus == NULL) == (file->gpus == NULL));
    REQUIRE((file->gpus == NULL) ||
            (memcmp(again.gpus, file->gpus, (size_t)file->num_nodes * sizeof(*file->gpus)) == 0));
    mpath_topo_file_release(&again);
    free(text);
}

static void read_rates(const uint8_t *data, size_t size)
{
    mpath_machine_t machine = {.num_nics = 2};
    char text[256];

    if (size >= sizeof(text)) {
        return;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    strcpy(machine.nics[0].name, "a");
    strcpy(machine.nics[1].name, "b");
    machine.nics[0].rate_bps = machine.nics[1].rate_bps = 1;
    mpath_machine_apply_rates(text, &machine);
    REQUIRE((machine.nics[0].rate_bps > 0) && (machine.nics[0].rate_bps <= MPATH_MAX_RATE_BPS));
    REQUIRE((machine.nics[1].rate_bps > 0) && (machine.nics[1].rate_bps <= MPATH_MAX_RATE_BPS));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_file(const mpath_topo_file_t *file)
{
    mpath_topo_t *topo;

    REQUIRE(mpath_topo_file_build(file, &topo) == MPATH_OK);
    walk_paths(topo);
    reload(topo, file);
    mpath_topo_destroy(topo);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mpath_topo_file_t file;

    mpath_log_set_sink(ignore_line);
    if ((size > 0) && (data[0] != '<')) {
        read_rates(data, size);
    }
    if (mpath_topo_file_parse("input", (const char *)data, size, &file) != MPATH_OK) {
        return 0;
    }
    check_file(&file);
    if ((file.num_ranks == 0) && (file.num_nodes < 16) &&
        (mpath_topo_file_populate("input", &file, (int)(size % 32)) == MPATH_OK)) {
        check_file(&file);
    }
    mpath_topo_file_release(&file);
    return 0;
}
