/* SPDX-License-Identifier: BSD-3-Clause */
/* Discovery of GPUs: facts from the CUDA driver and NVML. */
#include "topo/machine_gpus.h"
#include "topo/nvml.h"
#include "util/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mpath_gpu_uuid_text(const mpath_cu_uuid_t *uuid, char *text)
{
    const unsigned char *b = uuid->bytes;

    snprintf(text, MPATH_GPU_UUID_TEXT, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* Addresses have fixed width, so their order is that of the text. */
static int compare_pci(const void *left, const void *right)
{
    const mpath_gpu_facts_t *a = left, *b = right;
    int order = strcmp(a->info.pci, b->info.pci);

    return (order != 0) ? order : (a->info.ordinal - b->info.ordinal);
}

static mpath_status_t list_gpus(mpath_gpu_survey_t *survey)
{
    int count = mpath_gpu_count(), ordinal;
    mpath_status_t status;

    if (count > MPATH_MAX_GPUS) {
        mpath_warn("this machine has %d GPUs; those from number %d on are left out", count, MPATH_MAX_GPUS);
        count = MPATH_MAX_GPUS;
    }
    for (ordinal = 0; ordinal < count; ordinal++) {
        status = mpath_gpu_info(ordinal, &survey->gpus[ordinal].info);
        if (status != MPATH_OK) {
            return status;
        }
    }
    survey->num_gpus = count;
    qsort(survey->gpus, (size_t)count, sizeof(survey->gpus[0]), compare_pci);
    return MPATH_OK;
}

/* Does the driver let the one address the other's memory? */
static void find_peers(const mpath_cu_t *cu, mpath_gpu_survey_t *survey)
{
    mpath_cu_device_t device, peer;
    int g, p, can;

    for (g = 0; g < survey->num_gpus; g++) {
        for (p = 0; p < survey->num_gpus; p++) {
            if ((p != g) && (cu->DeviceGet(&device, survey->gpus[g].info.ordinal) == MPATH_CU_SUCCESS) &&
                (cu->DeviceGet(&peer, survey->gpus[p].info.ordinal) == MPATH_CU_SUCCESS) &&
                (cu->DeviceCanAccessPeer(&can, device, peer) == MPATH_CU_SUCCESS) && can) {
                survey->gpus[g].reaches |= 1u << p;
            }
        }
    }
}

static void count_links(mpath_gpu_survey_t *survey, int g, const mpath_nvml_gpu_t *read)
{
    mpath_gpu_facts_t *facts = &survey->gpus[g];
    int i, p;

    for (i = 0; i < read->num_links; i++) {
        for (p = 0; (p < survey->num_gpus) && (strcmp(survey->gpus[p].info.pci, read->links[i].pci) != 0); p++) {
        }
        if (read->links[i].remote == MPATH_NVML_REMOTE_SWITCH) {
            facts->links_to_switch++;
        } else if ((p < survey->num_gpus) && (p != g)) {
            facts->links_to[p]++;
        } else {
            facts->links_elsewhere++;
        }
    }
    facts->link_bps = read->link_bps;
}

static void ask_nvml(mpath_gpu_survey_t *survey)
{
    mpath_nvml_gpu_t read;
    mpath_nvml_t *nvml;
    int g;

    if (mpath_nvml_open(&nvml) != MPATH_OK) {
        return;
    }
    survey->has_nvml = 1;
    for (g = 0; g < survey->num_gpus; g++) {
        if (mpath_nvml_read(nvml, survey->gpus[g].info.pci, &read) == MPATH_OK) {
            survey->gpus[g].pcie_generation = read.pcie_generation;
            survey->gpus[g].pcie_width      = read.pcie_width;
            count_links(survey, g, &read);
        }
    }
    mpath_nvml_close(nvml);
}

mpath_status_t mpath_gpu_survey(mpath_gpu_survey_t *survey_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_gpu_survey_t survey;
    mpath_status_t status;

    memset(&survey, 0, sizeof(survey));
    if (cu != NULL) {
        status = list_gpus(&survey);
        if (status != MPATH_OK) {
            return status;
        }
        if (cu->DriverGetVersion(&survey.driver_version) != MPATH_CU_SUCCESS) {
            survey.driver_version = 0;
        }
    }
    if (survey.num_gpus > 0) {
        find_peers(cu, &survey);
        ask_nvml(&survey);
    }
    *survey_p = survey;
    return MPATH_OK;
}
