/* SPDX-License-Identifier: BSD-3-Clause */
/* Discovery of GPUs: facts from the CUDA driver and NVML. */
#include "topo/discover/gpus.h"
#include "topo/discover/nvml.h"
#include "util/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mpath_gpu_uuid_text(const mpath_device_uuid_t *uuid, char *text)
{
    const unsigned char *b = uuid->bytes;

    snprintf(text, MPATH_GPU_UUID_TEXT, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* Addresses have fixed width, so their order is that of the text. Parts of a GPU share one. */
static int compare_pci(const void *left, const void *right)
{
    const mpath_gpu_facts_t *a = left, *b = right;
    int order = strcmp(a->info.pci, b->info.pci);

    return (order != 0) ? order : memcmp(&a->info.uuid, &b->info.uuid, sizeof(a->info.uuid));
}

/* What is at a PCI address; NULL when that is the GPU's own, or there are too many. */
static mpath_gpu_other_t *other_at(mpath_gpu_facts_t *facts, const char *pci)
{
    int other = 0;

    while ((other < facts->num_others) && (strcmp(facts->others[other].pci, pci) != 0)) {
        other++;
    }
    if ((other == MPATH_MAX_GPUS) || (strcmp(facts->info.pci, pci) == 0)) {
        return NULL;
    }
    if (other == facts->num_others) {
        facts->num_others++;
        snprintf(facts->others[other].pci, sizeof(facts->others[other].pci), "%s", pci);
    }
    return &facts->others[other];
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
static void find_peers(const mpath_device_ops_t *device, mpath_gpu_survey_t *survey)
{
    mpath_gpu_other_t *other;
    int g, p, can;

    for (g = 0; g < survey->num_gpus; g++) {
        for (p = 0; p < survey->num_gpus; p++) {
            other = other_at(&survey->gpus[g], survey->gpus[p].info.pci);
            if ((other == NULL) || (device->can_access(survey->gpus[g].info.ordinal, survey->gpus[p].info.ordinal,
                                                       &can) != MPATH_DEVICE_DONE)) {
                continue;
            }
            other->reach = can ? MPATH_GPU_REACH_YES : MPATH_GPU_REACH_NO;
        }
    }
}

static void count_links(mpath_gpu_facts_t *facts, const mpath_nvml_gpu_t *read)
{
    mpath_gpu_other_t *other;

    for (int i = 0; i < read->num_links; i++) {
        if (read->links[i].remote == MPATH_NVML_REMOTE_SWITCH) {
            facts->links_to_switch++;
        } else if ((other = other_at(facts, read->links[i].pci)) != NULL) {
            other->links++;
        }
    }
    facts->link_bps = read->link_bps;
}

/* Of the GPUs that the driver does not show here, what NVML says of them. */
static void add_hidden(mpath_gpu_facts_t *facts, const mpath_nvml_gpu_t *read)
{
    mpath_gpu_other_t *other;

    for (int i = 0; i < read->num_peers; i++) {
        other = other_at(facts, read->peers[i].pci);
        if ((other != NULL) && (other->reach == MPATH_GPU_REACH_UNTOLD)) {
            other->reach = read->peers[i].reached ? MPATH_GPU_REACH_YES : MPATH_GPU_REACH_DOUBTED;
        }
    }
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
            count_links(&survey->gpus[g], &read);
            add_hidden(&survey->gpus[g], &read);
        }
    }
    mpath_nvml_close(nvml);
}

/* --- numbers ----------------------------------------------------------------------------------------------------- */

int mpath_gpu_survey_find(const mpath_gpu_survey_t *survey, const mpath_device_uuid_t *uuid)
{
    for (int g = 0; g < survey->num_gpus; g++) {
        if (memcmp(&survey->gpus[g].info.uuid, uuid, sizeof(*uuid)) == 0) {
            return g;
        }
    }
    return -1;
}

void mpath_gpu_survey_add(mpath_gpu_survey_t *survey, const mpath_gpu_facts_t *facts)
{
    int g = survey->num_gpus;

    if ((g == MPATH_MAX_GPUS) || (mpath_gpu_survey_find(survey, &facts->info.uuid) >= 0)) {
        return;
    }
    for (; (g > 0) && (compare_pci(&survey->gpus[g - 1], facts) > 0); g--) {
        survey->gpus[g] = survey->gpus[g - 1];
    }
    survey->gpus[g] = *facts;
    survey->num_gpus++;
}

static void number_other(mpath_gpu_survey_t *survey, int g, const mpath_gpu_other_t *other)
{
    mpath_gpu_facts_t *facts = &survey->gpus[g];
    int linked = (other->reach == MPATH_GPU_REACH_UNTOLD) && (other->links > 0), found = 0;

    for (int p = 0; p < survey->num_gpus; p++) {
        if ((p == g) || (strcmp(survey->gpus[p].info.pci, other->pci) != 0)) {
            continue;
        }
        found              = 1;
        facts->links_to[p] = other->links;
        if ((other->reach == MPATH_GPU_REACH_YES) || linked) {
            facts->reaches |= 1u << p;
        }
        if (((facts->reaches >> p) & 1) || (other->reach == MPATH_GPU_REACH_NO)) {
            facts->untold &= ~(1u << p);
        }
    }
    facts->links_elsewhere += found ? 0 : other->links;
}

void mpath_gpu_survey_number(mpath_gpu_survey_t *survey)
{
    for (int g = 0; g < survey->num_gpus; g++) {
        mpath_gpu_facts_t *facts = &survey->gpus[g];

        memset(facts->links_to, 0, sizeof(facts->links_to));
        facts->links_elsewhere = 0;
        facts->reaches         = 0;
        facts->untold          = ((1u << survey->num_gpus) - 1) & ~(1u << g);
        for (int other = 0; other < facts->num_others; other++) {
            number_other(survey, g, &facts->others[other]);
        }
    }
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

mpath_status_t mpath_gpu_survey(mpath_gpu_survey_t *survey_p)
{
    const mpath_device_ops_t *device = mpath_device();
    mpath_gpu_survey_t survey;
    mpath_status_t status;

    memset(&survey, 0, sizeof(survey));
    if (device != NULL) {
        status = list_gpus(&survey);
        if (status != MPATH_OK) {
            return status;
        }
        if (device->driver_version(&survey.driver_version) != MPATH_DEVICE_DONE) {
            survey.driver_version = 0;
        }
    }
    if (survey.num_gpus > 0) {
        find_peers(device, &survey);
        ask_nvml(&survey);
        mpath_gpu_survey_number(&survey);
    }
    *survey_p = survey;
    return MPATH_OK;
}
