/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements and attributes of a topology file, with checks. */
#include "topo/file/xml_element.h"

#include "util/log.h"
#include "util/number.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void mpath_xml_error(const char *name, const xmlNode *node, const char *format, ...)
{
    va_list arguments;
    char text[512];

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    mpath_error("topology file %s:%ld: %s; the file is not used", name, xmlGetLineNo(node), text);
}

int mpath_xml_is(const xmlNode *node, const char *element)
{
    return (node->type == XML_ELEMENT_NODE) && (strcmp((const char *)node->name, element) == 0);
}

xmlNode *mpath_xml_element(xmlNode *node)
{
    while ((node != NULL) && (node->type != XML_ELEMENT_NODE)) {
        node = node->next;
    }
    return node;
}

char *mpath_xml_attribute(xmlNode *node, const char *attribute)
{
    return (char *)xmlGetNoNsProp(node, (const xmlChar *)attribute);
}

mpath_status_t mpath_xml_text(const char *name, xmlNode *node, const char *attribute, const char *fallback, char *text,
                              size_t size)
{
    char *value = mpath_xml_attribute(node, attribute);
    size_t length;

    if ((value == NULL) && (fallback == NULL)) {
        mpath_xml_error(name, node, "%s without attribute '%s'", (const char *)node->name, attribute);
        return MPATH_ERR_PARAM;
    }
    length = strlen((value != NULL) ? value : fallback);
    if ((length == 0) && (fallback == NULL)) {
        mpath_xml_error(name, node, "%s %s is empty", (const char *)node->name, attribute);
        xmlFree(value);
        return MPATH_ERR_PARAM;
    }
    if (length >= size) {
        mpath_xml_error(name, node, "%s %s '%.40s...' has more than %zu bytes", (const char *)node->name, attribute,
                        value, size - 1);
        xmlFree(value);
        return MPATH_ERR_PARAM;
    }
    memset(text, 0, size); /* all of it: topologies are compared as memory */
    memcpy(text, (value != NULL) ? value : fallback, length);
    xmlFree(value);
    return MPATH_OK;
}

mpath_status_t mpath_xml_number(const char *name, xmlNode *node, const char *attribute, int required, int64_t min,
                                int64_t max, int64_t *value_p)
{
    char *text = mpath_xml_attribute(node, attribute);
    mpath_status_t status;

    if (text == NULL) {
        if (required) {
            mpath_xml_error(name, node, "%s without attribute '%s'", (const char *)node->name, attribute);
        }
        return required ? MPATH_ERR_PARAM : MPATH_OK;
    }
    status = mpath_number_parse(text, strlen(text), MPATH_NUMBER_PLAIN, min, max, value_p);
    if (status != MPATH_OK) {
        mpath_xml_error(name, node, "%s %s '%.40s' must be a whole number from %" PRId64 " to %" PRId64,
                        (const char *)node->name, attribute, text, min, max);
    }
    xmlFree(text);
    return status;
}
