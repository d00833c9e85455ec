/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of UCP in front of those of the library, for rails that read and write memory of the fake driver's GPUs. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "fake_ucx.h"

#include "gpu_kinds.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define MAX_REGIONS 64
#define GPU_TRANSPORTS ",cuda_copy"

#define die(...)                                                                                                       \
    do {                                                                                                               \
        fprintf(stderr, "fake UCX: " __VA_ARGS__);                                                                     \
        fputc('\n', stderr);                                                                                           \
        abort();                                                                                                       \
    } while (0)

fake_ucx_t fake_ucx;

static struct {
    uint64_t base, bytes;
    ucp_mem_h memh; /* NULL: free */
    int ended;      /* its memory has gone with its context */
} regions[MAX_REGIONS];

static void *real(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);

    if (function == NULL) {
        die("%s is missing", name);
    }
    return function;
}

static void *of_driver(const char *name)
{
    void *library = dlopen(gpu_library(), RTLD_NOW | RTLD_NOLOAD);

    return (library != NULL) ? dlsym(library, name) : NULL;
}

int fake_ucx_has_fake_gpus(void)
{
    return of_driver("fake_cuda_bytes") != NULL;
}

unsigned fake_ucx_flushes(void)
{
    unsigned (*function)(void);

    *(void **)&function = of_driver("fake_cuda_flushes");
    return (function != NULL) ? function() : 0;
}

void fake_ucx_context_ends(void)
{
    for (int i = 0; fake_ucx_has_fake_gpus() && (i < MAX_REGIONS); i++) {
        regions[i].ended = 1;
    }
}

/* The host memory behind device memory; NULL: it is none. */
static char *bytes_of(uint64_t address, uint64_t bytes)
{
    static char *(*function)(uint64_t, uint64_t);

    if (function == NULL) {
        *(void **)&function = of_driver("fake_cuda_bytes");
    }
    return (function != NULL) ? function(address, bytes) : NULL;
}

/* -- contexts -- */

ucs_status_t ucp_config_modify(ucp_config_t *config, const char *name, const char *value)
{
    ucs_status_t (*next)(ucp_config_t *, const char *, const char *);
    char transports[256];
    char *at;

    *(void **)&next = real("ucp_config_modify");
    snprintf(transports, sizeof(transports), "%s", value);
    at = (strcmp(name, "TLS") == 0) ? strstr(transports, GPU_TRANSPORTS) : NULL;
    if (at != NULL) {
        *at = fake_ucx_has_fake_gpus() ? '\0' : *at; /* what the UCX at hand does not have */
    }
    return next(config, name, transports);
}

ucs_status_t ucp_init_version(unsigned major, unsigned minor, const ucp_params_t *params, const ucp_config_t *config,
                              ucp_context_h *context_p)
{
    ucs_status_t (*next)(unsigned, unsigned, const ucp_params_t *, const ucp_config_t *, ucp_context_h *);

    *(void **)&next  = real("ucp_init_version");
    fake_ucx.num_eps = (params->field_mask & UCP_PARAM_FIELD_ESTIMATED_NUM_EPS) ? params->estimated_num_eps : 0;
    fake_ucx.num_ppn = (params->field_mask & UCP_PARAM_FIELD_ESTIMATED_NUM_PPN) ? params->estimated_num_ppn : 0;
    return next(major, minor, params, config, context_p);
}

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attributes)
{
    ucs_status_t (*next)(ucp_context_h, ucp_context_attr_t *), status;

    *(void **)&next = real("ucp_context_query");
    status          = next(context, attributes);
    if ((attributes->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES) && (fake_ucx.fault != FAKE_UCX_NO_CUDA) &&
        fake_ucx_has_fake_gpus()) {
        attributes->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    }
    return status;
}

/* -- memory -- */

/* Whether the bytes are registered; with this handle unless it is NULL. */
static int is_registered(uint64_t address, uint64_t bytes, ucp_mem_h memh)
{
    for (int i = 0; i < MAX_REGIONS; i++) {
        if ((regions[i].memh != NULL) && ((memh == NULL) || (regions[i].memh == memh)) && !regions[i].ended &&
            (address >= regions[i].base) && (address + bytes <= regions[i].base + regions[i].bytes)) {
            return 1;
        }
    }
    return 0;
}

int fake_ucx_knows(uint64_t address, uint64_t bytes)
{
    return !fake_ucx_has_fake_gpus() || is_registered(address, bytes, NULL);
}

ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *memh_p)
{
    ucs_status_t (*next)(ucp_context_h, const ucp_mem_map_params_t *, ucp_mem_h *), status;
    ucp_mem_map_params_t behind = *params;
    int at                      = 0;

    *(void **)&next = real("ucp_mem_map");
    if (!(params->field_mask & UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE) || (params->memory_type != UCS_MEMORY_TYPE_CUDA)) {
        return next(context, params, memh_p);
    }
    if (fake_ucx.fault == FAKE_UCX_REFUSES) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (fake_ucx_has_fake_gpus()) {
        behind.address     = bytes_of((uint64_t)(uintptr_t)params->address, params->length);
        behind.memory_type = UCS_MEMORY_TYPE_HOST;
    }
    if (behind.address == NULL) {
        die("%zu bytes at %p are registered as memory of a GPU, which they are not", params->length, params->address);
    }
    status = next(context, &behind, memh_p);
    while ((at < MAX_REGIONS) && (regions[at].memh != NULL)) {
        at++;
    }
    if ((status == UCS_OK) && (at < MAX_REGIONS)) {
        regions[at].base  = (uint64_t)(uintptr_t)params->address;
        regions[at].bytes = params->length;
        regions[at].memh  = *memh_p;
        regions[at].ended = 0;
        fake_ucx.regions++;
    }
    return status;
}

ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh)
{
    ucs_status_t (*next)(ucp_context_h, ucp_mem_h);

    *(void **)&next = real("ucp_mem_unmap");
    for (int i = 0; i < MAX_REGIONS; i++) {
        if (regions[i].memh == memh) {
            if (fake_ucx_has_fake_gpus() && !regions[i].ended &&
                (bytes_of(regions[i].base, regions[i].bytes) == NULL)) {
                die("%" PRIu64 " bytes of a GPU at 0x%" PRIx64 " were freed while registered", regions[i].bytes,
                    regions[i].base);
            }
            regions[i].memh = NULL;
            fake_ucx.regions--;
        }
    }
    return next(context, memh);
}

/* -- messages -- */

/* The caller says that it is memory of a GPU. */
static int is_told(const ucp_request_param_t *params)
{
    return (params->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) && (params->memory_type == UCS_MEMORY_TYPE_CUDA);
}

/* The host memory behind a buffer; NULL: it is host memory itself, or the buffer of a real GPU. Parameters for it. */
static char *behind(const void *buffer, uint64_t bytes, const ucp_request_param_t *params, ucp_request_param_t *host)
{
    uint64_t address = (uint64_t)(uintptr_t)buffer;
    char *found      = bytes_of(address, bytes);
    int told         = is_told(params);

    *host = *params;
    if (fake_ucx_has_fake_gpus() && (told != (found != NULL))) {
        die("%" PRIu64 " bytes at %p are told to be %s, which they are not", bytes, buffer,
            told ? "memory of a GPU" : "host memory");
    }
    if (!told) {
        return NULL;
    }
    if (!(params->op_attr_mask & UCP_OP_ATTR_FIELD_MEMH) || !is_registered(address, bytes, params->memh)) {
        die("%" PRIu64 " bytes of a GPU at %p are not registered, or their handle is missing or another's", bytes,
            buffer);
    }
    host->op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMH;
    host->memory_type = UCS_MEMORY_TYPE_HOST;
    return found;
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_length, const void *buffer,
                                 size_t count, const ucp_request_param_t *params)
{
    ucs_status_ptr_t (*next)(ucp_ep_h, unsigned, const void *, size_t, const void *, size_t,
                             const ucp_request_param_t *);
    static char others[1 << 20];
    ucp_request_param_t host;
    char *bytes = behind(buffer, count, params, &host);

    *(void **)&next = real("ucp_am_send_nbx");
    fake_ucx.sent_bytes += is_told(params) ? count : 0;
    if (bytes == NULL) {
        return next(ep, id, header, header_length, buffer, count, params);
    }
    if (!(params->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) || !(params->flags & UCP_AM_SEND_FLAG_RNDV)) {
        die("%zu bytes of a GPU may go eagerly", count);
    }
    switch (fake_ucx.fault) {
    case FAKE_UCX_FAILS:
        return UCS_STATUS_PTR(UCS_ERR_IO_ERROR);
    case FAKE_UCX_CONFUSES:
        return next(ep, id, header, header_length, others, (count < sizeof(others)) ? count : sizeof(others), &host);
    case FAKE_UCX_LOSES: /* nobody listens to this number */
        return next(ep, id + 17, header, header_length, bytes, count, &host);
    default:
        return next(ep, id, header, header_length, bytes, count, &host);
    }
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *descriptor, void *buffer, size_t count,
                                      const ucp_request_param_t *params)
{
    ucs_status_ptr_t (*next)(ucp_worker_h, void *, void *, size_t, const ucp_request_param_t *);
    ucp_request_param_t host;
    char *bytes = behind(buffer, count, params, &host);

    *(void **)&next = real("ucp_am_recv_data_nbx");
    return next(worker, descriptor, (bytes != NULL) ? bytes : buffer, count, (bytes != NULL) ? &host : params);
}
