/* SPDX-License-Identifier: BSD-3-Clause */
/* What NVML is asked and what is made of its answers, with a library that the test makes up: nothing is taken for granted. */
#include "capture.h"
#include "topo/discover/nvml.h"

#include <dlfcn.h>
#include <stdio.h>

#define GPUS 3
#define REFUSED 3

/* As nvml.h of NVIDIA has them. */
typedef struct pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char text[32];
} pci_t;

typedef struct field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, status;
    unsigned long long value;
} field_t;

static struct {
    const char *without; /* symbol that the library lacks */
    int init_fails, libraries, open;
    int by_pci_fails, count_fails, index_fails, pci_fails, generation_fails, width_fails;
    unsigned speed, speed_all, version, to_switch; /* 0: refused */
    unsigned first_link, last_link, asked_version;
    int remote_type; /* -1: refused */
    int remote_pci_fails;
    int reads[GPUS], writes[GPUS]; /* to each GPU; -1: refused */
    unsigned count;
} nvml;

static int library;

void *__wrap_dlopen(const char *name, int flags);
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlsym(void *handle, const char *name);
void *__real_dlsym(void *handle, const char *name);
int __wrap_dlclose(void *handle);
int __real_dlclose(void *handle);

static int init(void)
{
    nvml.open += !nvml.init_fails;
    return nvml.init_fails ? REFUSED : 0;
}

static int end(void)
{
    nvml.open--;
    return 0;
}

static int by_pci(const char *text, void **device)
{
    assert_string_equal(text, "0000:10:00.0");
    *device = &nvml;
    return nvml.by_pci_fails ? REFUSED : 0;
}

static int generation(void *device, unsigned *value)
{
    assert_ptr_equal(device, &nvml);
    *value = 5;
    return nvml.generation_fails ? REFUSED : 0;
}

static int width(void *device, unsigned *value)
{
    assert_ptr_equal(device, &nvml);
    *value = 16;
    return nvml.width_fails ? REFUSED : 0;
}

/* Links outside the range are refused in turns, or not active. */
static int link_state(void *device, unsigned link, int *active)
{
    assert_ptr_equal(device, &nvml);
    assert_true(link < MPATH_NVML_MAX_LINKS);
    *active = (link >= nvml.first_link) && (link <= nvml.last_link);
    return (!*active && (link % 2)) ? (*active = 1, REFUSED) : 0;
}

static int link_version(void *device, unsigned link, unsigned *version)
{
    assert_ptr_equal(device, &nvml);
    assert_in_range(link, nvml.first_link, nvml.last_link);
    nvml.asked_version++;
    *version = nvml.version;
    return (nvml.version == 0) ? REFUSED : 0;
}

static int link_remote(void *device, unsigned link, pci_t *pci)
{
    assert_ptr_equal(device, &nvml);
    memset(pci, 0, sizeof(*pci));
    pci->domain = 0x10001;
    pci->bus    = 0x20 + link;
    pci->device = 0x3;
    return nvml.remote_pci_fails ? REFUSED : 0;
}

static int link_remote_type(void *device, unsigned link, int *type)
{
    (void)link;
    assert_ptr_equal(device, &nvml);
    *type = (nvml.remote_type < 0) ? 0 : nvml.remote_type;
    return (nvml.remote_type < 0) ? REFUSED : 0;
}

static int fields(void *device, int count, field_t *field)
{
    unsigned value = 0;

    assert_ptr_equal(device, &nvml);
    assert_int_equal(count, 1);
    if (field->id == 164) {
        assert_in_range(field->scope, nvml.first_link, nvml.last_link);
        value = (field->scope > nvml.first_link) ? nvml.speed : 0; /* the first link tells none */
    } else if (field->id == 90) {
        value = nvml.speed_all;
    } else if (field->id == 147) {
        value = nvml.to_switch;
    } else {
        field->value = 77;
        return REFUSED;
    }
    field->status = (value == 0) ? REFUSED : 0;
    field->value  = (value == 0) ? 99 : value;
    return 0;
}

static int count(unsigned *count_p)
{
    *count_p = nvml.count;
    return nvml.count_fails ? REFUSED : 0;
}

static int by_index(unsigned index, void **device)
{
    assert_true(index < nvml.count);
    *device = &nvml.reads[index % GPUS];
    return (nvml.index_fails && (index == 1)) ? REFUSED : 0;
}

static int pci_info(void *device, pci_t *pci)
{
    memset(pci, 0, sizeof(*pci));
    pci->bus = 0x10 + (unsigned)((int *)device - nvml.reads);
    return (nvml.pci_fails && (pci->bus == 0x11)) ? REFUSED : 0;
}

static int p2p(void *device, int *peer, int what, int *status)
{
    int answer = (what == 0) ? *peer : nvml.writes[peer - nvml.reads];

    assert_ptr_equal(device, &nvml);
    assert_in_range(what, 0, 1);
    *status = (answer < 0) ? 0 : answer;
    return (answer < 0) ? REFUSED : 0;
}

/* Of the library and of what it is asked about; everything else goes on as it does. */
void *__wrap_dlopen(const char *name, int flags)
{
    if ((name == NULL) || (strcmp(name, "libnvidia-ml.so.1") != 0)) {
        return __real_dlopen(name, flags);
    }
    nvml.libraries += (nvml.without == NULL) || (strcmp(nvml.without, "library") != 0);
    return (nvml.libraries > 0) ? &library : NULL;
}

int __wrap_dlclose(void *handle)
{
    if (handle != &library) {
        return __real_dlclose(handle);
    }
    nvml.libraries--;
    return 0;
}

#define AS_FOUND(_name, _function)                                                                                     \
    {                                                                                                                  \
        _name, (void (*)(void))_function                                                                               \
    }

static const struct {
    const char *name;
    void (*function)(void);
} symbols[] = {AS_FOUND("nvmlInit_v2", init),
               AS_FOUND("nvmlShutdown", end),
               AS_FOUND("nvmlDeviceGetHandleByPciBusId_v2", by_pci),
               AS_FOUND("nvmlDeviceGetMaxPcieLinkGeneration", generation),
               AS_FOUND("nvmlDeviceGetMaxPcieLinkWidth", width),
               AS_FOUND("nvmlDeviceGetNvLinkState", link_state),
               AS_FOUND("nvmlDeviceGetNvLinkVersion", link_version),
               AS_FOUND("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_remote),
               AS_FOUND("nvmlDeviceGetFieldValues", fields),
               AS_FOUND("nvmlDeviceGetNvLinkRemoteDeviceType", link_remote_type), /* from here on optional */
               AS_FOUND("nvmlDeviceGetCount_v2", count),
               AS_FOUND("nvmlDeviceGetHandleByIndex_v2", by_index),
               AS_FOUND("nvmlDeviceGetPciInfo_v3", pci_info),
               AS_FOUND("nvmlDeviceGetP2PStatus", p2p)};

#define SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))
#define NEEDED 9

void *__wrap_dlsym(void *handle, const char *name)
{
    void *found = NULL;

    if (handle != &library) {
        return __real_dlsym(handle, name);
    }
    for (size_t i = 0; i < SYMBOLS; i++) {
        if ((strcmp(symbols[i].name, name) == 0) && ((nvml.without == NULL) || (strcmp(nvml.without, name) != 0))) {
            memcpy(&found, &symbols[i].function, sizeof(found));
        }
    }
    return found;
}

/* An H100: links 2 to 5 to switches, and two others that it reaches. */
static void reset(void)
{
    memset(&nvml, 0, sizeof(nvml));
    nvml.speed       = 26562;
    nvml.first_link  = 2;
    nvml.last_link   = 5;
    nvml.remote_type = 2;
    nvml.count       = GPUS;
}

static mpath_nvml_gpu_t read_gpu(void)
{
    mpath_nvml_gpu_t gpu;
    mpath_nvml_t *opened;

    memset(&gpu, 0x5a, sizeof(gpu));
    assert_int_equal(mpath_nvml_open(&opened), MPATH_OK);
    assert_int_equal(mpath_nvml_read(opened, "0000:10:00.0", &gpu), MPATH_OK);
    assert_int_equal(nvml.open, 1);
    mpath_nvml_close(opened);
    assert_int_equal(nvml.open, 0);
    assert_int_equal(nvml.libraries, 0);
    return gpu;
}

static void test_libraries(void **state)
{
    mpath_nvml_t *opened;

    (void)state;
    reset();
    nvml.without = "library";
    assert_int_equal(mpath_nvml_open(&opened), MPATH_ERR_UNSUPPORTED);
    for (size_t i = 0; i < NEEDED; i++) {
        reset();
        nvml.without = symbols[i].name;
        assert_int_equal(mpath_nvml_open(&opened), MPATH_ERR_UNSUPPORTED);
        assert_int_equal(nvml.libraries, 0);
        assert_int_equal(nvml.open, 0);
    }
    reset();
    nvml.init_fails = 1;
    assert_int_equal(mpath_nvml_open(&opened), MPATH_ERR_UNSUPPORTED);
    assert_int_equal(nvml.libraries, 0);
    for (size_t i = NEEDED; i < SYMBOLS; i++) { /* without these less is known */
        reset();
        nvml.without = symbols[i].name;
        assert_int_equal(read_gpu().num_links, 4);
        assert_int_equal(read_gpu().num_peers, (i == NEEDED) ? GPUS - 1 : 0);
    }
    reset();
    nvml.by_pci_fails = 1;
    assert_int_equal(mpath_nvml_open(&opened), MPATH_OK);
    assert_int_equal(mpath_nvml_read(opened, "0000:10:00.0", &(mpath_nvml_gpu_t){0}), MPATH_ERR_UNSUPPORTED);
    mpath_nvml_close(opened);
}

static void test_pcie(void **state)
{
    mpath_nvml_gpu_t gpu;

    (void)state;
    reset();
    gpu = read_gpu();
    assert_int_equal(gpu.pcie_generation, 5);
    assert_int_equal(gpu.pcie_width, 16);
    nvml.generation_fails = 1;
    assert_int_equal(read_gpu().pcie_generation, 0);
    nvml.width_fails = 1;
    assert_int_equal(read_gpu().pcie_width, 0);
}

static void assert_links(mpath_nvml_remote_t remote)
{
    mpath_nvml_gpu_t gpu = read_gpu();

    assert_int_equal(gpu.num_links, nvml.last_link - nvml.first_link + 1);
    for (int i = 0; i < gpu.num_links; i++) {
        char text[MPATH_NVML_PCI_MAX] = "";

        if (!nvml.remote_pci_fails) {
            snprintf(text, sizeof(text), "0001:%02x:03.0", (0x20 + nvml.first_link + (unsigned)i) & 0xff);
        }
        assert_string_equal(gpu.links[i].pci, text);
        assert_int_equal(gpu.links[i].remote, remote);
    }
}

static void test_links(void **state)
{
    (void)state;
    reset();
    assert_links(MPATH_NVML_REMOTE_SWITCH);
    nvml.remote_type = 0;
    assert_links(MPATH_NVML_REMOTE_GPU);
    nvml.to_switch = 1; /* what a link tells of itself counts */
    assert_links(MPATH_NVML_REMOTE_GPU);
    nvml.remote_type = 1;
    assert_links(MPATH_NVML_REMOTE_SWITCH);
    nvml.remote_type = -1;
    assert_links(MPATH_NVML_REMOTE_SWITCH);
    nvml.to_switch = 0;
    assert_links(MPATH_NVML_REMOTE_OTHER);
    nvml.remote_pci_fails = 1;
    assert_links(MPATH_NVML_REMOTE_OTHER);
    nvml.first_link = 0;
    nvml.last_link  = MPATH_NVML_MAX_LINKS - 1;
    assert_links(MPATH_NVML_REMOTE_OTHER);
}

/* That of a link, else that of all, else what the version is known for. */
static void test_speeds(void **state)
{
    static const unsigned mbps[] = {0, 20000, 25781, 25781, 26562, 53125, 0, 0};

    (void)state;
    reset();
    nvml.speed_all = 17;
    nvml.version   = 3;
    assert_true(read_gpu().link_bps == UINT64_C(26562000000));
    nvml.speed = 0;
    assert_true(read_gpu().link_bps == UINT64_C(17000000));
    nvml.speed_all = 0;
    for (unsigned version = 0; version < sizeof(mbps) / sizeof(mbps[0]); version++) {
        nvml.version       = version;
        nvml.asked_version = 0;
        assert_true(read_gpu().link_bps == mbps[version] * UINT64_C(1000000));
        assert_int_equal(nvml.asked_version, (version == 0) ? 4 : 1);
    }
}

/* `first` and `second`: -1 unknown, else whether the other GPUs are reached. */
static void assert_peers(int first, int second)
{
    mpath_nvml_gpu_t gpu = read_gpu();
    int found            = 0;

    if (first >= 0) {
        assert_string_equal(gpu.peers[found].pci, "0000:11:00.0");
        assert_int_equal(gpu.peers[found++].reached, first);
    }
    if (second >= 0) {
        assert_string_equal(gpu.peers[found].pci, "0000:12:00.0");
        assert_int_equal(gpu.peers[found++].reached, second);
    }
    assert_int_equal(gpu.num_peers, found);
}

static void test_peers(void **state)
{
    (void)state;
    reset();
    assert_peers(1, 1);
    nvml.reads[1] = 5;
    assert_peers(0, 1);
    nvml.reads[1]  = 0;
    nvml.writes[2] = 1;
    assert_peers(1, 0);
    nvml.reads[1] = 6; /* unknown */
    assert_peers(-1, 0);
    nvml.reads[1]  = 0;
    nvml.writes[1] = 6;
    assert_peers(-1, 0);
    nvml.writes[1] = -1;
    assert_peers(-1, 0);
    nvml.writes[1] = 0;
    nvml.reads[1]  = -1;
    assert_peers(-1, 0);
    reset();
    nvml.index_fails = 1;
    assert_peers(-1, 1);
    nvml.index_fails = 0;
    nvml.pci_fails   = 1;
    assert_peers(-1, 1);
    nvml.count_fails = 1;
    assert_peers(-1, -1);
    reset();
    nvml.count = 3 * MPATH_NVML_MAX_PEERS; /* more than there is room for */
    assert_int_equal(read_gpu().num_peers, MPATH_NVML_MAX_PEERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_libraries), cmocka_unit_test(test_pcie),
                                       cmocka_unit_test(test_links), cmocka_unit_test(test_speeds),
                                       cmocka_unit_test(test_peers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
