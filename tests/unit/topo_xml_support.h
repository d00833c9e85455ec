/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of topology files. */
#ifndef MPATH_TESTS_UNIT_TOPO_XML_SUPPORT_H
#define MPATH_TESTS_UNIT_TOPO_XML_SUPPORT_H

#include "topo/file/xml.h"
#include "unit/capture.h"

#include <stdio.h>
#include <string.h>

/* Reads the text as the file sample.xml. */
static inline mpath_status_t parse(const char *text, mpath_topo_file_t *file)
{
    memset(file, 0, sizeof(*file));
    return mpath_topo_file_parse("sample.xml", text, strlen(text), file);
}

/* Two virtual nodes of a GPU each: how they are emulated, the name of the first, and their ranks. */
static inline void virtual_nodes(char *text, size_t size, const char *emulated, const char *host, const char *ranks)
{
    snprintf(text, size,
             "<mpath version=\"1\" access=\"affine\" fabric=\"spine\" emulated=\"%s\">\n"
             "  <node host=\"%s\" host-memory-bps=\"23\">\n"
             "    <nic name=\"lo\" rate-bps=\"11\"/>\n"
             "    <gpu pcie-up-bps=\"13\" pcie-down-bps=\"13\" nics=\"0\"/>\n"
             "  </node>\n"
             "  <node host=\"b\" host-memory-bps=\"23\">\n"
             "    <nic name=\"lo\" rate-bps=\"11\"/>\n"
             "    <gpu pcie-up-bps=\"13\" pcie-down-bps=\"13\" nics=\"0\"/>\n"
             "  </node>\n"
             "%s</mpath>\n",
             emulated, host, ranks);
}

/* Their ranks: one on each GPU. */
#define ON_GPUS "  <rank node=\"0\" nic=\"0\" gpu=\"0\"/>\n  <rank node=\"1\" nic=\"0\" gpu=\"0\"/>\n"

#endif
