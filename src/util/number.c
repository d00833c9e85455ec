/* SPDX-License-Identifier: BSD-3-Clause */
/* Strict reading and writing of integers with size or rate suffixes. */
#include "util/number.h"

#include "util/time.h"

#include <inttypes.h>
#include <langinfo.h>
#include <stdio.h>
#include <string.h>

static const char suffixes[] = "kmg";

/* The power of a suffix: 1 to 3; 0 when the character is none. */
static int suffix_power(char suffix)
{
    int i;

    for (i = 0; suffixes[i] != '\0'; i++) {
        if ((suffix == suffixes[i]) || (suffix == suffixes[i] - 'a' + 'A')) {
            return i + 1;
        }
    }
    return 0;
}

mpath_status_t mpath_number_parse(const char *text, size_t length, mpath_number_scale_t scale, int64_t min, int64_t max,
                                  int64_t *value_p)
{
    int64_t value = 0, sign = 1;
    size_t digits, i        = 0;
    int power;

    if ((length > 0) && (text[0] == '-')) {
        sign = -1;
        i    = 1;
    }
    for (digits = 0; (i < length) && (text[i] >= '0') && (text[i] <= '9'); i++, digits++) {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text[i] - '0', &value)) {
            return MPATH_ERR_PARAM;
        }
    }
    if (digits == 0) {
        return MPATH_ERR_PARAM;
    }
    if (i < length) {
        power = (scale == MPATH_NUMBER_PLAIN) ? 0 : suffix_power(text[i]);
        if ((power == 0) || (i + 1 != length)) {
            return MPATH_ERR_PARAM;
        }
        for (; power > 0; power--) {
            if (__builtin_mul_overflow(value, (int64_t)scale, &value)) {
                return MPATH_ERR_PARAM;
            }
        }
    }
    value *= sign;
    if ((value < min) || (value > max)) {
        return MPATH_ERR_PARAM;
    }
    *value_p = value;
    return MPATH_OK;
}

mpath_status_t mpath_number_parse_milli(const char *text, int64_t *milli_p)
{
    int64_t value = 0;
    int fraction  = -1; /* digits after the point; -1: before it */
    int digits    = 0;

    for (; fraction < 3; text++) {
        if ((*text == '.') && (fraction < 0) && (digits > 0)) {
            fraction = 0;
            continue;
        }
        if ((*text < '0') || (*text > '9')) {
            break;
        }
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *text - '0', &value)) {
            return MPATH_ERR_PARAM;
        }
        digits++;
        fraction += (fraction >= 0);
    }
    if (digits == 0) {
        return MPATH_ERR_PARAM;
    }
    for (fraction = (fraction < 0) ? 0 : fraction; fraction < 3; fraction++) {
        if (__builtin_mul_overflow(value, 10, &value)) {
            return MPATH_ERR_PARAM;
        }
    }
    *milli_p = value;
    return MPATH_OK;
}

void mpath_number_format(int64_t value, mpath_number_scale_t scale, char *text, size_t size)
{
    int power = 0;

    if (scale != MPATH_NUMBER_PLAIN) {
        while ((value != 0) && (value % (int64_t)scale == 0) && (suffixes[power] != '\0')) {
            value /= (int64_t)scale;
            power++;
        }
    }
    if (power > 0) {
        snprintf(text, size, "%" PRId64 "%c", value, suffixes[power - 1]);
    } else {
        snprintf(text, size, "%" PRId64, value);
    }
}

/* The application's locale may have another sign, of several bytes even. */
static void write_point(char *text)
{
    const char *sign = nl_langinfo(RADIXCHAR);
    char *found      = strstr(text, sign);

    if (found != NULL && sign[0] != '\0') {
        *found = '.';
        memmove(found + 1, found + strlen(sign), strlen(found + strlen(sign)) + 1);
    }
}

void mpath_number_show(double value, const char *unit, char text[MPATH_NUMBER_SHOWN])
{
    static const char *const prefixes[] = {"p", "n", "u", "m", "", "k", "M", "G", "T", "P", "E"};
    const int last                      = (int)(sizeof(prefixes) / sizeof(prefixes[0])) - 1;
    int prefix                          = 4;
    char digits[16];

    while ((value >= 999.95) && (prefix < last)) { /* what would be shown as 1000 */
        value /= 1000;
        prefix++;
    }
    while ((value > 0) && (value < 0.99995) && (prefix > 0)) {
        value *= 1000;
        prefix--;
    }
    snprintf(digits, sizeof(digits), "%.4g", value);
    write_point(digits);
    snprintf(text, MPATH_NUMBER_SHOWN, "%s %s%s", digits, prefixes[prefix], unit);
}

void mpath_number_seconds(uint64_t ns, char text[MPATH_NUMBER_SECONDS])
{
    snprintf(text, MPATH_NUMBER_SECONDS, "%llu.%09llu", (unsigned long long)(ns / MPATH_NS_PER_S), ns % MPATH_NS_PER_S);
}

uint64_t mpath_key_mix(uint64_t key, const void *data, size_t bytes)
{
    const unsigned char *byte = data;

    key ^= bytes * 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < bytes; i++) {
        key = (key ^ byte[i]) * 0x100000001b3ull;
        key ^= key >> 29;
    }
    return key;
}
