/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_info: shows what mpath sees here - its parameters, this machine, a topology file. Not an MPI program. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif
#include "device/kernels/fatbin.h"
#include "tools/info/check.h"
#include "tools/info/gpus.h"
#include "tools/info/job.h"
#include "tools/info/rates.h"
#include "tools/info/why.h"
#include "topo/discover/machine.h"
#include "topo/topo.h"
#include "topo/file/xml.h"
#include "util/log.h"
#include "util/number.h"
#include "util/param.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 512
#define EXAMPLE_PATHS 8 /* of a pair: more are counted only */

static const char usage[] =
    "usage: mpath_info [option]\n"
    "Shows mpath's version, its parameters and this machine as mpath finds it.\n"
    "  --check         whether mpath can do its work here: a line per fact, what to do about problems; status 1 with any\n"
    "  --job [PID]     what your jobs are doing on this node: calls, who waits for whom, bytes and rates by rail, failed\n"
    "                  rails; with the PID of a rank, or of its mpirun, of that job only\n"
    "  --topo FILE     check a topology file (mpath, NCCL or hwloc XML); show its resources and some paths\n"
    "  --dump FILE     write this machine as a topology file; - for standard output\n"
    "  --probe         measure what copies between this machine's GPUs and the host reach, and keep it for later runs\n"
    "  --rates FILE    show a file of learned rates and shares (parameter adapt_file)\n"
    "  --why COLLECTIVE BYTES\n"
    "                  which algorithms could carry a call, what each is predicted to take, and which is taken:\n"
    "                  alltoallv (bytes of each rank), allreduce, reduce_scatter, allgather (of the whole vector); for\n"
    "                  nodes like this one, or with --topo FILE or --preset NAME (see mpath_plan) for those; --nodes N\n"
    "                  of them, --hot H: the share of an alltoallv's bytes for one hot rank\n"
    "  --params-doc    write doc/parameters.md to standard output\n"
    "  -h, --help      this text\n"
    "  --version       the version\n"
    "Parameters are read from MPATH_<NAME> and, as the Open MPI component does, from OMPI_MCA_coll_mpath_<name>.\n";

/* --- parameters -------------------------------------------------------------------------------------------------- */

static void settings_warn_item(const char *key, const char *problem, const char *used, void *arg)
{
    mpath_warn("environment variable %s: %s: %s; using %s", (const char *)arg, key, problem, used);
}

/* Open MPI's environment wins: it is what the component takes. */
static void settings_from_ompi(mpath_settings_t *settings)
{
    char name[128], message[TEXT_MAX];
    const char *text;
    size_t i;

    for (i = 0; i < mpath_params_count; i++) {
        snprintf(name, sizeof(name), "OMPI_MCA_coll_mpath_%s", mpath_params[i].name);
        text = secure_getenv(name);
        if ((text != NULL) &&
            (mpath_settings_set(settings, &mpath_params[i], text, message, sizeof(message)) != MPATH_OK)) {
            mpath_warn("environment variable %s: %s; ignored", name, message);
        }
    }
    snprintf(name, sizeof(name), "OMPI_MCA_coll_mpath_internals");
    mpath_settings_read_internals(settings, settings_warn_item, name);
}

/* Where a value comes from, unless what stands there was refused. */
static const char *param_origin(const mpath_param_t *param, const char *value, char *name, size_t size)
{
    mpath_settings_t tried;
    char message[TEXT_MAX], text[TEXT_MAX];
    const char *given;
    int i;

    for (i = 0; i < 2; i++) {
        if (i == 0) {
            snprintf(name, size, "OMPI_MCA_coll_mpath_%s", param->name);
        } else {
            mpath_param_env_name(param, name, size);
        }
        given = secure_getenv(name);
        if (given == NULL) {
            continue;
        }
        mpath_settings_init(&tried);
        if (mpath_settings_set(&tried, param, given, message, sizeof(message)) == MPATH_OK) {
            mpath_settings_get(&tried, param, text, sizeof(text));
            if (strcmp(text, value) == 0) {
                return name;
            }
        }
    }
    return "default";
}

static void show_settings(const mpath_settings_t *settings)
{
    char value[TEXT_MAX], name[128];
    const mpath_param_t *param;
    size_t i;

    printf("\nparameters (coll_mpath_...)\n");
    for (i = 0; i < mpath_params_count; i++) {
        param = &mpath_params[i];
        mpath_settings_get(settings, param, value, sizeof(value));
        if (param->kind == MPATH_PARAM_OWN) {
            printf("  %-20s %-10s %-9s from %s\n", param->name, (value[0] != '\0') ? value : "(empty)", param->unit,
                   param_origin(param, value, name, sizeof(name)));
        }
    }
    for (i = 0; i < mpath_params_count; i++) {
        param = &mpath_params[i];
        mpath_settings_get(settings, param, value, sizeof(value));
        if (param->kind != MPATH_PARAM_OWN && strcmp(value, param->initial) != 0) {
            printf("  %-20s %-10s %-9s inside; the default is %s\n", param->name, value, param->unit, param->initial);
        }
    }
}

/* --- machines and topologies ------------------------------------------------------------------------------------- */

/* "25 MB/s (200 Mbit/s)" */
static void show_rate(uint64_t rate_bps)
{
    char bytes[MPATH_NUMBER_SHOWN], bits[MPATH_NUMBER_SHOWN];

    mpath_number_show((double)rate_bps, "B/s", bytes);
    mpath_number_show((double)rate_bps * 8, "bit/s", bits);
    printf("%s (%s)", bytes, bits);
}

static void show_machine(const mpath_machine_t *machine)
{
    const mpath_nic_t *nic;
    int i;

    printf("  %s: %d NUMA node%s, host memory about ", (machine->host[0] != '\0') ? machine->host : "(no host name)",
           machine->num_numa, (machine->num_numa == 1) ? "" : "s");
    show_rate(machine->host_memory_bps);
    printf("\n");
    if (machine->num_nics == 0) {
        printf("    no NIC\n");
    }
    for (i = 0; i < machine->num_nics; i++) {
        nic = &machine->nics[i];
        printf("    nic%d %-16s rail %-2d %-4s ", i, nic->name, nic->rail, nic->up ? "up" : "down");
        if (nic->numa >= 0) {
            printf("NUMA %-3d ", nic->numa);
        } else {
            printf("NUMA ?   ");
        }
        show_rate(nic->rate_bps);
        printf("\n");
    }
}

static void show_resources(const mpath_topo_t *topo)
{
    mpath_resource_t resource;
    char name[64];
    int i;

    printf("\n%d resources\n", mpath_topo_num_resources(topo));
    for (i = 0; i < mpath_topo_num_resources(topo); i++) {
        resource = mpath_topo_resource(topo, i);
        mpath_topo_resource_name(topo, i, name, sizeof(name));
        printf("  %-24s ", name);
        show_rate(resource.capacity_bps);
        printf(", %u ns\n", resource.latency_ns);
    }
}

static void show_pair(const mpath_topo_t *topo, int source, int destination)
{
    int count = mpath_topo_num_paths(topo, source, destination), k;
    char text[TEXT_MAX];
    mpath_path_t path;

    printf("  rank %d to rank %d: %d path%s\n", source, destination, count, (count == 1) ? "" : "s");
    for (k = 0; (k < count) && (k < EXAMPLE_PATHS); k++) {
        mpath_topo_path(topo, source, destination, k, &path);
        mpath_topo_path_format(topo, &path, text, sizeof(text));
        printf("    %s\n", text);
    }
    if (count > EXAMPLE_PATHS) {
        printf("    and %d more\n", count - EXAMPLE_PATHS);
    }
}

/* From rank 0: to the next rank of its node, to the first one of another node, and to the last rank. */
static void show_examples(const mpath_topo_t *topo)
{
    int ranks = mpath_topo_num_ranks(topo), rank, near = -1, far = -1;

    printf("\n%d ranks on %d nodes, access %s, %s fabric, rails %s\n", ranks, mpath_topo_num_nodes(topo),
           (mpath_topo_params(topo)->access == MPATH_REACH_ALL) ? "all" : "affine",
           (mpath_topo_params(topo)->fabric & MPATH_FABRIC_SPINE) ? "spine" : "rail-only",
           mpath_topo_rails_alike(topo) ? "equal" : "not equal");
    for (rank = 1; rank < ranks; rank++) {
        if (mpath_topo_place(topo, rank)->node == mpath_topo_place(topo, 0)->node) {
            near = (near < 0) ? rank : near;
        } else {
            far = (far < 0) ? rank : far;
        }
    }
    if (near > 0) {
        show_pair(topo, 0, near);
    }
    if (far > 0) {
        show_pair(topo, 0, far);
    }
    if ((ranks > 1) && (ranks - 1 != near) && (ranks - 1 != far)) {
        show_pair(topo, 0, ranks - 1);
    }
}

static int can_have_ranks(const mpath_topo_file_t *file)
{
    int can = 0;

    for (int node = 0; node < file->num_nodes; node++) {
        can |= (file->gpus != NULL) && (file->gpus[node].num_gpus > 0);
        for (int nic = 0; nic < file->machines[node].num_nics; nic++) {
            can |= file->machines[node].nics[nic].up != 0;
        }
    }
    return can;
}

/* A file without ranks describes machines: the example is what mpath_plan plans for. */
static mpath_status_t show_file_examples(const char *path, mpath_topo_file_t *file, const mpath_topo_t *topo)
{
    int several = file->num_nodes > 1;
    mpath_topo_t *example;
    mpath_status_t status;

    if (file->num_ranks > 0) {
        show_examples(topo);
        return MPATH_OK;
    }
    if (!can_have_ranks(file)) {
        printf("\nno ranks, no GPU and no NIC that is up: no paths to show\n");
        return MPATH_OK;
    }
    status = mpath_topo_file_populate(path, file, 0);
    if (status == MPATH_OK) {
        status = mpath_topo_file_build(file, &example);
    }
    if (status != MPATH_OK) {
        return status;
    }
    printf("\nThe file has no ranks. As an example, %s with a rank %s (mpath_plan --topo plans for them):",
           several ? "its nodes" : "two such nodes",
           (file->gpus != NULL) && (file->gpus[0].num_gpus > 0) ? "on each GPU" : "beside each NIC");
    show_examples(example);
    mpath_topo_destroy(example);
    return MPATH_OK;
}

static mpath_status_t show_file(const char *path)
{
    mpath_topo_file_t file;
    mpath_status_t status;
    mpath_topo_t *topo;
    int i;

    status = mpath_topo_file_load(path, &file);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_topo_file_build(&file, &topo);
    if (status != MPATH_OK) {
        goto err_release;
    }
    printf("topology file %s: valid\n", path);
    for (i = 0; i < file.num_nodes; i++) {
        show_machine(&file.machines[i]);
    }
    show_resources(topo);
    status = show_file_examples(path, &file, topo);
    mpath_topo_destroy(topo);
err_release:
    mpath_topo_file_release(&file);
    return status;
}

static mpath_status_t dump_machine(const mpath_settings_t *settings, const char *path)
{
    mpath_topo_params_t params = {.access = MPATH_REACH_ALL, .fabric = 0};
    mpath_machine_t machine;
    mpath_node_gpus_t gpus;
    mpath_status_t status;
    mpath_topo_t *topo;

    if (settings->access == MPATH_ACCESS_AFFINE) {
        params.access = MPATH_REACH_AFFINE;
    }
    status = mpath_machine_discover(settings->rails, settings->rail_rates, &machine);
    if (status == MPATH_OK) {
        status = info_find_gpus(&machine, &gpus);
    }
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_topo_create_with_gpus(&machine, &gpus, 1, NULL, 0, &params, &topo);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_topo_file_save(topo, path);
    mpath_topo_destroy(topo);
    return status;
}

static mpath_status_t show_all(const mpath_settings_t *settings)
{
    mpath_machine_t machine;
    mpath_node_gpus_t gpus;
    mpath_status_t status;

    printf("mpath %s\n", MPATH_VERSION);
    printf("kernels for GPUs: %s\n",
           mpath_fatbin_built ? "built in" : "none, built without nvcc: copy engines do everything");
    show_settings(settings);
    printf("\nthis machine\n");
    status = mpath_machine_discover(settings->rails, settings->rail_rates, &machine);
    if (status == MPATH_OK) {
        status = info_find_gpus(&machine, &gpus);
    }
    if (status == MPATH_OK) {
        show_machine(&machine);
        info_show_gpus(&gpus);
    }
    return status;
}

/* What follows --why. 0: it is wrong, which has been said. */
static int read_why(int argc, char **argv, plan_input_t *input)
{
    static const struct option options[] = {{"topo", required_argument, NULL, 't'},
                                            {"preset", required_argument, NULL, 'p'},
                                            {"nodes", required_argument, NULL, 'n'},
                                            {"hot", required_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int64_t nodes;
    int option;

    plan_input_init(input);
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        int ok = 1;

        switch (option) {
        case 't':
            input->topo_path = optarg;
            break;
        case 'p':
            input->preset = optarg;
            break;
        case 'n':
            ok = mpath_number_parse(optarg, strlen(optarg), MPATH_NUMBER_PLAIN, 1, 4096, &nodes) == MPATH_OK;
            input->num_nodes   = ok ? (int)nodes : 0;
            input->nodes_given = 1;
            break;
        case 'h':
            ok = plan_parse_ppm(optarg, &input->skew_ppm) && input->skew_ppm <= 1000000;
            break;
        default:
            return 0;
        }
        if (!ok) {
            fprintf(stderr, "mpath_info: '%s' is no value of --%s\n", optarg, option == 'n' ? "nodes" : "hot");
            return 0;
        }
    }
    if (argc - optind != 1 || !plan_parse_bytes(argv[optind], &input->bytes)) {
        fprintf(stderr, "mpath_info: --why takes a collective and bytes, as in: mpath_info --why alltoallv 64m\n");
        return 0;
    }
    input->bytes_given = 1;
    return 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"topo", required_argument, NULL, 't'},
                                            {"dump", required_argument, NULL, 'd'},
                                            {"probe", no_argument, NULL, 'P'},
                                            {"params-doc", no_argument, NULL, 'p'},
                                            {"rates", required_argument, NULL, 'r'},
                                            {"why", required_argument, NULL, 'w'},
                                            {"check", no_argument, NULL, 'c'},
                                            {"job", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {NULL, 0, NULL, 0}};
    int option                           = getopt_long(argc, argv, "h", options, NULL);
    const char *collective               = optarg;
    mpath_settings_t settings;
    mpath_status_t status;
    plan_input_t input;
    int64_t pid = 0;

    if (option == 'j' && optind < argc) {
        if (mpath_number_parse(argv[optind], strlen(argv[optind]), MPATH_NUMBER_PLAIN, 1, INT32_MAX, &pid) !=
            MPATH_OK) {
            fprintf(stderr, "mpath_info: '%s' is no PID\n", argv[optind]);
            return 2;
        }
        optind++;
    }
    if (option == 'w' && !read_why(argc, argv, &input)) {
        return 2;
    }
    if ((option == '?') || (option != 'w' && optind < argc)) {
        if (option != '?') {
            fprintf(stderr, "mpath_info: '%s' is too much: it takes one option at most\n", argv[optind]);
        }
        fputs(usage, stderr);
        return 2;
    }
    if (option == 'c') {
        info_check_begin();
    }
    mpath_settings_init(&settings);
    mpath_settings_from_env(&settings);
    settings_from_ompi(&settings);
    mpath_log_set_level((mpath_log_level_t)settings.verbose);
    switch (option) {
    case 'h':
        fputs(usage, stdout);
        status = MPATH_OK;
        break;
    case 'V':
        printf("mpath_info %s\n", MPATH_VERSION);
        status = MPATH_OK;
        break;
    case 'c':
        mpath_log_set_level(MPATH_LOG_WARN);
        status = (info_check(&settings) > 0) ? MPATH_ERR_PARAM : MPATH_OK;
        break;
    case 'j':
        mpath_log_set_level(MPATH_LOG_WARN);
        status = info_job((long)pid) ? MPATH_OK : MPATH_ERR_PARAM;
        break;
    case 'p':
        mpath_params_write_doc(stdout);
        status = MPATH_OK;
        break;
    case 'r':
        status = info_show_rates(optarg);
        break;
    case 'w':
        status = info_why(&settings, collective, &input);
        break;
    case 'P':
        status = info_probe();
        break;
    case 't':
        status = show_file(optarg);
        break;
    case 'd':
        status = dump_machine(&settings, optarg);
        break;
    default:
        status = show_all(&settings);
        break;
    }
    if ((fflush(stdout) != 0) && (status == MPATH_OK)) {
        mpath_error("writing to standard output failed");
        status = MPATH_ERR_IO;
    }
    return mpath_status_is_error(status) ? 1 : 0;
}
