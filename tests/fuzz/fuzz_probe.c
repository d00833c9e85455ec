/* SPDX-License-Identifier: BSD-3-Clause */
/* Fuzzes the reader of probe files: a topology takes whatever it accepts, of GPUs linked as the first byte says. */
#include "topo/discover/gpu_probe.h"
#include "util/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 3

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

static void make_survey(uint8_t kind, mpath_gpu_survey_t *survey)
{
    int g, p;

    memset(survey, 0, sizeof(*survey));
    survey->num_gpus       = GPUS;
    survey->driver_version = 13000;
    for (g = 0; g < GPUS; g++) {
        survey->gpus[g].info.ordinal        = g;
        survey->gpus[g].info.uuid.bytes[15] = (unsigned char)g;
        snprintf(survey->gpus[g].info.pci, sizeof(survey->gpus[g].info.pci), "0000:1%d:00.0", g);
        survey->gpus[g].link_bps        = 25000000000;
        survey->gpus[g].links_to_switch = kind == 'S' ? 18 : 0;
        for (p = 0; p < GPUS; p++) {
            survey->gpus[g].links_to[p] = kind == 'M' && p != g ? 4 : 0;
            survey->gpus[g].reaches |= kind != 'H' && p != g ? 1u << p : 0;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mpath_topo_params_t params = {.access = MPATH_REACH_AFFINE, .fabric = 0};
    mpath_machine_t machine          = {.num_numa = 1, .host_memory_bps = 8000000000};
    mpath_gpu_survey_t survey;
    mpath_gpu_probe_t probe;
    mpath_node_gpus_t gpus;
    mpath_topo_t *topo;
    char *text;

    if (size < 1) {
        return 0;
    }
    text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    make_survey(data[0], &survey);
    if (mpath_gpu_probe_parse("input", text, &survey, &probe) == MPATH_OK) {
        mpath_gpu_survey_model(&survey, &machine, &gpus);
        mpath_gpu_probe_apply(&probe, &machine, &gpus);
        if (mpath_topo_create_with_gpus(&machine, &gpus, 1, NULL, 0, &params, &topo) != MPATH_OK) {
            abort();
        }
        mpath_topo_destroy(topo);
    }
    free(text);
    return 0;
}
