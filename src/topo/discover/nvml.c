/* SPDX-License-Identifier: BSD-3-Clause */
/* NVML, loaded at run time: PCIe and NVLinks of GPUs. */
#include "topo/discover/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvmlDevice_st *nvml_device_t;

typedef struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char text[32];
} nvml_pci_t;

typedef struct nvml_field {
    unsigned id, scope; /* scope: the link */
    long long timestamp, latency_us;
    int type, status;
    union {
        double real;
        unsigned number;
        unsigned long long large;
    } value;
} nvml_field_t;

enum {
    NVML_SUCCESS               = 0,
    NVML_FIELD_LINK_SPEED_ALL  = 90,  /* MB/s, of the active links of a GPU */
    NVML_FIELD_LINK_SPEED      = 164, /* MB/s, of the link in scope */
    NVML_FIELD_LINKS_TO_SWITCH = 147, /* number of them */
    NVML_REMOTE_TYPE_GPU       = 0,
    NVML_REMOTE_TYPE_SWITCH    = 2,
    NVML_P2P_READ              = 0, /* what may be asked of two GPUs, */
    NVML_P2P_WRITE             = 1,
    NVML_P2P_OK                = 0, /* and two of the answers */
    NVML_P2P_UNKNOWN           = 6,
    NVML_MAX_LINKS_PROBED      = MPATH_NVML_MAX_LINKS
};

/* X(member, symbol, (parameters)); those of the second list are missing in older libraries. */
#define NVML_FUNCTIONS(X)                                                                                              \
    X(init, nvmlInit_v2, (void))                                                                                       \
    X(shutdown, nvmlShutdown, (void))                                                                                  \
    X(by_pci, nvmlDeviceGetHandleByPciBusId_v2, (const char *pci, nvml_device_t *device))                              \
    X(generation, nvmlDeviceGetMaxPcieLinkGeneration, (nvml_device_t device, unsigned *generation))                    \
    X(width, nvmlDeviceGetMaxPcieLinkWidth, (nvml_device_t device, unsigned *width))                                   \
    X(link_state, nvmlDeviceGetNvLinkState, (nvml_device_t device, unsigned link, int *active))                        \
    X(link_version, nvmlDeviceGetNvLinkVersion, (nvml_device_t device, unsigned link, unsigned *version))              \
    X(link_remote, nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvml_device_t device, unsigned link, nvml_pci_t *pci))        \
    X(fields, nvmlDeviceGetFieldValues, (nvml_device_t device, int count, nvml_field_t *fields))

#define NVML_OPTIONAL_FUNCTIONS(X)                                                                                     \
    X(link_remote_type, nvmlDeviceGetNvLinkRemoteDeviceType, (nvml_device_t device, unsigned link, int *type))         \
    X(count, nvmlDeviceGetCount_v2, (unsigned *count))                                                                 \
    X(by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvml_device_t *device))                                \
    X(pci, nvmlDeviceGetPciInfo_v3, (nvml_device_t device, nvml_pci_t * pci))                                          \
    X(p2p, nvmlDeviceGetP2PStatus, (nvml_device_t device, nvml_device_t peer, int what, int *status))

#define NVML_MEMBER(_member, _symbol, _parameters) int(*_member) _parameters;

struct mpath_nvml {
    void *library;
    NVML_FUNCTIONS(NVML_MEMBER)
    NVML_OPTIONAL_FUNCTIONS(NVML_MEMBER)
};

mpath_status_t mpath_nvml_open(mpath_nvml_t **nvml_p)
{
    mpath_nvml_t *nvml = calloc(1, sizeof(*nvml));
    int missing        = 0;

    if (nvml == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL) {
        goto err_free;
    }
#define LOAD(_member, _symbol, _parameters)                                                                            \
    *(void **)&nvml->_member = dlsym(nvml->library, #_symbol);                                                         \
    missing |= (nvml->_member == NULL);
    NVML_OPTIONAL_FUNCTIONS(LOAD)
    missing = 0;
    NVML_FUNCTIONS(LOAD)
#undef LOAD
    if (missing || (nvml->init() != NVML_SUCCESS)) {
        goto err_unload;
    }
    *nvml_p = nvml;
    return MPATH_OK;

err_unload:
    dlclose(nvml->library);
err_free:
    free(nvml);
    return MPATH_ERR_UNSUPPORTED;
}

void mpath_nvml_close(mpath_nvml_t *nvml)
{
    nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

/* NVML writes domains with eight digits, sysfs with four. */
static void pci_text(const nvml_pci_t *pci, char text[MPATH_NVML_PCI_MAX])
{
    snprintf(text, MPATH_NVML_PCI_MAX, "%04x:%02x:%02x.0", pci->domain & 0xffffu, pci->bus & 0xffu,
             pci->device & 0x1fu);
}

static unsigned field_read(const mpath_nvml_t *nvml, nvml_device_t device, unsigned id, unsigned scope)
{
    nvml_field_t field = {.id = id, .scope = scope};

    if ((nvml->fields(device, 1, &field) != NVML_SUCCESS) || (field.status != NVML_SUCCESS)) {
        return 0;
    }
    return field.value.number;
}

/* One direction, as signalled, where the library tells no speed: by generation of NVLink. */
static uint64_t version_bps(unsigned version)
{
    static const unsigned mbps[] = {0, 20000, 25781, 25781, 26562, 53125};

    return (version < sizeof(mbps) / sizeof(mbps[0])) ? mbps[version] * UINT64_C(1000000) : 0;
}

static mpath_nvml_remote_t remote_kind(const mpath_nvml_t *nvml, nvml_device_t device, unsigned link)
{
    int type;

    if ((nvml->link_remote_type != NULL) && (nvml->link_remote_type(device, link, &type) == NVML_SUCCESS)) {
        if (type == NVML_REMOTE_TYPE_GPU) {
            return MPATH_NVML_REMOTE_GPU;
        }
        if (type == NVML_REMOTE_TYPE_SWITCH) {
            return MPATH_NVML_REMOTE_SWITCH;
        }
    }
    return MPATH_NVML_REMOTE_OTHER;
}

static void read_links(const mpath_nvml_t *nvml, nvml_device_t device, mpath_nvml_gpu_t *gpu)
{
    unsigned link, version = 0, to_switch = field_read(nvml, device, NVML_FIELD_LINKS_TO_SWITCH, 0), speed = 0;
    mpath_nvml_link_t *found;
    nvml_pci_t pci;
    int active;

    for (link = 0; link < NVML_MAX_LINKS_PROBED; link++) {
        if ((nvml->link_state(device, link, &active) != NVML_SUCCESS) || !active) {
            continue;
        }
        found         = &gpu->links[gpu->num_links++];
        found->remote = remote_kind(nvml, device, link);
        if (nvml->link_remote(device, link, &pci) == NVML_SUCCESS) {
            pci_text(&pci, found->pci);
        }
        if ((found->remote == MPATH_NVML_REMOTE_OTHER) && (to_switch > 0)) {
            found->remote = MPATH_NVML_REMOTE_SWITCH;
        }
        speed = (speed > 0) ? speed : field_read(nvml, device, NVML_FIELD_LINK_SPEED, link);
        if (version == 0) {
            (void)nvml->link_version(device, link, &version);
        }
    }
    speed         = (speed > 0) ? speed : field_read(nvml, device, NVML_FIELD_LINK_SPEED_ALL, 0);
    gpu->link_bps = (speed > 0) ? speed * UINT64_C(1000000) : version_bps(version);
}

static int p2p_status(const mpath_nvml_t *nvml, nvml_device_t device, nvml_device_t peer, int what)
{
    int status;

    return (nvml->p2p(device, peer, what, &status) == NVML_SUCCESS) ? status : NVML_P2P_UNKNOWN;
}

static void read_peers(const mpath_nvml_t *nvml, nvml_device_t device, const char *own, mpath_nvml_gpu_t *gpu)
{
    unsigned count, index;
    mpath_nvml_peer_t peer;
    nvml_device_t other;
    nvml_pci_t pci;
    int reads, writes;

    if ((nvml->count == NULL) || (nvml->by_index == NULL) || (nvml->pci == NULL) || (nvml->p2p == NULL) ||
        (nvml->count(&count) != NVML_SUCCESS)) {
        return;
    }
    for (index = 0; (index < count) && (gpu->num_peers < MPATH_NVML_MAX_PEERS); index++) {
        if ((nvml->by_index(index, &other) != NVML_SUCCESS) || (nvml->pci(other, &pci) != NVML_SUCCESS)) {
            continue;
        }
        pci_text(&pci, peer.pci);
        reads  = p2p_status(nvml, device, other, NVML_P2P_READ);
        writes = p2p_status(nvml, device, other, NVML_P2P_WRITE);
        if ((strcmp(peer.pci, own) != 0) && (reads != NVML_P2P_UNKNOWN) && (writes != NVML_P2P_UNKNOWN)) {
            peer.reached                 = (reads == NVML_P2P_OK) && (writes == NVML_P2P_OK);
            gpu->peers[gpu->num_peers++] = peer;
        }
    }
}

mpath_status_t mpath_nvml_read(const mpath_nvml_t *nvml, const char *pci, mpath_nvml_gpu_t *gpu_p)
{
    nvml_device_t device;
    unsigned value;

    if (nvml->by_pci(pci, &device) != NVML_SUCCESS) {
        return MPATH_ERR_UNSUPPORTED;
    }
    memset(gpu_p, 0, sizeof(*gpu_p));
    if (nvml->generation(device, &value) == NVML_SUCCESS) {
        gpu_p->pcie_generation = (int)value;
    }
    if (nvml->width(device, &value) == NVML_SUCCESS) {
        gpu_p->pcie_width = (int)value;
    }
    read_links(nvml, device, gpu_p);
    read_peers(nvml, device, pci, gpu_p);
    return MPATH_OK;
}
