/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Topology files. Written: mpath's own format, which reloads to an identical topology. Read: that format, NCCL's
 * topology XML (<system><cpu><pci>... <nic><net>), and hwloc's XML. A file may declare virtual nodes: ranks of one host
 * treated as several nodes with rails of their own. doc/topology.md describes all three.
 *
 *   <mpath version="1" access="all" fabric="spine">
 *     <node host="node0" numa="1" host-memory-bps="8000000000" gpu-link="mesh">
 *       <nic name="rail0" rail="0" rate-bps="25000000" numa="0" up="1"/>
 *       <gpu pcie-up-bps="55000000000" pcie-down-bps="55000000000" nics="0"/>
 *       <nvlink from="0" to="1" bps="120000000000"/>
 *     </node>
 *     <rank node="0" nic="0" gpu="-1"/>            one per rank, in rank order
 *   </mpath>
 *
 * Rail numbers are unique on a node; a NIC may be named twice, as rails that share a device (tests on one host do so).
 *
 * Errors name file and line and are logged; the file is then not used. The parser reads no other file, resolves no
 * entities, and never crashes on any input (it is fuzzed). What it accepts, mpath_topo_create() accepts.
 */
#ifndef MPATH_TOPO_FILE_XML_H
#define MPATH_TOPO_FILE_XML_H

#include "topo/topo.h"

#include <stdio.h>

/* What a file says; arrays are owned by it. One of NCCL or hwloc has no ranks, and mostly a single node. */
typedef struct mpath_topo_file {
    int num_nodes, num_ranks;
    mpath_machine_t *machines;
    mpath_node_gpus_t *gpus; /* NULL where no node has GPUs or an uplink */
    mpath_place_t *places;
    mpath_topo_params_t params;
    int tells_access; /* nonzero: params are what the file says */
} mpath_topo_file_t;

mpath_status_t mpath_topo_file_load(const char *path, mpath_topo_file_t *file_p);
/* The same from memory; `name` stands for the file in messages. */
mpath_status_t mpath_topo_file_parse(const char *name, const char *text, size_t length, mpath_topo_file_t *file_p);
/* The topology of a file. */
mpath_status_t mpath_topo_file_build(const mpath_topo_file_t *file, mpath_topo_t **topo_p);
/*
 * Gives a file without ranks `num_nodes` such nodes, 0: two of a file of one machine, all of one of several, and ranks as
 * a job of one rank for each GPU, or for each NIC that is up where a node has no GPUs, would have them. What the format does not
 * tell of access is `affine`. MPATH_ERR_PARAM, logged with `name`: there are ranks, or nothing that they could be on.
 */
mpath_status_t mpath_topo_file_populate(const char *name, mpath_topo_file_t *file, int num_nodes);
void mpath_topo_file_release(mpath_topo_file_t *file);

/* Writes the topology to a stream. MPATH_ERR_IO when the stream has an error; not logged. */
mpath_status_t mpath_topo_file_write(const mpath_topo_t *topo, FILE *out);
/* Writes the topology to `path`, "-" for standard output. Errors are logged. */
mpath_status_t mpath_topo_file_save(const mpath_topo_t *topo, const char *path);

#endif
