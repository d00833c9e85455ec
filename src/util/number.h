/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers in text: strict, range-checked, independent of the locale. */
#ifndef MPATH_UTIL_NUMBER_H
#define MPATH_UTIL_NUMBER_H

#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

/* What the suffixes k, m and g (upper case as well) stand for. */
typedef enum mpath_number_scale {
    MPATH_NUMBER_PLAIN = 1,    /* no suffix allowed */
    MPATH_NUMBER_RATE  = 1000, /* powers of 1000 */
    MPATH_NUMBER_BYTES = 1024  /* powers of 1024 */
} mpath_number_scale_t;

/*
 * Reads the `length` bytes at `text`, all of them: an optional '-', decimal digits, an optional suffix.
 * MPATH_ERR_PARAM, without a message, when they are no number, overflow, or lie outside [min, max].
 */
mpath_status_t mpath_number_parse(const char *text, size_t length, mpath_number_scale_t scale, int64_t min, int64_t max,
                                  int64_t *value_p);

/*
 * Reads a decimal fraction such as "31.5077" at the start of `text`, in thousandths, rounded down; what follows is
 * ignored. MPATH_ERR_PARAM when there is no digit or it does not fit.
 */
mpath_status_t mpath_number_parse_milli(const char *text, int64_t *milli_p);

/* Writes a value with the largest suffix that divides it: "64k", "25m", "4097". `value` is not negative. */
void mpath_number_format(int64_t value, mpath_number_scale_t scale, char *text, size_t size);

/*
 * Writes a value for people: four digits, a prefix that stands for a power of 1000, the unit: "31.25 GB/s", "1.265 ms",
 * "0 B". `value` is not negative.
 */
#define MPATH_NUMBER_SHOWN 24
void mpath_number_show(double value, const char *unit, char text[MPATH_NUMBER_SHOWN]);

/* Writes seconds with nine decimals, "1.250000000", for who reads them by program. */
#define MPATH_NUMBER_SECONDS 32
void mpath_number_seconds(uint64_t ns, char text[MPATH_NUMBER_SECONDS]);

/* Mixes bytes into a checksum. */
uint64_t mpath_key_mix(uint64_t key, const void *data, size_t bytes);

#endif
