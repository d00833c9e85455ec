/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libnvidia-ml.so.1 for tests, beside the fake CUDA driver (tests/fake_cuda): the same GPUs, as FAKE_CUDA_DEVICES
 * says.
 *
 * FAKE_NVML_LINKS   switch: 18 NVLinks of each GPU to a switch (default); mesh: 6 to each other GPU; chain: 12 to the
 *                   GPUs before and behind; none; silent: the library tells only PCIe
 * FAKE_NVML_HIDDEN  set: only the GPUs of CUDA_VISIBLE_DEVICES, as where a container or a control group hides the others
 * FAKE_CUDA_WITHOUT  peers: GPUs do not reach each other
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_API __attribute__((visibility("default")))
#define FIRST_BUS 0x10
#define LINKS 18

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

/* As NVIDIA's nvml.h lays them out. */
typedef struct fake_pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char text[32];
} fake_pci_t;

typedef struct fake_field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, status;
    unsigned long long value;
} fake_field_t;

static const char *links(void)
{
    const char *text = getenv("FAKE_NVML_LINKS");

    return text != NULL ? text : "switch";
}

static int devices(void)
{
    const char *text = getenv("FAKE_CUDA_DEVICES");

    return text != NULL ? atoi(text) : 4;
}

static int is_shown(int gpu)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *end;

    if (getenv("FAKE_NVML_HIDDEN") == NULL || visible == NULL) {
        return 1;
    }
    while (*visible != '\0' && strtol(visible, &end, 10) != gpu) {
        visible = *end == ',' ? end + 1 : end;
    }
    return *visible != '\0';
}

/* A handle is the number of the device, from 1. */
static int number_of(const void *device)
{
    return (int)(long)device - 1;
}

/* The GPU at the other end of a link; -1: a switch, -2: the link is down. */
static int other_end(int gpu, unsigned link)
{
    int end;

    if (strcmp(links(), "switch") == 0) {
        return link < LINKS ? -1 : -2;
    }
    if (strcmp(links(), "mesh") == 0) {
        end = (int)link / 6;
        end += end >= gpu;
        return link < LINKS && end < devices() ? end : -2;
    }
    if (strcmp(links(), "chain") == 0) {
        end = link < 12 ? gpu - 1 : gpu + 1;
        return link < 24 && end >= 0 && end < devices() ? end : -2;
    }
    return -2;
}

FAKE_API int nvmlInit_v2(void)
{
    return OK;
}

FAKE_API int nvmlShutdown(void)
{
    return OK;
}

FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device)
{
    unsigned domain, bus, slot;

    if (sscanf(pci, "%x:%x:%x", &domain, &bus, &slot) != 3 || bus < FIRST_BUS ||
        bus >= FIRST_BUS + (unsigned)devices() || !is_shown((int)(bus - FIRST_BUS))) {
        return NOT_FOUND;
    }
    *device = (void *)(long)(bus - FIRST_BUS + 1);
    return OK;
}

FAKE_API int nvmlDeviceGetCount_v2(unsigned *count)
{
    int gpu;

    for (*count = 0, gpu = 0; gpu < devices(); gpu++) {
        *count += (unsigned)is_shown(gpu);
    }
    return OK;
}

FAKE_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    int gpu;

    for (gpu = 0; gpu < devices(); gpu++) {
        if (is_shown(gpu) && index-- == 0) {
            *device = (void *)(long)(gpu + 1);
            return OK;
        }
    }
    return INVALID;
}

FAKE_API int nvmlDeviceGetPciInfo_v3(void *device, fake_pci_t *pci)
{
    memset(pci, 0, sizeof(*pci));
    pci->bus = FIRST_BUS + (unsigned)number_of(device);
    return OK;
}

/* 0: they reach each other so, 5: they do not. */
FAKE_API int nvmlDeviceGetP2PStatus(void *device, void *peer, int what, int *status)
{
    const char *without = getenv("FAKE_CUDA_WITHOUT");

    if (strcmp(links(), "silent") == 0 || device == peer || what < 0 || what > 1) {
        return NOT_SUPPORTED;
    }
    *status = without != NULL && strstr(without, "peers") != NULL ? 5 : 0;
    return OK;
}

FAKE_API int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation)
{
    (void)device;
    *generation = 5;
    return OK;
}

FAKE_API int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *width)
{
    (void)device;
    *width = 16;
    return OK;
}

FAKE_API int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
    if (strcmp(links(), "silent") == 0) {
        return NOT_SUPPORTED;
    }
    *active = other_end(number_of(device), link) > -2;
    return OK;
}

FAKE_API int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version)
{
    (void)device;
    (void)link;
    *version = 4;
    return OK;
}

FAKE_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, fake_pci_t *pci)
{
    int end = other_end(number_of(device), link);

    memset(pci, 0, sizeof(*pci));
    pci->bus = end < 0 ? 0x80 : FIRST_BUS + (unsigned)end;
    return OK;
}

FAKE_API int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type)
{
    *type = other_end(number_of(device), link) < 0 ? 2 : 0;
    return OK;
}

/* The speed of the links in MB/s; nothing else is known. */
FAKE_API int nvmlDeviceGetFieldValues(void *device, int count, fake_field_t *fields)
{
    int i;

    (void)device;
    for (i = 0; i < count; i++) {
        fields[i].status = fields[i].id == 90 || fields[i].id == 164 ? OK : NOT_SUPPORTED;
        fields[i].value  = 26562;
    }
    return OK;
}
