/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info: the GPUs of this machine. */
#ifndef MPATH_TOOLS_INFO_GPUS_H
#define MPATH_TOOLS_INFO_GPUS_H

#include "topo/topo.h"

/*
 * Starts the driver, finds the GPUs and what a probe has measured of them; no GPU is no error. Measured rates are put
 * into the machine as well.
 */
mpath_status_t info_find_gpus(mpath_machine_t *machine, mpath_node_gpus_t *gpus_p);

/* Prints what info_find_gpus() has found last; nothing without GPUs. */
void info_show_gpus(const mpath_node_gpus_t *gpus);

/* Measures, prints and keeps the figures. */
mpath_status_t info_probe(void);

#endif
