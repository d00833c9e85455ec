/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of relays: jobs of ranks on GPUs that are described to them, and what is run in most of them. */
#ifndef MPATH_TESTS_UNIT_RELAY_SUPPORT_H
#define MPATH_TESTS_UNIT_RELAY_SUPPORT_H

#include "gpu_member.h"

#define RELAY_RAIL_BPS 400000000ull

/* NICs beside a GPU. The one that a rank drives for host memory has the number of its GPU. */
typedef enum relay_beside {
    RELAY_BESIDE_OWN,   /* that one */
    RELAY_BESIDE_OTHER, /* the next one */
    RELAY_BESIDE_ALL
} relay_beside_t;

typedef struct relay_job {
    ranks_setup_t setup;
    mpath_gpu_link_t link;
    int unlinked; /* GPUs have none; else link NONE stands for direct links */
    mpath_emulation_t emulated;
    uint64_t pcie_bps;   /* next to nothing: no path through the host is worth it */
    uint64_t pool_bytes; /* 0: the default */
    uint64_t host_bytes; /* gpu_memory_bytes; likewise */
    uint64_t max_bytes;
    int rounds;
    const char *without;                     /* FAKE_CUDA_WITHOUT */
    const char *full;                        /* FAKE_CUDA_FULL */
    int discovers;                           /* nobody tells of GPUs: the driver does, */
    const char *links;                       /* and NVML of such NVLinks (FAKE_NVML_LINKS); NULL: there is none */
    int alone;                               /* every process sees its own GPU only; 2: so does NVML */
    void (*first)(mpath_context_t *context); /* before the application starts the driver; NULL: nothing */
    int spine;                               /* NICs of all rails reach each other */
    int killed;                              /* this rank dies in its second call; -1: none */
    int on_gpu;                              /* ranks that share one; 0: 1 */
    int resend_after_s;                      /* 0: the default */
    mpath_status_t broken;                   /* what a rail answers when it has failed */
    int gpu_rail;                            /* mpath_gpu_rail_t */
    relay_beside_t beside;
    uint32_t down;          /* NICs that are, a bit each */
    int affine;             /* ranks drive the NICs beside them only */
    int passes_nothing;     /* no GPU has to pass anything on */
    const char *adapt_file; /* NULL: none */
    int keeps_rates;        /* nobody learns others from calls, which are slow on a busy machine */
    const char *tune;       /* likewise */
    int by_gate;            /* the gate chooses between plan and static routes; else always the plan */
} relay_job_t;

/* All ranks of the job as one communicator. */
void relay_member_init(member_t *member, ranks_self_t *self, const relay_job_t *job);
/* A further communicator on member->context. */
void relay_member_join(member_t *member, const ranks_self_t *self, const mpath_oob_t *oob, const relay_job_t *job);

/*
 * Collective. Ends the context of this rank, if `mine`, when nobody reads its memory any more. The buffers of all its
 * members go before it, and are allocated anew.
 */
void relay_lose_context(const ranks_self_t *self, const relay_job_t *job, int mine, member_t *members, int num);

/*
 * job->rounds calls of all kinds of demands and some with a hot rank, none of which mpath may decline, and some of
 * which have to use relays. Where the job does not say otherwise: direct links, fast PCIe, rails of RELAY_RAIL_BPS.
 */
void relay_run_rounds(const relay_job_t *job);

#endif
