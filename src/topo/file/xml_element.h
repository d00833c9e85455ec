/* SPDX-License-Identifier: BSD-3-Clause */
/* What the readers of the three formats share: attributes with checks, and errors that name file and line. */
#ifndef MPATH_TOPO_FILE_XML_ELEMENT_H
#define MPATH_TOPO_FILE_XML_ELEMENT_H

#include "util/status.h"

#include <libxml/tree.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
