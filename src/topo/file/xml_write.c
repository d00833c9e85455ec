/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes a topology in mpath's own format; reading it back gives the identical topology. */
#include "topo/file/xml.h"
#include "util/log.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void write_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("<>&\"\t\n\r", *text) != NULL) {
            fprintf(out, "&#%d;", *text);
        } else if ((unsigned char)*text < ' ') {
            fputc('?', out); /* XML has no such character; no host or NIC has such a name */
        } else {
            fputc(*text, out);
        }
    }
}

static void write_rate(FILE *out, const char *attribute, uint64_t rate_bps)
{
    if (rate_bps > 0) {
        fprintf(out, " %s=\"%" PRIu64 "\"", attribute, rate_bps);
    }
}

/* What the head of a node says of its GPUs. */
static void write_gpu_head(FILE *out, const mpath_node_gpus_t *gpus)
{
    if (gpus->num_gpus > 0) {
        fprintf(out, " gpu-link=\"%s\"", mpath_gpu_link_names[gpus->link]);
        if ((gpus->link == MPATH_GPU_LINK_SWITCH) && (gpus->domain >= 0)) {
            fprintf(out, " nvlink-domain=\"%d\"", gpus->domain);
        }
    }
    write_rate(out, "uplink-bps", gpus->uplink_bps);
}

static void write_gpus(FILE *out, const mpath_node_gpus_t *gpus)
{
    const mpath_gpu_t *gpu;
    const char *separator;
    int i, k;

    for (i = 0; i < gpus->num_gpus; i++) {
        gpu = &gpus->gpus[i];
        fputs("    <gpu", out);
        write_rate(out, "pcie-up-bps", gpu->pcie_up_bps);
        write_rate(out, "pcie-down-bps", gpu->pcie_down_bps);
        write_rate(out, "egress-bps", gpu->egress_bps);
        write_rate(out, "ingress-bps", gpu->ingress_bps);
        fputs(" nics=\"", out);
        for (k = 0, separator = ""; k < MPATH_MAX_NICS; k++) {
            if ((gpu->nics >> k) & 1) {
                fprintf(out, "%s%d", separator, k);
                separator = " ";
            }
        }
        fputs("\"/>\n", out);
    }
    for (i = 0; i < gpus->num_gpus; i++) {
        for (k = 0; k < gpus->num_gpus; k++) {
            if (gpus->nvlink_bps[i][k] > 0) {
                fprintf(out, "    <nvlink from=\"%d\" to=\"%d\" bps=\"%" PRIu64 "\"/>\n", i, k, gpus->nvlink_bps[i][k]);
            }
        }
    }
}

static void write_node(FILE *out, const mpath_topo_t *topo, int node)
{
    const mpath_machine_t *machine = mpath_topo_machine(topo, node);
    const mpath_node_gpus_t *gpus  = mpath_topo_gpus(topo, node);
    const mpath_nic_t *nic;
    int i;

    fputs("  <node host=\"", out);
    write_text(out, mpath_topo_host(topo, node));
    fprintf(out, "\" numa=\"%d\" host-memory-bps=\"%" PRIu64 "\"", machine->num_numa, machine->host_memory_bps);
    if (gpus != NULL) {
        write_gpu_head(out, gpus);
    }
    fputs(">\n", out);
    for (i = 0; i < machine->num_nics; i++) {
        nic = &machine->nics[i];
        fputs("    <nic name=\"", out);
        write_text(out, nic->name);
        fprintf(out, "\" rail=\"%d\" rate-bps=\"%" PRIu64 "\" numa=\"%d\" up=\"%d\"/>\n", nic->rail, nic->rate_bps,
                nic->numa, nic->up != 0);
    }
    if (gpus != NULL) {
        write_gpus(out, gpus);
    }
    fputs("  </node>\n", out);
}

mpath_status_t mpath_topo_file_write(const mpath_topo_t *topo, FILE *out)
{
    const mpath_topo_params_t *params = mpath_topo_params(topo);
    const mpath_place_t *place;
    int i;

    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<mpath version=\"1\" access=\"%s\" fabric=\"%s\"",
            (params->access == MPATH_REACH_ALL) ? "all" : "affine",
            (params->fabric & MPATH_FABRIC_SPINE) ? "spine" : "rails");
    if (params->emulated != MPATH_EMULATED_NO) {
        fprintf(out, " emulated=\"%s\"", mpath_emulation_names[params->emulated]);
    }
    fputs(">\n", out);
    for (i = 0; i < mpath_topo_num_nodes(topo); i++) {
        write_node(out, topo, i);
    }
    for (i = 0; i < mpath_topo_num_ranks(topo); i++) {
        place = mpath_topo_place(topo, i);
        fprintf(out, "  <rank node=\"%d\" nic=\"%d\" gpu=\"%d\"/>\n", place->node, place->nic, place->gpu);
    }
    fputs("</mpath>\n", out);
    return (fflush(out) == 0) && !ferror(out) ? MPATH_OK : MPATH_ERR_IO;
}

mpath_status_t mpath_topo_file_save(const mpath_topo_t *topo, const char *path)
{
    int to_stdout = (strcmp(path, "-") == 0);
    FILE *out     = to_stdout ? stdout : fopen(path, "w");
    mpath_status_t status;

    if (out == NULL) {
        mpath_error("topology file %s: %s; it is not written", path, strerror(errno));
        return MPATH_ERR_IO;
    }
    status = mpath_topo_file_write(topo, out);
    if (!to_stdout && (fclose(out) != 0)) {
        status = MPATH_ERR_IO;
    }
    if (status != MPATH_OK) {
        mpath_error("topology file %s: write error: %s; it is incomplete", path, strerror(errno));
    }
    return status;
}
