/* SPDX-License-Identifier: BSD-3-Clause */
/* Identity of a node, from what the kernel says about names and namespaces. */
#include "exec/node_key.h"
#include "topo/machine.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

uint64_t mpath_key_mix(uint64_t key, const void *data, size_t bytes)
{
    const unsigned char *byte = data;

    key ^= bytes * 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < bytes; i++) {
        key = (key ^ byte[i]) * 0x100000001b3ull;
        key ^= key >> 29;
    }
    return key;
}

static uint64_t mix_file(uint64_t key, const char *path)
{
    char text[128];
    ssize_t length;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return key; /* not told: then the other criteria decide */
    }
    length = read(fd, text, sizeof(text));
    close(fd);
    return length > 0 ? mpath_key_mix(key, text, (size_t)length) : key;
}

static uint64_t mix_namespace(uint64_t key, const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        return key;
    }
    key = mpath_key_mix(key, &info.st_dev, sizeof(info.st_dev));
    return mpath_key_mix(key, &info.st_ino, sizeof(info.st_ino));
}

uint64_t mpath_node_key(const char *host)
{
    char name[MPATH_HOST_NAME_MAX];
    uint64_t key;

    if (host == NULL) {
        mpath_machine_host(name);
        host = name;
    }
    key = mpath_key_mix(0xcbf29ce484222325ull, host, strlen(host));
    key = mix_file(key, "/proc/sys/kernel/random/boot_id");
    key = mix_namespace(key, "/proc/self/ns/ipc");
    return mix_namespace(key, "/proc/self/ns/pid");
}

uint64_t mpath_shared_memory_free(void)
{
    struct statvfs info;

    if (statvfs("/dev/shm", &info) != 0) {
        return 0;
    }
    return (uint64_t)info.f_bavail * info.f_frsize;
}
