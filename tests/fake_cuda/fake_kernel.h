/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For kernels of the fake driver: what kernels_common.cuh is for the real ones. Add a kernel to the table of kernels.c.
 */
#ifndef FAKE_CUDA_FAKE_KERNEL_H
#define FAKE_CUDA_FAKE_KERNEL_H

#include "fake.h"
#include "gpu/kernel_args.h"

void fake_kernel_begin(const struct CUctx_st *context, const mpath_kernel_control_t *control, unsigned ctas);
void fake_kernel_end(const struct CUctx_st *context, const mpath_kernel_control_t *control,
                     const mpath_kernel_word_t *flags);

/* A kernel that has given up in the middle, in place of fake_kernel_end(). */
void fake_kernel_fail(const struct CUctx_st *context, const mpath_kernel_control_t *control);

/* Half precision, in reduce.c. */
float fake_half_load(const char *from);
void fake_half_store(char *to, float value);

/* reduce.c, writes.c, eager.c, exchange.c: NULL when there is none of that name. */
const struct CUfunc_st *fake_reduce_kernel(const char *name);
const struct CUfunc_st *fake_writes_kernel(const char *name);
const struct CUfunc_st *fake_eager_kernel(const char *name);
const struct CUfunc_st *fake_exchange_kernel(const char *name);

#endif
