/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info --check: a line per fact, and after a problem what to do. Open MPI is asked through its program ompi_info. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "tools/info/check.h"

#include "device/kernels/fatbin.h"
#include "rail/gpu_memory.h"
#include "lane/segment.h"
#include "tools/info/gpus.h"
#include "topo/discover/machine.h"
#include "util/log.h"
#include "util/number.h"
#include "util/spelling.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define CHECK_TEXT_MAX 4096
#define CHECK_MARK "mpath component "
#define CHECK_SHM "/dev/shm"
#define CHECK_SHM_LEAST (256ull << 20) /* a quarter of it is mpath's, for all processes of the node */

static int problems;

static void __attribute__((format(printf, 2, 3))) check_say(const char *kind, const char *format, ...)
{
    va_list arguments;

    printf("%-8s ", kind);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    problems += (strcmp(kind, "problem") == 0);
}

#define check_ok(...) check_say("ok", __VA_ARGS__)
#define check_note(...) check_say("note", __VA_ARGS__)
#define check_problem(...) check_say("problem", __VA_ARGS__)

static void check_logged(mpath_log_level_t level, const char *line)
{
    const char *text = strstr(line, (level == MPATH_LOG_ERROR) ? "ERROR " : "WARN ");

    if (level <= MPATH_LOG_WARN) {
        check_problem("%s", (text != NULL) ? strchr(text, ' ') + 1 : line);
    }
}

void info_check_begin(void)
{
    mpath_log_set_sink(check_logged);
}

/* --- Open MPI and the component ----------------------------------------------------------------------------------- */

/* What stands behind `before` in a line of what a command prints, without quotation marks; empty: no such line. */
static void check_ask(const char *command, const char *before, char *value)
{
    char line[CHECK_TEXT_MAX];
    const char *at;
    FILE *out = popen(command, "r");

    value[0] = '\0';
    while ((out != NULL) && (fgets(line, sizeof(line), out) != NULL)) {
        if ((value[0] == '\0') && (strncmp(line, before, strlen(before)) == 0)) {
            at = line + strlen(before);
            at += (*at == '"');
            snprintf(value, CHECK_TEXT_MAX, "%.*s", (int)strcspn(at, "\"\n"), at);
        }
    }
    if (out != NULL) {
        pclose(out);
    }
}

/* What the component's own text says, "0.2.0 for Open MPI 4.1"; empty: it is no component of this kind. */
static void check_mark(const char *path, char *mark, size_t size)
{
    size_t prefix  = strlen(CHECK_MARK);
    struct stat is = {.st_size = 0};
    int fd         = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *bytes, *at;

    mark[0] = '\0';
    if ((fd < 0) || (fstat(fd, &is) != 0) || !S_ISREG(is.st_mode) || (is.st_size == 0)) {
        goto out;
    }
    bytes = mmap(NULL, (size_t)is.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        goto out;
    }
    at = memmem(bytes, (size_t)is.st_size, CHECK_MARK, prefix);
    if (at != NULL) {
        at += prefix;
        snprintf(mark, size, "%.*s", (int)strnlen(at, (size_t)(bytes + is.st_size - at)), at);
    }
    munmap(bytes, (size_t)is.st_size);
out:
    if (fd >= 0) {
        close(fd);
    }
}

static void check_fits(const char *path, const char *series)
{
    char mark[128], wanted[64];

    check_mark(path, mark, sizeof(mark));
    snprintf(wanted, sizeof(wanted), " for Open MPI %s", series);
    if (mark[0] == '\0') {
        check_problem(
            "component %s: it does not say which mpath it is (unreadable, damaged or older); install mpath %s again",
            path, MPATH_VERSION);
    } else if ((strlen(mark) < strlen(wanted)) || (strcmp(mark + strlen(mark) - strlen(wanted), wanted) != 0)) {
        check_problem("component %s: mpath %s, but Open MPI %s runs and does not use it; build mpath with that "
                      "(configure --with-ompi=DIR)",
                      path, mark, series);
    } else if (strncmp(mark, MPATH_VERSION " ", strlen(MPATH_VERSION " ")) != 0) {
        check_problem("component %s: mpath %s, but this program is of mpath %s; install both from one build", path,
                      mark, MPATH_VERSION);
    } else {
        check_ok("component %s: mpath %s", path, mark);
    }
}

/* Open MPI takes the first component of a name that it finds; `folders` is in its order. */
static void check_components(char *folders, const char *system, const char *series)
{
    char path[2 * CHECK_TEXT_MAX], first[sizeof(path)] = "", own[CHECK_TEXT_MAX];
    const char *home = getenv("HOME");
    char *folder, *rest = NULL;

    snprintf(own, sizeof(own), "%.4000s/.openmpi/components", (home != NULL) ? home : "");
    for (folder = strtok_r(folders, ":", &rest); folder != NULL; folder = strtok_r(NULL, ":", &rest)) {
        snprintf(path, sizeof(path), "%s/mca_coll_mpath.so",
                 (strcmp(folder, "SYS_DEFAULT") == 0)    ? system
                 : (strcmp(folder, "USER_DEFAULT") == 0) ? own
                                                         : folder);
        if ((access(path, F_OK) != 0) || (strcmp(path, first) == 0)) {
            continue;
        }
        if (first[0] == '\0') {
            snprintf(first, sizeof(first), "%s", path);
            check_fits(path, series);
        } else {
            check_problem("component %s is a second copy and is not used, %s comes first; remove one of them", path,
                          first);
        }
    }
    if (first[0] == '\0') {
        check_problem("component: no mca_coll_mpath.so where Open MPI looks; run make install, or name its folder with "
                      "--mca mca_base_component_path DIR:SYS_DEFAULT");
    }
}

static void check_misspelt(const char *place, const char *name, const char *nearest, const char *remark, void *arg)
{
    (void)arg;
    if (remark != NULL) {
        check_note("%s: '%s' %s", place, name, remark);
    } else if (nearest != NULL) {
        check_problem("%s: '%s' is no setting of mpath and has no effect; the nearest is %s", place, name, nearest);
    } else {
        check_problem("%s: '%s' is no setting of mpath and has no effect; mpath_info lists them", place, name);
    }
}

static void check_selection(void)
{
    char value[CHECK_TEXT_MAX];

    check_ask("ompi_info --parsable --param coll base --level 9 2>/dev/null", "mca:coll:base:param:coll:value:", value);
    if (value[0] == '\0') {
        check_ok("selection: no --mca coll: every component takes part");
    } else if ((strstr(value, "mpath") == NULL) == (value[0] != '^')) {
        check_note("selection: coll is '%s': mpath runs only on request (mpirun --mca coll mpath)", value);
    } else {
        check_ok("selection: coll is '%s'", value);
    }
}

static void check_ompi(void)
{
    char version[CHECK_TEXT_MAX], folders[CHECK_TEXT_MAX], system[CHECK_TEXT_MAX], files[CHECK_TEXT_MAX];
    const char *parameters = "ompi_info --parsable --param mca base --level 9 2>/dev/null";
    char series[32];
    int major, minor;

    mpath_spelling_check_environment(check_misspelt, NULL);
    check_ask("ompi_info --version 2>/dev/null", "Open MPI v", version);
    if (sscanf(version, "%d.%d", &major, &minor) != 2) {
        check_problem(
            "Open MPI: no ompi_info in PATH, so the component is not looked for; put Open MPI's bin folder into "
            "PATH (module load ...)");
        return;
    }
    check_ok("Open MPI %s", version);
    snprintf(series, sizeof(series), "%d.%d", major, minor);
    check_ask(parameters, "mca:mca:base:param:mca_base_component_path:value:", folders);
    check_ask("ompi_info --parsable --path pkglibdir 2>/dev/null", "path:pkglibdir:", system);
    check_ask(parameters, "mca:mca:base:param:mca_base_param_files:value:", files);
    check_components(folders, system, series);
    check_selection();
    mpath_spelling_check_files(files, check_misspelt, NULL);
}

static void check_ucx(void)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    if ((major != UCP_API_MAJOR) || (minor < UCP_API_MINOR)) {
        check_problem(
            "UCX %u.%u.%u, but mpath was built with %d.%d; put that UCX, or a later one of its kind, first in "
            "LD_LIBRARY_PATH, or build mpath anew",
            major, minor, release, UCP_API_MAJOR, UCP_API_MINOR);
    } else {
        check_ok("UCX %u.%u.%u, built with %d.%d", major, minor, release, UCP_API_MAJOR, UCP_API_MINOR);
    }
}

/* --- the machine -------------------------------------------------------------------------------------------------- */

static void check_shm(const mpath_settings_t *settings)
{
    char size[MPATH_NUMBER_SHOWN], left[MPATH_NUMBER_SHOWN], may[MPATH_NUMBER_SHOWN];
    struct statvfs is;
    uint64_t bytes, limit;

    if (statvfs(CHECK_SHM, &is) != 0) {
        check_problem(CHECK_SHM ": %s; mount a tmpfs there", strerror(errno));
        return;
    }
    if (access(CHECK_SHM, W_OK | X_OK) != 0) {
        check_problem(CHECK_SHM ": you may not make files there (%s); chmod 1777 " CHECK_SHM, strerror(errno));
        return;
    }
    bytes = (uint64_t)is.f_blocks * is.f_frsize;
    limit = (bytes / 4 < settings->node_memory_bytes) ? bytes / 4 : settings->node_memory_bytes;
    mpath_number_show((double)bytes, "B", size);
    mpath_number_show((double)is.f_bavail * (double)is.f_frsize, "B", left);
    mpath_number_show((double)limit, "B", may);
    if ((bytes < CHECK_SHM_LEAST) || ((uint64_t)is.f_bavail * is.f_frsize < limit)) {
        check_problem(CHECK_SHM
                      ": %s, %s of it free, of which mpath may take %s for all processes of the node; make it "
                      "larger (docker run --shm-size=1g, mount -o remount,size=...) or remove old files",
                      size, left, may);
    } else {
        check_ok(CHECK_SHM ": %s, %s of it free; mpath may take %s for all processes of the node", size, left, may);
    }
}

static void check_memlock(int has_rdma)
{
    char text[MPATH_NUMBER_SHOWN];
    struct rlimit limit;

    if ((getrlimit(RLIMIT_MEMLOCK, &limit) != 0) || (limit.rlim_cur == RLIM_INFINITY)) {
        check_ok("locked memory: unlimited");
        return;
    }
    mpath_number_show((double)limit.rlim_cur, "B", text);
    if (has_rdma) {
        check_problem("locked memory: %s, which InfiniBand and RoCE soon use up; ulimit -l unlimited "
                      "(/etc/security/limits.conf, or the batch system's service)",
                      text);
    } else {
        check_ok("locked memory: %s; no InfiniBand or RoCE here needs more", text);
    }
}

/* Returns the NICs that are up. */
static int check_nics(const mpath_machine_t *machine)
{
    char rate[MPATH_NUMBER_SHOWN];
    int up = 0, i;

    for (i = 0; i < machine->num_nics; i++) {
        mpath_number_show((double)machine->nics[i].rate_bps * 8, "bit/s", rate);
        if (machine->nics[i].up) {
            check_ok("NIC %s: up, %s", machine->nics[i].name, rate);
            up++;
        } else {
            check_problem("NIC %s: down, %s; see to cable and switch, or leave it out with --mca coll_mpath_rails",
                          machine->nics[i].name, rate);
        }
    }
    if (machine->num_nics == 0) {
        check_problem("NIC: none found; jobs of several nodes do without mpath. --mca coll_mpath_rails names NICs");
    }
    return up;
}

static void check_gpus(const mpath_node_gpus_t *gpus)
{
    mpath_rail_gpu_t rail;
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[CHECK_TEXT_MAX];

    if (gpus->num_gpus == 0) {
        check_ok("GPUs: none");
        return;
    }
    check_ok("GPUs: %d", gpus->num_gpus);
    if (mpath_fatbin_built) {
        check_ok("kernels for GPUs: built in");
    } else {
        check_problem("kernels for GPUs: none, copy engines do everything; build mpath where configure finds nvcc");
    }
    rail = mpath_rail_gpu_find("/sys");
    if (rail == MPATH_RAIL_GPU_NO_CUDA) {
        check_problem("between nodes: %s; install a UCX built with CUDA", mpath_rail_gpu_text(rail));
    } else if (rail == MPATH_RAIL_GPU_NO_MODULE) {
        check_problem("between nodes: %s; modprobe nvidia_peermem", mpath_rail_gpu_text(rail));
    } else {
        check_ok("between nodes: %s", mpath_rail_gpu_text(rail));
    }
    snprintf(path, sizeof(path), "%.4000s/control", (folder != NULL) ? folder : "/tmp/nvidia-mps");
    check_note("CUDA MPS: %s", (access(path, F_OK) == 0)
                                   ? "runs"
                                   : "does not run; ranks that share a GPU want it (nvidia-cuda-mps-control -d)");
}

static void check_carried(int nics_up, int num_gpus)
{
    if (nics_up > 1) {
        check_ok(
            "carried: between nodes, skewed MPI_Alltoallv, MPI_Alltoall and large reductions and gathers on host memory, "
            "over %d NICs",
            nics_up);
    } else {
        check_note(
            "carried: on host memory only calls of small pairs; with fewer than two NICs that are up there is nothing "
            "to spread over");
    }
    if (num_gpus > 0) {
        check_ok("carried: the same collectives on device memory, between the GPUs of a node and between nodes");
    }
}

int info_check(const mpath_settings_t *settings)
{
    mpath_machine_t machine;
    mpath_node_gpus_t gpus;
    int up, i, has_rdma = 0;

    check_ompi();
    check_ucx();
    check_shm(settings);
    if ((mpath_machine_discover(settings->rails, settings->rail_rates, &machine) != MPATH_OK) ||
        (info_find_gpus(&machine, &gpus) != MPATH_OK)) {
        check_problem("this machine could not be looked at; nothing more is checked");
        return problems;
    }
    for (i = 0; i < machine.num_nics; i++) {
        has_rdma |= strchr(machine.nics[i].name, ':') != NULL; /* "mlx5_0:1" */
    }
    check_memlock(has_rdma);
    up = check_nics(&machine);
    check_gpus(&gpus);
    check_carried(up, gpus.num_gpus);
    printf("%d problem%s\n", problems, (problems == 1) ? "" : "s");
    return problems;
}
