/* SPDX-License-Identifier: BSD-3-Clause */
/* The readers of the three formats, each in a file of its name. */
#ifndef MPATH_TOPO_FILE_XML_INTERNAL_H
#define MPATH_TOPO_FILE_XML_INTERNAL_H

#include "topo/file/xml.h"
#include "topo/file/xml_element.h"

/* The readers of a root element. *file_p is zeroed; on an error the caller releases it. */
mpath_status_t mpath_xml_read_mpath(const char *name, xmlNode *root, mpath_topo_file_t *file);
mpath_status_t mpath_xml_read_nccl(const char *name, xmlNode *root, mpath_topo_file_t *file);
mpath_status_t mpath_xml_read_hwloc(const char *name, xmlNode *root, mpath_topo_file_t *file);

#endif
