/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LD_PRELOAD library: ties TCP connections to a rail of the emulated cluster, as an RDMA queue pair is tied to its NIC.
 * The kernel chooses a NIC by destination address only, so that without it a process that owns one NIC would send over
 * every NIC of its node. The subnet of a rail address names the rail (10.(10+rail).0.(node+1), see the script
 * "cluster").
 *
 * BIND_RAIL=<device>: every connection to a rail address of another node leaves by this device, also across rails.
 * BIND_RAIL_FOR=<text>: those alone that a library with this text in its path opens.
 * BIND_RAIL not set: it leaves by the device of the destination's rail, so that a process with one UCX context per NIC
 * keeps its contexts apart.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define RAIL_NET 10       /* first octet of rail addresses */
#define RAIL_FIRST_NET 10 /* second octet of rail 0 */
#define RAIL_MAX 99

typedef int (*connect_func_t)(int fd, const struct sockaddr *address, socklen_t length);

/* The rail that an address belongs to, or -1. */
static int rail_of_address(const struct sockaddr *address, socklen_t length)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)address;
    uint32_t ip;
    int rail;

    if (length < sizeof(*in) || address->sa_family != AF_INET)
        return -1;
    ip   = ntohl(in->sin_addr.s_addr);
    rail = (int)((ip >> 16) & 255) - RAIL_FIRST_NET;
    return (ip >> 24) == RAIL_NET && rail >= 0 && rail < RAIL_MAX ? rail : -1;
}

/* Whether the address is one of this node's own: such traffic stays inside the node. */
static int is_own_address(int fd, const char *device, const struct sockaddr *address)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)address, *own;
    struct ifreq request         = {0};

    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device);
    if (ioctl(fd, SIOCGIFADDR, &request) != 0)
        return 0;
    own = (const struct sockaddr_in *)&request.ifr_addr;
    return (ntohl(own->sin_addr.s_addr) & 0xffff) == (ntohl(in->sin_addr.s_addr) & 0xffff);
}

/* The device that BIND_RAIL says for a connection that code at this address opens; NULL: none. */
static const char *forced_device(const void *caller)
{
    const char *device = getenv("BIND_RAIL"), *library = getenv("BIND_RAIL_FOR");
    Dl_info object;

    if (device == NULL || device[0] == '\0')
        return NULL;
    if (library != NULL && (dladdr(caller, &object) == 0 || strstr(object.dli_fname, library) == NULL))
        return NULL;
    return device;
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    static connect_func_t real_connect;
    int rail           = rail_of_address(address, length);
    const char *forced = forced_device(__builtin_return_address(0));
    char device[IFNAMSIZ];

    if (real_connect == NULL)
        *(void **)&real_connect = dlsym(RTLD_NEXT, "connect");
    if (rail < 0)
        return real_connect(fd, address, length);

    if (forced != NULL)
        snprintf(device, sizeof(device), "%s", forced);
    else
        snprintf(device, sizeof(device), "rail%d", rail);
    if (!is_own_address(fd, device, address) &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device) + 1) != 0) {
        fprintf(stderr, "bind_rail: cannot bind a socket to '%s': %s; the connection is refused\n", device,
                strerror(errno));
        errno = ENETUNREACH;
        return -1;
    }
    return real_connect(fd, address, length);
}
