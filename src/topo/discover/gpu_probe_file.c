/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a probe has measured as a file: a line "word numbers" for each figure, '#' starts a comment. It names the GPUs
 * and the driver that it is about, and is only good for those.
 */
#include "topo/discover/gpu_probe.h"

#include "topo/discover/machine.h"
#include "util/cache.h"
#include "util/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 1024

/* --- the name ---------------------------------------------------------------------------------------------------- */

/* FNV-1a, 64 bits. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;

    for (; length > 0; length--, byte++) {
        hash = (hash ^ *byte) * UINT64_C(0x100000001b3);
    }
    return hash;
}

void mpath_gpu_probe_name(const mpath_gpu_survey_t *survey, char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    int g;

    hash = hash_bytes(hash, &survey->driver_version, sizeof(survey->driver_version));
    for (g = 0; g < survey->num_gpus; g++) {
        hash = hash_bytes(hash, &survey->gpus[g].info.uuid, sizeof(survey->gpus[g].info.uuid));
    }
    snprintf(name, MPATH_GPU_PROBE_NAME, "gpus-%016" PRIx64 ".txt", hash);
}

/* --- figures ----------------------------------------------------------------------------------------------------- */

/* Every figure of a GPU or of all, by the word that begins its line. */
typedef struct figure {
    const char *word;
    size_t offset; /* in mpath_gpu_probe_t; an array over the GPUs when `per_gpu` */
    int per_gpu;
} figure_t;

#define PER_GPU(_word, _member)                                                                                        \
    {                                                                                                                  \
        _word, offsetof(mpath_gpu_probe_t, _member), 1                                                                 \
    }
#define ONCE(_word, _member)                                                                                           \
    {                                                                                                                  \
        _word, offsetof(mpath_gpu_probe_t, _member), 0                                                                 \
    }

static const figure_t rates[]     = {PER_GPU("device-to-host", up_bps),
                                     PER_GPU("host-to-device", down_bps),
                                     PER_GPU("host-both-ways", both_bps),
                                     PER_GPU("host-beside", beside_bps),
                                     PER_GPU("each-way", each_way_bps),
                                     PER_GPU("kernel", kernel_bps),
                                     ONCE("ring", ring_bps),
                                     ONCE("host", host_bps)};
static const figure_t latencies[] = {ONCE("copy-latency", copy_latency_ns), ONCE("kernel-latency", kernel_latency_ns)};

#define COUNT(_table) (sizeof(_table) / sizeof((_table)[0]))

static void *figure_at(const mpath_gpu_probe_t *probe, const figure_t *figure)
{
    return (char *)(uintptr_t)probe + figure->offset;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

static void write_list(FILE *out, const char *word, const uint64_t *values, int count)
{
    int i;

    fputs(word, out);
    for (i = 0; i < count; i++) {
        fprintf(out, " %" PRIu64, values[i]);
    }
    fputc('\n', out);
}

static void write_probe(FILE *out, const mpath_gpu_survey_t *survey, const mpath_gpu_probe_t *probe)
{
    char uuid[MPATH_GPU_UUID_TEXT], word[32];
    size_t i;
    int g;

    fprintf(out, "# What mpath has measured; may be deleted. Rates in bytes per second, one value for each GPU\n"
                 "# or each pair's other end, 0: not measured; latencies in nanoseconds.\n");
    fprintf(out, "driver %d\n", survey->driver_version);
    for (g = 0; g < survey->num_gpus; g++) {
        mpath_gpu_uuid_text(&survey->gpus[g].info.uuid, uuid);
        fprintf(out, "gpu %d %s %s\n", g, uuid, survey->gpus[g].info.pci);
    }
    for (i = 0; i < COUNT(rates); i++) {
        write_list(out, rates[i].word, figure_at(probe, &rates[i]), rates[i].per_gpu ? probe->num_gpus : 1);
    }
    for (g = 0; g < probe->num_gpus; g++) {
        snprintf(word, sizeof(word), "copy-from %d", g);
        write_list(out, word, probe->copy_bps[g], probe->num_gpus);
    }
    for (i = 0; i < COUNT(latencies); i++) {
        fprintf(out, "%s %" PRIu32 "\n", latencies[i].word, *(uint32_t *)figure_at(probe, &latencies[i]));
    }
}

mpath_status_t mpath_gpu_probe_save_as(const char *file, const mpath_gpu_survey_t *survey,
                                       const mpath_gpu_probe_t *probe)
{
    char name[MPATH_GPU_PROBE_NAME], *text = NULL;
    size_t length         = 0;
    FILE *out             = open_memstream(&text, &length);
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if (out == NULL) {
        return status;
    }
    write_probe(out, survey, probe);
    if (fclose(out) == 0) {
        mpath_gpu_probe_name(survey, name);
        status = mpath_cache_write(((file != NULL) && (file[0] != '\0')) ? file : name, text, length);
    }
    free(text);
    return status;
}

mpath_status_t mpath_gpu_probe_save(const mpath_gpu_survey_t *survey, const mpath_gpu_probe_t *probe)
{
    return mpath_gpu_probe_save_as(NULL, survey, probe);
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

/* `count` numbers up to `max` and nothing behind them; 0 or -1. */
static int read_numbers(const char *text, uint64_t *values, int count, uint64_t max)
{
    char *end;
    int i;

    for (i = 0; i < count; i++) {
        text += strspn(text, " ");
        if ((*text < '0') || (*text > '9')) {
            return -1;
        }
        errno     = 0;
        values[i] = strtoull(text, &end, 10);
        if ((errno != 0) || (values[i] > max)) {
            return -1;
        }
        text = end;
    }
    return (text[strspn(text, " ")] == '\0') ? 0 : -1;
}

/* The machine that a line is about: 0 when it is this one or the line is of another kind, 1 when it is another one. */
static int is_foreign(const char *word, const char *rest, const mpath_gpu_survey_t *survey)
{
    char uuid[MPATH_GPU_UUID_TEXT], expected[MPATH_GPU_UUID_TEXT + 64];
    int g;

    if (strcmp(word, "driver") == 0) {
        return atoi(rest) != survey->driver_version;
    }
    if (strcmp(word, "gpu") == 0) {
        g = atoi(rest);
        if ((g < 0) || (g >= survey->num_gpus)) {
            return 1;
        }
        mpath_gpu_uuid_text(&survey->gpus[g].info.uuid, uuid);
        snprintf(expected, sizeof(expected), "%d %s %s", g, uuid, survey->gpus[g].info.pci);
        return strcmp(expected, rest) != 0;
    }
    return 0;
}

/* 0, or -1: the line is no figure. */
static int read_figure(const char *word, const char *rest, mpath_gpu_probe_t *probe)
{
    uint64_t number = 0;
    char *end;
    size_t i;
    long from;

    for (i = 0; i < COUNT(rates); i++) {
        if (strcmp(word, rates[i].word) == 0) {
            return read_numbers(rest, figure_at(probe, &rates[i]), rates[i].per_gpu ? probe->num_gpus : 1,
                                MPATH_MAX_RATE_BPS);
        }
    }
    for (i = 0; i < COUNT(latencies); i++) {
        if ((strcmp(word, latencies[i].word) == 0) && (read_numbers(rest, &number, 1, UINT32_MAX) == 0)) {
            *(uint32_t *)figure_at(probe, &latencies[i]) = (uint32_t)number;
            return 0;
        }
    }
    if (strcmp(word, "copy-from") == 0) {
        from = strtol(rest, &end, 10);
        if ((end == rest) || (from < 0) || (from >= probe->num_gpus)) {
            return -1;
        }
        return read_numbers(end, probe->copy_bps[from], probe->num_gpus, MPATH_MAX_RATE_BPS);
    }
    return ((strcmp(word, "driver") == 0) || (strcmp(word, "gpu") == 0)) ? 0 : -1;
}

mpath_status_t mpath_gpu_probe_parse(const char *name, const char *text, const mpath_gpu_survey_t *survey,
                                     mpath_gpu_probe_t *probe_p)
{
    mpath_gpu_probe_t probe = {.num_gpus = survey->num_gpus};
    char line[LINE_MAX_BYTES], *rest;
    int number = 0, figures = 0;
    size_t length;

    for (; *text != '\0'; text += length + (text[length] == '\n')) {
        length = strcspn(text, "\n");
        number++;
        if ((length == 0) || (*text == '#')) {
            continue;
        }
        snprintf(line, sizeof(line), "%.*s", (int)(length < sizeof(line) ? length : sizeof(line) - 1), text);
        rest = strchr(line, ' ');
        if (rest != NULL) {
            *rest++ = '\0';
        }
        if ((rest == NULL) || (length >= sizeof(line)) || (read_figure(line, rest, &probe) != 0)) {
            mpath_warn(
                "cache file %s:%d: '%.40s' is no line of a probe; the file is not used, mpath_info --probe writes it "
                "anew",
                name, number, line);
            return MPATH_ERR_PARAM;
        }
        if (is_foreign(line, rest, survey)) {
            mpath_warn(
                "cache file %s:%d: it is of other GPUs or another driver; the file is not used, mpath_info --probe "
                "writes it anew",
                name, number);
            return MPATH_ERR_PARAM;
        }
        figures++;
    }
    if (figures == 0) {
        mpath_warn("cache file %s: it is empty; the file is not used, mpath_info --probe writes it anew", name);
        return MPATH_ERR_PARAM;
    }
    *probe_p = probe;
    return MPATH_OK;
}

mpath_status_t mpath_gpu_probe_load_from(const char *file, const mpath_gpu_survey_t *survey, mpath_gpu_probe_t *probe_p)
{
    char name[MPATH_GPU_PROBE_NAME], *text;
    mpath_status_t status;

    mpath_gpu_probe_name(survey, name);
    file   = ((file != NULL) && (file[0] != '\0')) ? file : name;
    status = mpath_cache_read(file, &text);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_gpu_probe_parse(file, text, survey, probe_p);
    free(text);
    return status;
}

mpath_status_t mpath_gpu_probe_load(const mpath_gpu_survey_t *survey, mpath_gpu_probe_t *probe_p)
{
    return mpath_gpu_probe_load_from(NULL, survey, probe_p);
}

/* --- use --------------------------------------------------------------------------------------------------------- */

static uint64_t known_or(uint64_t measured_bps, uint64_t assumed_bps)
{
    return (measured_bps > 0) ? measured_bps : assumed_bps;
}

/* Faster than through PCIe up and down again: there is an NVLink that nobody told of. */
static int beats_pcie(const mpath_gpu_probe_t *probe)
{
    uint64_t best = 0, pcie = 0;
    int from, to;

    for (from = 0; from < probe->num_gpus; from++) {
        for (to = 0; to < probe->num_gpus; to++) {
            best = (probe->copy_bps[from][to] > best) ? probe->copy_bps[from][to] : best;
        }
        pcie = (probe->up_bps[from] > pcie) ? probe->up_bps[from] : pcie;
        pcie = (probe->down_bps[from] > pcie) ? probe->down_bps[from] : pcie;
    }
    return (pcie > 0) && (best / 2 > pcie);
}

void mpath_gpu_probe_pick(const mpath_gpu_probe_t *from, const int *to_of, mpath_gpu_probe_t *to)
{
    int g, p, i, k, all = 1;

    for (g = 0; g < to->num_gpus; g++) {
        i   = to_of[g];
        all = all && (i >= 0);
        for (p = 0; (p < to->num_gpus) && (i >= 0); p++) {
            k                   = to_of[p];
            to->copy_bps[g][p]  = (k >= 0) ? from->copy_bps[i][k] : 0;
            to->up_bps[g]       = from->up_bps[i];
            to->down_bps[g]     = from->down_bps[i];
            to->both_bps[g]     = from->both_bps[i];
            to->beside_bps[g]   = from->beside_bps[i];
            to->each_way_bps[g] = from->each_way_bps[i];
            to->kernel_bps[g]   = from->kernel_bps[i];
        }
    }
    to->copy_latency_ns   = from->copy_latency_ns;
    to->kernel_latency_ns = from->kernel_latency_ns;
    if (all) {
        to->ring_bps = from->ring_bps;
        to->host_bps = from->host_bps;
    }
}

/* What links that were not measured reach of what they promise: as little as the worst of the others; thousandths. */
static uint64_t reached_per_mille(const mpath_gpu_probe_t *probe, const mpath_node_gpus_t *gpus)
{
    uint64_t least = 0, reached;
    int g, p;

    for (g = 0; g < gpus->num_gpus; g++) {
        for (p = 0; p < gpus->num_gpus; p++) {
            if ((probe->copy_bps[g][p] > 0) && (gpus->nvlink_bps[g][p] >= 1000)) {
                reached = probe->copy_bps[g][p] / (gpus->nvlink_bps[g][p] / 1000);
                least   = ((least == 0) || (reached < least)) ? reached : least;
            }
        }
    }
    return (least > 0) ? least : 1000;
}

static uint64_t unreached(uint64_t promised_bps, uint64_t per_mille)
{
    return (per_mille < 1000) ? promised_bps / 1000 * (1000 - per_mille) : 0;
}

/*
 * Half of a rate is lost where somebody else uses the same links. compute-sanitizer's memcheck leaves the kernels of an
 * H200 a quarter of what its copy engines reach, racecheck less than a hundredth.
 */
const char *mpath_gpu_probe_doubt(const mpath_gpu_probe_t *probe, const mpath_node_gpus_t *gpus)
{
    if ((gpus->link != MPATH_GPU_LINK_SWITCH) || (probe->ring_bps == 0)) {
        return NULL;
    }
    for (int g = 0; g < gpus->num_gpus; g++) {
        if (probe->ring_bps < gpus->gpus[g].egress_bps / 2) {
            return "copies reach less than half of what the links promise: somebody else seems to use them";
        }
    }
    for (int g = 0; g < probe->num_gpus; g++) {
        if ((probe->kernel_bps[g] > 0) && (probe->kernel_bps[g] < probe->ring_bps / 2)) {
            return "kernels reach less than half of what copy engines do: a debugger or profiler seems to hold them up";
        }
    }
    return NULL;
}

void mpath_gpu_probe_apply(const mpath_gpu_probe_t *probe, mpath_machine_t *machine, mpath_node_gpus_t *gpus)
{
    uint64_t per_mille = reached_per_mille(probe, gpus);
    mpath_gpu_t *gpu;
    int g, p;

    machine->host_memory_bps = known_or(probe->host_bps, machine->host_memory_bps);
    if ((gpus->link == MPATH_GPU_LINK_PCIE) && beats_pcie(probe)) {
        gpus->link = MPATH_GPU_LINK_SWITCH;
    }
    for (g = 0; g < gpus->num_gpus; g++) {
        gpu                = &gpus->gpus[g];
        gpu->pcie_up_bps   = known_or(probe->up_bps[g], gpu->pcie_up_bps);
        gpu->pcie_down_bps = known_or(probe->down_bps[g], gpu->pcie_down_bps);
        if (gpus->link == MPATH_GPU_LINK_SWITCH) {
            /* all ports busy both ways, which is what a collective does; else one pair */
            gpu->egress_bps  = known_or(probe->ring_bps, known_or(probe->each_way_bps[g], gpu->egress_bps));
            gpu->ingress_bps = gpu->egress_bps;
        }
        for (p = 0; (p < gpus->num_gpus) && (gpus->link == MPATH_GPU_LINK_MESH); p++) {
            if (gpus->nvlink_bps[g][p] > 0) {
                gpus->nvlink_bps[g][p] = known_or(
                    probe->copy_bps[g][p], gpus->nvlink_bps[g][p] - unreached(gpus->nvlink_bps[g][p], per_mille));
            }
        }
    }
}
