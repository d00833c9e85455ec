/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kernel reduces short vectors that all GPUs send to all, and with how many CTAs. */
#include "gpu/reduce_eager.h"
#include "gpu/private.h"

#include <stdio.h>
#include <string.h>

#define EAGER_NAME_MAX 64

/* One unit of 8 bytes for each thread. On an H200 fewer CTAs take longer, and so do more, from 64 KiB on. */
#define EAGER_BYTES_PER_CTA (UINT64_C(8) * MPATH_KERNEL_THREADS)

/* Parts are spread over multiprocessors: a quarter of a CTA's warps are enough for it. */
#define PARTS_GROUPS_PER_CTA 4u

_Static_assert(sizeof(mpath_kernel_eager_t) <= 4096, "arguments of a kernel");

#define EAGER_NAME(_op, _type) #_op "_" #_type,

static const char *const names[] = {MPATH_EAGER_KERNELS(EAGER_NAME)};

int mpath_eager_fits(const mpath_reduce_how_t *how)
{
    char name[EAGER_NAME_MAX];

    mpath_reduce_name(how, name, sizeof(name));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

mpath_status_t mpath_eager_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_eager_form_t form,
                                mpath_cu_function_t *function_p)
{
    char name[EAGER_NAME_MAX], full[2 * EAGER_NAME_MAX];

    mpath_reduce_name(how, name, sizeof(name));
    snprintf(full, sizeof(full), "%s%s", (form == MPATH_EAGER_PARTS) ? MPATH_KERNEL_EAGER_PARTS : MPATH_KERNEL_EAGER,
             name);
    return mpath_kernel_find(gpu, full, NULL, function_p);
}

unsigned mpath_eager_ctas(mpath_eager_form_t form, unsigned ranks, uint64_t bytes)
{
    uint64_t ctas = (bytes + EAGER_BYTES_PER_CTA - 1) / EAGER_BYTES_PER_CTA;

    if (form == MPATH_EAGER_PARTS) {
        ctas = MPATH_EAGER_PART_GROUPS(ranks, bytes) * ranks / PARTS_GROUPS_PER_CTA;
    }
    return (unsigned)((ctas < 1) ? 1 : (ctas > MPATH_EAGER_CTAS) ? MPATH_EAGER_CTAS : ctas);
}

uint64_t mpath_eager_slot_bytes(mpath_eager_form_t form, unsigned ranks, uint64_t bytes)
{
    return (form == MPATH_EAGER_PARTS) ? MPATH_EAGER_PARTS_SLOT_BYTES(ranks, bytes) : MPATH_EAGER_SLOT_BYTES(bytes);
}

uint64_t mpath_eager_memory_bytes(mpath_eager_form_t form, unsigned ranks, uint64_t slot_bytes)
{
    return (form == MPATH_EAGER_PARTS) ? MPATH_EAGER_PARTS_MEMORY_BYTES(ranks, slot_bytes)
                                       : MPATH_EAGER_MEMORY_BYTES(ranks, slot_bytes);
}
