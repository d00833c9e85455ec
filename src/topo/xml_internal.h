/* SPDX-License-Identifier: BSD-3-Clause */
/* What the readers of the three formats share: attributes with checks, and errors that name file and line. */
#ifndef MPATH_TOPO_XML_INTERNAL_H
#define MPATH_TOPO_XML_INTERNAL_H

#include "topo/xml.h"

#include <libxml/tree.h>

/* Logs "topology file NAME:LINE: TEXT; the file is not used". */
void mpath_xml_error(const char *name, const xmlNode *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int mpath_xml_is(const xmlNode *node, const char *element);
/* The next element of a list of siblings, the node itself included; NULL at its end. */
xmlNode *mpath_xml_element(xmlNode *node);

/* The text of an attribute; NULL when there is none. Free with xmlFree(). */
char *mpath_xml_attribute(xmlNode *node, const char *attribute);

/* Copies an attribute's text; `fallback` where there is none, NULL: it is required and not empty. Errors are logged. */
mpath_status_t mpath_xml_text(const char *name, xmlNode *node, const char *attribute, const char *fallback, char *text,
                              size_t size);
/* Reads an attribute's number; *value_p stays where there is none unless it is required. Errors are logged. */
mpath_status_t mpath_xml_number(const char *name, xmlNode *node, const char *attribute, int required, int64_t min,
                                int64_t max, int64_t *value_p);

/* Every attribute of the node is in the NULL-terminated list. Errors are logged. */
mpath_status_t mpath_xml_check_attributes(const char *name, const xmlNode *node, const char *const *known);
/* The index of an attribute's value in a NULL-terminated list; the first is the default. Errors are logged. */
mpath_status_t mpath_xml_choice(const char *name, xmlNode *node, const char *attribute, const char *const *values,
                                int *index_p);

/* Values of gpu-link, by mpath_gpu_link_t; NULL-terminated. */
extern const char *const mpath_gpu_link_names[];

/* xml_gpus.c: what a node of mpath's format says of its GPUs; its NICs have been read. */
mpath_status_t mpath_xml_read_gpus(const char *name, xmlNode *node, const mpath_machine_t *machine,
                                   mpath_node_gpus_t *gpus);

/* xml_nccl_gpus.c: the GPUs of NCCL's format. `nets` are the elements of the machine's NICs. */
mpath_status_t mpath_xml_read_nccl_gpus(const char *name, xmlNode *root, const mpath_machine_t *machine,
                                        xmlNode *const *nets, mpath_node_gpus_t *gpus);

/* An error when one of the NICs has this name. */
mpath_status_t mpath_xml_check_name(const char *name, const xmlNode *node, const mpath_nic_t *nics, int count,
                                    const char *nic_name);

/* The readers of a root element. *file_p is zeroed; on an error the caller releases it. */
mpath_status_t mpath_xml_read_mpath(const char *name, xmlNode *root, mpath_topo_file_t *file);
mpath_status_t mpath_xml_read_nccl(const char *name, xmlNode *root, mpath_topo_file_t *file);
mpath_status_t mpath_xml_read_hwloc(const char *name, xmlNode *root, mpath_topo_file_t *file);

#endif
