/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kernels have in common that are started before it is known that all ranks have come: they write to memory that
 * the ranks have lent each other, a unit of data and the number of the call at a time, and wait a bounded time for what
 * the others write. Whoever finds the number beside a unit has the unit: nothing else tells that it has come, so
 * neither end of a link has to order anything. Shared by the host code, the kernels and the fake driver of the tests.
 */
#ifndef MPATH_DEVICE_KERNELS_EAGER_ARGS_H
#define MPATH_DEVICE_KERNELS_EAGER_ARGS_H

#include <stdint.h>

/* CTAs of a launch, at most. */
#define MPATH_EAGER_CTAS 64u

/* Of data, that travel with a number of the same length behind them. */
#define MPATH_EAGER_UNIT_BYTES 8u
#define MPATH_EAGER_UNITS(_bytes) (((_bytes) + MPATH_EAGER_UNIT_BYTES - 1) / MPATH_EAGER_UNIT_BYTES)
#define MPATH_EAGER_SLOT_BYTES(_bytes) (MPATH_EAGER_UNITS(_bytes) * 16u)

/*
 * In the word of a CTA, beside the number of the call: it has waited for long enough, and not all of its results are
 * there.
 */
#define MPATH_EAGER_GAVE_UP (UINT64_C(1) << 63)

/* At the beginning of a rank's lent memory: the number of the last call, for each CTA. */
#define MPATH_EAGER_COUNTERS_BYTES (MPATH_EAGER_CTAS * UINT64_C(8))

#endif
