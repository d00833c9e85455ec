/* SPDX-License-Identifier: BSD-3-Clause */
/* Topology files: loading, and choice of the format. Each format has a reader of its own. */
#include "topo/file/xml.h"
#include "topo/file/xml_internal.h"
#include "util/file.h"
#include "util/log.h"

#include <errno.h>
#include <fenv.h>
#include <libxml/parser.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES (64u << 20)

/* A document type is allowed (hwloc writes one), definitions of entities in it are not: nobody needs them. */
static mpath_status_t document_check(const char *name, xmlDoc *document)
{
    if ((document->intSubset != NULL) && (document->intSubset->entities != NULL)) {
        mpath_error("topology file %s: it defines entities; the file is not used", name);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

static mpath_status_t document_read(const char *name, xmlDoc *document, mpath_topo_file_t *file)
{
    xmlNode *root = xmlDocGetRootElement(document);
    mpath_status_t status;

    status = document_check(name, document);
    if (status != MPATH_OK) {
        return status;
    }
    if (mpath_xml_is(root, "mpath")) {
        return mpath_xml_read_mpath(name, root, file);
    }
    if (mpath_xml_is(root, "system")) {
        return mpath_xml_read_nccl(name, root, file);
    }
    if (mpath_xml_is(root, "topology")) {
        return mpath_xml_read_hwloc(name, root, file);
    }
    mpath_xml_error(name, root, "root element '%.40s' is none of mpath, system (NCCL), topology (hwloc)",
                    (const char *)root->name);
    return MPATH_ERR_PARAM;
}

/* A parse error, with libxml2's words on one line. */
static void document_report(const char *name, const xmlError *error)
{
    const char *text = ((error != NULL) && (error->message != NULL)) ? error->message : "no document";

    mpath_error("topology file %s:%d: no well-formed XML: %.*s; the file is not used", name,
                (error != NULL) ? error->line : 1, (int)strcspn(text, "\n"), text);
}

mpath_status_t mpath_topo_file_parse(const char *name, const char *text, size_t length, mpath_topo_file_t *file_p)
{
    /*
     * Nothing is loaded from elsewhere, no entity is replaced, and libxml2's limits on depth and size hold. The text is
     * UTF-8 whatever it says: converters report their errors to standard error.
     */
    const int options = XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_NOCDATA |
                        XML_PARSE_BIG_LINES;
    mpath_topo_file_t file = {0};
    mpath_status_t status;
    xmlParserCtxt *parser;
    xmlDoc *document;
    fenv_t fenv;

    if (length > MAX_FILE_BYTES) {
        mpath_error("topology file %s: it has more than %u MiB; the file is not used", name, MAX_FILE_BYTES >> 20);
        return MPATH_ERR_PARAM;
    }
    /* libxml2 divides zero by zero when it is first used, which ends programs that trap invalid operations. */
    feholdexcept(&fenv);
    parser = xmlNewParserCtxt();
    if (parser == NULL) {
        fesetenv(&fenv);
        mpath_error("topology file %s: no memory for a parser; the file is not used", name);
        return MPATH_ERR_NO_MEMORY;
    }
    document = xmlCtxtReadMemory(parser, text, (int)length, NULL, "UTF-8", options);
    fesetenv(&fenv);
    if ((document == NULL) || (xmlDocGetRootElement(document) == NULL)) {
        document_report(name, (const xmlError *)xmlCtxtGetLastError(parser));
        status = MPATH_ERR_PARAM;
        goto err_free;
    }
    status = document_read(name, document, &file);
    if (status != MPATH_OK) {
        mpath_topo_file_release(&file);
    } else {
        *file_p = file;
    }
err_free:
    xmlFreeDoc(document);
    xmlFreeParserCtxt(parser);
    return status;
}

/* The bytes of a file, one more than allowed at most. */
static mpath_status_t file_read(const char *path, char **text_p, size_t *length_p)
{
    size_t length = 0, capacity = 0, count;
    char *text = NULL, *larger;
    FILE *in;

    switch (mpath_file_open(path, &in)) {
    case MPATH_OK:
        break;
    case MPATH_ERR_PARAM:
        mpath_error("topology file %s: it is a pipe, a device or a socket, and no file; it is not used", path);
        return MPATH_ERR_IO;
    default:
        mpath_error("topology file %s: %s; the file is not used", path, strerror(errno));
        return MPATH_ERR_IO;
    }
    do {
        if (length == capacity) {
            capacity = (capacity == 0) ? 65536 : 2 * capacity;
            larger   = realloc(text, capacity);
            if (larger == NULL) {
                mpath_error("topology file %s: no memory for %zu bytes; the file is not used", path, capacity);
                goto err_close;
            }
            text = larger;
        }
        count = fread(text + length, 1, capacity - length, in);
        length += count;
    } while ((count > 0) && (length <= MAX_FILE_BYTES));
    if (ferror(in)) {
        mpath_error("topology file %s: read error: %s; the file is not used", path, strerror(errno));
        goto err_close;
    }
    fclose(in);
    *text_p   = text;
    *length_p = length;
    return MPATH_OK;

err_close:
    fclose(in);
    free(text);
    return MPATH_ERR_IO;
}

mpath_status_t mpath_topo_file_load(const char *path, mpath_topo_file_t *file_p)
{
    mpath_status_t status;
    size_t length;
    char *text;

    status = file_read(path, &text, &length);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_topo_file_parse(path, text, length, file_p);
    free(text);
    return status;
}

mpath_status_t mpath_topo_file_build(const mpath_topo_file_t *file, mpath_topo_t **topo_p)
{
    return mpath_topo_create_with_gpus(file->machines, file->gpus, file->num_nodes, file->places, file->num_ranks,
                                       &file->params, topo_p);
}

void mpath_topo_file_release(mpath_topo_file_t *file)
{
    free(file->machines);
    free(file->gpus);
    free(file->places);
    memset(file, 0, sizeof(*file));
}
