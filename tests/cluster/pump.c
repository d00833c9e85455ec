/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A byte pump for the cluster's self test: one TCP connection, a fixed number of bytes one way, every byte checked.
 *
 *   pump serve PORT            waits for one connection; prints "BYTES SECONDS"
 *   pump send ADDRESS PORT BYTES
 *
 * The seconds count from before the first byte was sent, which the sender tells, to when the last was read: a busy
 * machine can make them longer but not shorter.
 * Both give up after PUMP_DEADLINE_S seconds in all. Exit code 0 only when every byte arrived as sent.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PUMP_DEADLINE_S 400
#define PUMP_BLOCK_BYTES 65536
#define PUMP_PERIOD 251 /* prime: shifted data does not match */

static int pump_fail(const char *what)
{
    perror(what);
    return 1;
}

static double pump_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int pump_drain(int fd)
{
    static unsigned char block[PUMP_BLOCK_BYTES];
    uint64_t total = 0;
    double start, end;
    ssize_t got;

    if (recv(fd, &start, sizeof(start), MSG_WAITALL) != (ssize_t)sizeof(start))
        return pump_fail("pump: no start");
    end = start;
    while ((got = read(fd, block, sizeof(block))) > 0) {
        end = pump_now_s();
        for (ssize_t i = 0; i < got; i++, total++) {
            if (block[i] != total % PUMP_PERIOD) {
                fprintf(stderr, "pump: byte %llu is wrong\n", (unsigned long long)total);
                return 1;
            }
        }
    }
    if (got < 0)
        return pump_fail("pump: read");
    printf("%llu %.6f\n", (unsigned long long)total, end - start);
    return 0;
}

static int pump_serve(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0), fd;

    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(listener, 1) != 0)
        return pump_fail("pump: listen");
    fd = accept(listener, NULL, NULL);
    return fd < 0 ? pump_fail("pump: accept") : pump_drain(fd);
}

/* The server may not listen yet: tries until the deadline. */
static int pump_connect(const struct sockaddr_in *address)
{
    const struct timespec pause = {.tv_nsec = 20000000};

    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
            return fd;
        close(fd);
        nanosleep(&pause, NULL);
    }
}

static int pump_send(const char *host, uint16_t port, uint64_t bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    unsigned char block[PUMP_BLOCK_BYTES];
    uint64_t sent = 0;
    double start;
    int fd;

    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "pump: '%s' is not an address\n", host);
        return 1;
    }
    fd = pump_connect(&address);
    if (fd < 0)
        return pump_fail("pump: connect");
    start = pump_now_s();
    if (write(fd, &start, sizeof(start)) != (ssize_t)sizeof(start))
        return pump_fail("pump: write");
    while (sent < bytes) {
        size_t want = bytes - sent < sizeof(block) ? (size_t)(bytes - sent) : sizeof(block);
        ssize_t put;

        for (size_t i = 0; i < want; i++)
            block[i] = (unsigned char)((sent + i) % PUMP_PERIOD);
        put = write(fd, block, want);
        if (put < 0)
            return pump_fail("pump: write");
        sent += (uint64_t)put;
    }
    return close(fd) != 0 ? pump_fail("pump: close") : 0;
}

int main(int argc, char **argv)
{
    alarm(PUMP_DEADLINE_S);
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return pump_serve((uint16_t)atoi(argv[2]));
    if (argc == 5 && strcmp(argv[1], "send") == 0)
        return pump_send(argv[2], (uint16_t)atoi(argv[3]), strtoull(argv[4], NULL, 10));
    fprintf(stderr, "usage: pump serve PORT | pump send ADDRESS PORT BYTES\n");
    return 2;
}
