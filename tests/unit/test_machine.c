/* SPDX-License-Identifier: BSD-3-Clause */
/* Discovery, shown machines made of files: which NICs are taken, their rates and states; and this machine itself. */
#define _GNU_SOURCE /* nftw, RTLD_NEXT */
#include "topo/discover/machine.h"
#include "topo/discover/machine_internal.h"
#include "unit/capture.h"

#include <dlfcn.h>
#include <ftw.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/mpath_machine_XXXXXX";

/* Writes ROOT/RELATIVE, with the folders above it. */
static void put(const char *relative, const char *text)
{
    char path[PATH_MAX];
    char *slash;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, relative);
    for (slash = strchr(path + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int remove_entry(const char *path, const struct stat *status, int flag, struct FTW *ftw)
{
    (void)status;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static int setup(void **state)
{
    (void)state;
    strcpy(root + sizeof(root) - 7, "XXXXXX");
    return (mkdtemp(root) != NULL) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* up, addressed, loopback */
static const mpath_interface_t interfaces[] = {
    {"lo", 1, 1, 1},  {"rail10", 1, 1, 0}, {"rail9", 1, 1, 0},  {"rail2", 0, 1, 0}, {"eth0", 1, 0, 0},
    {"br0", 1, 1, 0}, {"veth7", 1, 1, 0},  {"bond-a", 1, 1, 0}, {"tun0", 1, 1, 0},
};

static mpath_machine_source_t source_init(void)
{
    return (mpath_machine_source_t){
        .sysfs = root, .interfaces = interfaces, .num_interfaces = (int)(sizeof(interfaces) / sizeof(interfaces[0]))};
}

static void put_interfaces(void)
{
    put("class/net/rail9/speed", "10000\n");
    put("class/net/rail9/device/numa_node", "1\n");
    put("class/net/rail10/speed", "-1\n");
    put("class/net/rail10/device/numa_node", "-1\n");
    put("class/net/rail2/speed", "400000\n");
    put("class/net/br0/bridge/bridge_id", "x");
    put("class/net/veth7/brport/port_no", "x");
    put("class/net/bond-a/master/x", "x");
    put("class/net/tun0/tun_flags", "x");
}

static void check_nic(const mpath_nic_t *nic, const char *name, int rail, uint64_t rate_bps, int numa, int up)
{
    assert_string_equal(nic->name, name);
    assert_int_equal(nic->rail, rail);
    assert_true(nic->rate_bps == rate_bps);
    assert_int_equal(nic->numa, numa);
    assert_int_equal(nic->up, up);
}

/* Chooses with `rails`; the log must have `warnings` lines. */
static void choose(const mpath_machine_source_t *source, const char *rails, int warnings, mpath_machine_t *machine)
{
    memset(machine, 0, sizeof(*machine));
    strcpy(machine->host, "here");
    capture_start();
    assert_int_equal(mpath_machine_choose(source, rails, machine), MPATH_OK);
    capture_stop();
    assert_int_equal(capture_count(), warnings);
}

static void test_interfaces(void **state)
{
    mpath_machine_source_t source = source_init();
    mpath_machine_t machine;

    (void)state;
    put_interfaces();
    choose(&source, NULL, 0, &machine);
    assert_int_equal(machine.num_nics, 3);
    check_nic(&machine.nics[0], "rail2", 0, 50000000000ull, -1, 0);
    check_nic(&machine.nics[1], "rail9", 1, 1250000000ull, 1, 1);
    check_nic(&machine.nics[2], "rail10", 2, MPATH_DEFAULT_RATE_BPS, -1, 1);
}

/* A VLAN or the like counts where the NIC below it does not. */
static void test_riders(void **state)
{
    static const mpath_interface_t list[] = {{"rail0", 1, 1, 0},   {"rail0.5", 1, 1, 0}, {"rail1", 1, 0, 0},
                                             {"rail1.5", 1, 1, 0}, {"bond0", 1, 1, 0},   {"rail2", 1, 1, 0}};
    mpath_machine_source_t source         = {.sysfs = root, .interfaces = list, .num_interfaces = 6};
    mpath_machine_t machine;

    (void)state;
    put("class/net/rail0.5/lower_rail0/x", "x");
    put("class/net/rail1.5/lower_rail1/x", "x");
    put("class/net/bond0/lower_rail2/x", "x");
    put("class/net/rail2/master/x", "x");
    choose(&source, NULL, 0, &machine);
    assert_int_equal(machine.num_nics, 3);
    assert_string_equal(machine.nics[0].name, "bond0");
    assert_string_equal(machine.nics[1].name, "rail0");
    assert_string_equal(machine.nics[2].name, "rail1.5");
    choose(&source, "rail0.5", 0, &machine);
    assert_int_equal(machine.num_nics, 1);
    assert_string_equal(machine.nics[0].name, "rail0.5");
}

static void test_named(void **state)
{
    mpath_machine_source_t source = source_init();
    char many[256]                = "";
    mpath_machine_t machine;
    int i;

    (void)state;
    put_interfaces();
    /* What is named is taken, fit or not; a missing one keeps its rail's number free. */
    choose(&source, "rail10,rail7,br0,rail9,rail10", 2, &machine);
    assert_non_null(strstr(capture_text(), "parameter rails: here has no NIC 'rail7'; rail 1 is left out here"));
    assert_non_null(strstr(capture_text(), "parameter rails: NIC 'rail10' is listed twice; rail 4 is left out"));
    assert_int_equal(machine.num_nics, 3);
    check_nic(&machine.nics[0], "rail10", 0, MPATH_DEFAULT_RATE_BPS, -1, 1);
    check_nic(&machine.nics[1], "br0", 2, MPATH_DEFAULT_RATE_BPS, -1, 1);
    check_nic(&machine.nics[2], "rail9", 3, 1250000000ull, 1, 1);
    choose(&source, "none", 1, &machine);
    assert_int_equal(machine.num_nics, 0);
    choose(&source, "rail9,", 1, &machine); /* an empty name */
    assert_int_equal(machine.num_nics, 1);
    for (i = 0; i < MPATH_MAX_NICS; i++) {
        strcat(many, "a,");
    }
    choose(&source, strcat(many, "rail9,rail10"), MPATH_MAX_NICS + 1, &machine);
    assert_non_null(strstr(capture_text(), "more than 64 names; those from 'rail9' on are left out"));
    assert_int_equal(machine.num_nics, 0);
}

static int one_port_usable(const char *device, int port)
{
    return (strcmp(device, "mlx5_1") == 0) ? -1 : (port == 1);
}

static void test_ports(void **state)
{
    mpath_machine_source_t source = source_init();
    mpath_machine_t machine;

    (void)state;
    put_interfaces();
    put("class/infiniband/mlx5_10/device/numa_node", "1\n");
    put("class/infiniband/mlx5_10/ports/1/state", "4: ACTIVE\n");
    put("class/infiniband/mlx5_10/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    put("class/infiniband/mlx5_2/device/numa_node", "0\n");
    put("class/infiniband/mlx5_2/ports/1/state", "1: DOWN\n");
    put("class/infiniband/mlx5_2/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
    put("class/infiniband/mlx5_2/ports/2/state", "4: ACTIVE\n");
    put("class/infiniband/mlx5_2/ports/2/rate", "nonsense\n");
    choose(&source, "", 0, &machine);
    assert_int_equal(machine.num_nics, 3);
    check_nic(&machine.nics[0], "mlx5_2:1", 0, 312500000ull, 0, 0);
    check_nic(&machine.nics[1], "mlx5_2:2", 1, MPATH_DEFAULT_RATE_BPS, 0, 1);
    check_nic(&machine.nics[2], "mlx5_10:1", 2, 50000000000ull, 1, 1);
    /* By name: a device stands for its port 1, and interfaces can be added. */
    choose(&source, "mlx5_10,rail9,mlx5_2:2", 0, &machine);
    assert_int_equal(machine.num_nics, 3);
    check_nic(&machine.nics[0], "mlx5_10:1", 0, 50000000000ull, 1, 1);
    check_nic(&machine.nics[1], "rail9", 1, 1250000000ull, 1, 1);
    check_nic(&machine.nics[2], "mlx5_2:2", 2, MPATH_DEFAULT_RATE_BPS, 0, 1);
    /* libibverbs knows better than sysfs. */
    put("class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n");
    source.port_state = one_port_usable;
    choose(&source, NULL, 0, &machine);
    assert_int_equal(machine.num_nics, 3);
    check_nic(&machine.nics[0], "mlx5_2:1", 0, 312500000ull, 0, 1);
    check_nic(&machine.nics[1], "mlx5_2:2", 1, MPATH_DEFAULT_RATE_BPS, 0, 0);
    /* No port is active: the network interfaces are what there is. */
    put("class/infiniband/mlx5_10/ports/1/state", "1: DOWN\n");
    put("class/infiniband/mlx5_2/ports/2/state", "2: INIT\n");
    put("class/infiniband/mlx5_1/ports/1/state", "");
    source.port_state = NULL;
    choose(&source, NULL, 0, &machine);
    assert_int_equal(machine.num_nics, 3);
    assert_string_equal(machine.nics[0].name, "rail2");
}

static void test_many(void **state)
{
    mpath_interface_t many[70];
    mpath_machine_source_t source = {.sysfs = root, .interfaces = many, .num_interfaces = 70};
    mpath_machine_t machine;
    int i;

    (void)state;
    for (i = 0; i < 70; i++) {
        many[i] = (mpath_interface_t){.up = 1, .addressed = 1};
        snprintf(many[i].name, sizeof(many[i].name), "e%d", i);
    }
    choose(&source, NULL, 1, &machine);
    assert_non_null(strstr(capture_text(), "here has 70 NICs; those from 'e64' on are left out"));
    assert_int_equal(machine.num_nics, MPATH_MAX_NICS);
    assert_string_equal(machine.nics[63].name, "e63");
}

static void put_device(const char *interface, const char *pci)
{
    char link[PATH_MAX], target[PATH_MAX];

    snprintf(link, sizeof(link), "%s/class/net/%s/device", root, interface);
    snprintf(target, sizeof(target), "../../../devices/%s", pci);
    assert_int_equal(symlink(target, link), 0);
}

/* Ports of a card have its slot together, a NIC no more than its slot, and what no NIC could live with is not believed. */
static void test_slots(void **state)
{
    static const mpath_interface_t list[] = {
        {"fast", 1, 1, 0}, {"made-up", 1, 1, 0}, {"port0", 1, 1, 0}, {"port1", 1, 1, 0}};
    mpath_machine_source_t source = {.sysfs = root, .interfaces = list, .num_interfaces = 4};
    mpath_machine_t machine;

    (void)state;
    put("devices/0000:01:00.0/max_link_speed", "16.0 GT/s PCIe\n");
    put("devices/0000:01:00.0/max_link_width", "16\n");
    put("devices/0000:01:00.1/max_link_speed", "16.0 GT/s PCIe\n");
    put("devices/0000:01:00.1/max_link_width", "16\n");
    put("devices/0000:02:00.0/max_link_speed", "8.0 GT/s PCIe\n");
    put("devices/0000:02:00.0/max_link_width", "8\n");
    put("devices/0000:03:00.0/max_link_speed", "2.5 GT/s PCIe\n");
    put("devices/0000:03:00.0/max_link_width", "1\n");
    put("class/net/port0/speed", "200000\n");
    put("class/net/port1/speed", "100000\n");
    put("class/net/fast/speed", "100000\n");
    put("class/net/made-up/speed", "100000\n");
    put_device("port0", "0000:01:00.0");
    put_device("port1", "0000:01:00.1");
    put_device("fast", "0000:02:00.0");
    put_device("made-up", "0000:03:00.0");
    choose(&source, NULL, 0, &machine);
    assert_int_equal(machine.num_nics, 4);
    check_nic(&machine.nics[0], "fast", 0, 6879240000ull, -1, 1);
    check_nic(&machine.nics[1], "made-up", 1, 12500000000ull, -1, 1);
    check_nic(&machine.nics[2], "port0", 2, 18335328000ull, -1, 1);
    check_nic(&machine.nics[3], "port1", 3, 9167664000ull, -1, 1);
    assert_true(machine.nics[2].rate_bps + machine.nics[3].rate_bps == 27502992000ull); /* 16 GT/s x16 */
}

/* Applies a text to NICs r0, r1, r2 of 7 bytes/s each. */
static void rates(const char *text, int warnings, uint64_t r0, uint64_t r1, uint64_t r2)
{
    mpath_machine_t machine = {.host = "here", .num_nics = 3};
    int i;

    for (i = 0; i < 3; i++) {
        snprintf(machine.nics[i].name, sizeof(machine.nics[i].name), "r%d", i);
        machine.nics[i].rate_bps = 7;
    }
    capture_start();
    mpath_machine_apply_rates(text, &machine);
    capture_stop();
    assert_int_equal(capture_count(), warnings);
    assert_true(machine.nics[0].rate_bps == r0);
    assert_true(machine.nics[1].rate_bps == r1);
    assert_true(machine.nics[2].rate_bps == r2);
}

static void test_rates(void **state)
{
    (void)state;
    rates(NULL, 0, 7, 7, 7);
    rates("", 0, 7, 7, 7);
    rates("25m", 0, 25000000, 25000000, 25000000);
    rates("r1=6250k", 0, 7, 6250000, 7);
    rates("r0=25m,r1=6250k,r2=1g", 0, 25000000, 6250000, 1000000000);
    rates("25m,r1=6250k", 0, 25000000, 6250000, 25000000);
    rates("r1=6250k,25m", 0, 25000000, 6250000, 25000000);
    rates("r1=6250k,r9=1", 1, 7, 6250000, 7);
    assert_non_null(strstr(capture_text(), "parameter rail_rates: no NIC 'r9' in use on here; ignored"));
    rates("0", 1, 7, 7, 7);
    rates("-1", 1, 7, 7, 7);
    rates("r0=", 1, 7, 7, 7);
    rates("r0=fast,r1=5", 1, 7, 5, 7);
    assert_non_null(strstr(capture_text(), "parameter rail_rates: 'r0=fast' is not a rate in bytes/s"));
    rates("11t", 1, 7, 7, 7);
    rates("99999g", 1, 7, 7, 7);
    rates(",", 2, 7, 7, 7);
}

static void test_names(void **state)
{
    (void)state;
    assert_true(mpath_name_compare("eth9", "eth10") < 0);
    assert_true(mpath_name_compare("eth10", "eth9") > 0);
    assert_true(mpath_name_compare("eth1", "eth1") == 0);
    assert_true(mpath_name_compare("eth", "eth0") < 0);
    assert_true(mpath_name_compare("mlx5_2:1", "mlx5_10:1") < 0);
    assert_true(mpath_name_compare("mlx5_2:1", "mlx5_2:2") < 0);
    assert_true(mpath_name_compare("a", "b") < 0);
    assert_true(mpath_name_compare("a1b", "a1c") < 0);
    assert_true(mpath_name_compare("a0", "a00") == 0);
    assert_true(mpath_name_compare("99999999999999999999998", "99999999999999999999999") < 0);
}

static void test_nearest(void **state)
{
    mpath_machine_t machine = {.num_nics = 4, .num_numa = 1};
    int i;

    (void)state;
    for (i = 0; i < 4; i++) {
        machine.nics[i] = (mpath_nic_t){.up = (uint8_t)(i != 1), .rate_bps = 1, .numa = -1, .rail = (int16_t)i};
    }
    assert_int_equal(mpath_machine_nearest_nic(&machine, 0), 0);
    assert_int_equal(mpath_machine_nearest_nic(&machine, 1), 2);
    assert_int_equal(mpath_machine_nearest_nic(&machine, 2), 3);
    assert_int_equal(mpath_machine_nearest_nic(&machine, 3), 0);
    machine.num_nics = 0;
    assert_int_equal(mpath_machine_nearest_nic(&machine, 0), -1);
    machine.num_nics   = 2;
    machine.nics[0].up = 0;
    assert_int_equal(mpath_machine_nearest_nic(&machine, 0), -1);
}

/* By name; the number is where it is looked for first. */
static void test_find_nic(void **state)
{
    mpath_machine_t machine = {.num_nics = 3};

    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(machine.nics[i].name, sizeof(machine.nics[i].name), "eth%d", i);
    }
    snprintf(machine.nics[3].name, sizeof(machine.nics[3].name), "eth3"); /* beyond those that count */
    for (int number = 0; number < 5; number++) {
        assert_int_equal(mpath_machine_find_nic(&machine, "eth0", number), 0);
        assert_int_equal(mpath_machine_find_nic(&machine, "eth2", number), 2);
        assert_int_equal(mpath_machine_find_nic(&machine, "eth3", number), -1);
        assert_int_equal(mpath_machine_find_nic(&machine, "eth", number), -1);
    }
    snprintf(machine.nics[1].name, sizeof(machine.nics[1].name), "eth2"); /* rails that share a device */
    assert_int_equal(mpath_machine_find_nic(&machine, "eth2", 2), 2);
    assert_int_equal(mpath_machine_find_nic(&machine, "eth2", 0), 1);
}

/* What getifaddrs() shows in place of this machine's addresses. */
static struct ifaddrs *shown;

int getifaddrs(struct ifaddrs **addresses)
{
    int (*real)(struct ifaddrs **);

    if (shown != NULL) {
        *addresses = shown;
        return 0;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "getifaddrs");
    return real(addresses);
}

void freeifaddrs(struct ifaddrs *addresses)
{
    void (*real)(struct ifaddrs *);

    if (addresses != shown) {
        *(void **)&real = dlsym(RTLD_NEXT, "freeifaddrs");
        real(addresses);
    }
}

/* An interface with several addresses is one, also where they have labels. */
static void test_labels(void **state)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct ifaddrs list[4]  = {
         {.ifa_next = &list[1], .ifa_name = (char *)"rail1"},
         {.ifa_next = &list[2], .ifa_name = (char *)"rail0", .ifa_flags = IFF_UP | IFF_RUNNING},
         {.ifa_next = &list[3], .ifa_name = (char *)"rail0:vip", .ifa_flags = IFF_UP | IFF_RUNNING},
         {.ifa_next = NULL, .ifa_name = (char *)"rail0:1", .ifa_flags = IFF_UP | IFF_RUNNING},
    };
    mpath_interface_t *found = NULL;
    mpath_status_t status;
    int count = 0;

    (void)state;
    list[2].ifa_addr = (struct sockaddr *)&four;
    shown            = list;
    status           = mpath_interfaces_list(&found, &count);
    shown            = NULL;
    assert_int_equal(status, MPATH_OK);
    assert_int_equal(count, 2);
    assert_string_equal(found[0].name, "rail1");
    assert_false(found[0].addressed);
    assert_string_equal(found[1].name, "rail0");
    assert_true(found[1].addressed && found[1].up);
    free(found);
}

/* Whatever this machine is: a topology can be built of it. */
static void test_this_machine(void **state)
{
    mpath_topo_params_t params = {.access = MPATH_REACH_ALL};
    mpath_machine_t machine;
    mpath_topo_t *topo;

    (void)state;
    assert_int_equal(mpath_machine_discover("lo", "25m", &machine), MPATH_OK);
    assert_int_equal(machine.num_nics, 1);
    assert_string_equal(machine.nics[0].name, "lo");
    assert_int_equal(machine.nics[0].rate_bps, 25000000);
    assert_true(machine.num_numa >= 1);
    assert_true(machine.host[0] != '\0');
    capture_start(); /* a machine with very many NICs says so */
    assert_int_equal(mpath_machine_discover(NULL, NULL, &machine), MPATH_OK);
    capture_stop();
    assert_int_equal(mpath_topo_create(&machine, 1, NULL, 0, &params, &topo), MPATH_OK);
    assert_int_equal(mpath_topo_num_resources(topo), 1 + 2 * machine.num_nics);
    mpath_topo_destroy(topo);
}

/* A NIC that is to be used again, asked for its link. */
static void test_carrier(void **state)
{
    (void)state;
    put("class/net/rail0/carrier", "1\n");
    put("class/net/rail1/carrier", "0\n");
    put("class/net/rail2/carrier", ""); /* an interface that is down */
    put("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    put("class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
    put("class/infiniband/mlx5_1/ports/1/state", "2: INIT\n");
    put("class/infiniband/mlx5_2/ports/1/state", "5: ACTIVE_DEFER\n");
    assert_true(mpath_machine_has_carrier(root, "rail0"));
    assert_false(mpath_machine_has_carrier(root, "rail1"));
    assert_false(mpath_machine_has_carrier(root, "rail2"));
    assert_true(mpath_machine_has_carrier(root, "rail3"));
    assert_true(mpath_machine_has_carrier(root, "mlx5_0:1"));
    assert_true(mpath_machine_has_carrier(root, "mlx5_0"));
    assert_false(mpath_machine_has_carrier(root, "mlx5_0:2"));
    assert_false(mpath_machine_has_carrier(root, "mlx5_1:1"));
    assert_false(mpath_machine_has_carrier(root, "mlx5_2:1"));
    assert_true(mpath_machine_has_carrier(root, "mlx5_3:1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_interfaces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_riders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_named, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ports, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slots, setup, teardown),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_find_nic),
        cmocka_unit_test(test_labels),
        cmocka_unit_test_setup_teardown(test_carrier, setup, teardown),
        cmocka_unit_test(test_this_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
