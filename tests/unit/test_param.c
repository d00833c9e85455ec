/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters: the table is consistent, values are read and refused, the environment counts, the document is current. */
#include "unit/capture.h"
#include "util/number.h"
#include "util/param.h"

#include <stdio.h>
#include <stdlib.h>

static const mpath_param_t *row(const char *name)
{
    size_t i;

    for (i = 0; i < mpath_params_count; i++) {
        if (strcmp(mpath_params[i].name, name) == 0) {
            return &mpath_params[i];
        }
    }
    fail_msg("there is no parameter %s", name);
    return NULL;
}

static void test_table(void **state)
{
    char text[64], message[256];
    mpath_settings_t settings;
    size_t i, k;

    (void)state;
    capture_start();
    mpath_settings_init(&settings);
    capture_stop();
    assert_int_equal(capture_count(), 0);
    for (i = 0; i < mpath_params_count; i++) {
        assert_true((mpath_params[i].level >= 1) && (mpath_params[i].level <= 9));
        assert_true(strlen(mpath_params[i].help) > 20);
        assert_true(mpath_params[i].help[strlen(mpath_params[i].help) - 1] != '.');
        assert_null(strchr(mpath_params[i].help, '|')); /* it stands in a table */
        for (k = 0; k < i; k++) {
            assert_string_not_equal(mpath_params[i].name, mpath_params[k].name);
            assert_true(mpath_params[i].offset != mpath_params[k].offset);
        }
        /* The default is written as it is printed, and can be read back. */
        mpath_settings_get(&settings, &mpath_params[i], text, sizeof(text));
        assert_string_equal(text, mpath_params[i].initial);
        assert_int_equal(mpath_settings_set(&settings, &mpath_params[i], text, message, sizeof(message)), MPATH_OK);
    }
    for (i = 0; mpath_params_removed[i].name != NULL; i++) {
        assert_null(strchr(mpath_params_removed[i].instead, '|'));
        for (k = 0; k < mpath_params_count; k++) {
            assert_string_not_equal(mpath_params_removed[i].name, mpath_params[k].name);
        }
    }
}

static void test_defaults(void **state)
{
    mpath_settings_t settings;

    (void)state;
    mpath_settings_init(&settings);
    assert_int_equal(settings.priority, 79);
    assert_int_equal(settings.verbose, 1);
    assert_int_equal(settings.access, MPATH_ACCESS_ALL);
    assert_int_equal(settings.gate, MPATH_GATE_AUTO);
    assert_int_equal(settings.small_bytes, 4096);
    assert_int_equal(settings.min_fragment_bytes, 32768);
    assert_int_equal(settings.chunk_bytes, 131072);
    assert_int_equal(settings.memory_bytes, 64 << 20);
    assert_int_equal(settings.node_min_bytes, 4097);
    assert_int_equal(settings.timeout_s, 120);
    assert_int_equal(settings.check_plan, 0);
    assert_string_equal(settings.rails, "");
    assert_string_equal(settings.rail_rates, "");
    assert_string_equal(settings.rail_tls, "");
    assert_string_equal(settings.topo_file, "");
}

static void set(mpath_settings_t *settings, const char *name, const char *text)
{
    char message[256];

    assert_int_equal(mpath_settings_set(settings, row(name), text, message, sizeof(message)), MPATH_OK);
}

static void test_good_values(void **state)
{
    const char *rails = "a,b";
    mpath_settings_t settings;

    (void)state;
    mpath_settings_init(&settings);
    set(&settings, "chunk_bytes", "8192");
    assert_int_equal(settings.chunk_bytes, 8192);
    set(&settings, "chunk_bytes", "64k");
    assert_int_equal(settings.chunk_bytes, 65536);
    set(&settings, "memory_bytes", "2G");
    assert_true(settings.memory_bytes == 2ull << 30);
    set(&settings, "memory_bytes", "9g");
    assert_true(settings.memory_bytes == 9ull << 30);
    set(&settings, "timeout_s", "10");
    assert_int_equal(settings.timeout_s, 10);
    set(&settings, "access", "affine");
    assert_int_equal(settings.access, MPATH_ACCESS_AFFINE);
    set(&settings, "gate", "2");
    assert_int_equal(settings.gate, MPATH_GATE_NEVER);
    set(&settings, "check_plan", "yes");
    assert_int_equal(settings.check_plan, 1);
    set(&settings, "check_plan", "0");
    assert_int_equal(settings.check_plan, 0);
    set(&settings, "rails", rails);
    assert_ptr_equal(settings.rails, rails);
}

/* Refused, with a message that contains `expected`; the old value stays. */
static void refuse(const char *name, const char *text, const char *expected)
{
    const mpath_param_t *param = row(name);
    mpath_settings_t settings, before;
    char message[256] = "";

    mpath_settings_init(&settings);
    before = settings;
    assert_int_equal(mpath_settings_set(&settings, param, text, message, sizeof(message)), MPATH_ERR_PARAM);
    if (strstr(message, expected) == NULL) {
        fail_msg("'%s' lacks '%s'", message, expected);
    }
    assert_memory_equal(&settings, &before, sizeof(settings));
}

static void test_bad_values(void **state)
{
    (void)state;
    refuse("timeout_s", "", "'' is not a whole number from 1 to 86400");
    refuse("timeout_s", "0", "'0' is not");
    refuse("timeout_s", "86401", "86400");
    refuse("timeout_s", "-5", "'-5' is not");
    refuse("timeout_s", "10k", "'10k' is not");
    refuse("timeout_s", "10s", "'10s' is not");
    refuse("timeout_s", " 10", "' 10' is not");
    refuse("timeout_s", "0x10", "'0x10' is not");
    refuse("chunk_bytes", "1k", "from 4k to 64m");
    refuse("chunk_bytes", "64mb", "'64mb' is not a number of bytes");
    refuse("chunk_bytes", "k", "'k' is not");
    refuse("chunk_bytes", "99999999999999999999", "is not");
    refuse("chunk_bytes", "9999999999999g", "is not");
    refuse("node_min_bytes", "-1", "'-1' is not");
    refuse("access", "some", "'some' is none of all, affine");
    refuse("access", "", "'' is none of");
    refuse("gate", "3", "'3' is none of auto, always, never");
    refuse("gate", "-1", "none of");
    refuse("verbose", "ERROR", "error, warn, info, debug, trace");
}

static void test_environment(void **state)
{
    mpath_settings_t settings;
    char name[64];

    (void)state;
    mpath_param_env_name(row("chunk_bytes"), name, sizeof(name));
    assert_string_equal(name, "MPATH_CHUNK_BYTES");
    setenv("MPATH_CHUNK_BYTES", "16k", 1);
    setenv("MPATH_ACCESS", "affine", 1);
    setenv("MPATH_TIMEOUT_S", "soon", 1);
    setenv("MPATH_RAILS", "r0,r1", 1);
    mpath_settings_init(&settings);
    capture_start();
    mpath_settings_from_env(&settings);
    capture_stop();
    assert_int_equal(settings.chunk_bytes, 16384);
    assert_int_equal(settings.access, MPATH_ACCESS_AFFINE);
    assert_int_equal(settings.timeout_s, 120);
    assert_string_equal(settings.rails, "r0,r1");
    assert_int_equal(capture_count(), 1);
    assert_non_null(strstr(capture_text(),
                           "environment variable MPATH_TIMEOUT_S: 'soon' is not a whole number from 1 to 86400; "
                           "using 120"));
    unsetenv("MPATH_CHUNK_BYTES");
    unsetenv("MPATH_ACCESS");
    unsetenv("MPATH_TIMEOUT_S");
    unsetenv("MPATH_RAILS");
}

static void check_shown(double value, const char *unit, const char *expected)
{
    char text[MPATH_NUMBER_SHOWN];

    mpath_number_show(value, unit, text);
    assert_string_equal(text, expected);
}

static void check_number(const char *text, mpath_number_scale_t scale, int64_t expected)
{
    int64_t value = -77;

    assert_int_equal(mpath_number_parse(text, strlen(text), scale, INT64_MIN, INT64_MAX, &value), MPATH_OK);
    assert_true(value == expected);
}

static void test_numbers(void **state)
{
    char text[32];
    int64_t value = 5;

    (void)state;
    check_number("0", MPATH_NUMBER_PLAIN, 0);
    check_number("-12", MPATH_NUMBER_PLAIN, -12);
    check_number("9223372036854775807", MPATH_NUMBER_PLAIN, INT64_MAX);
    check_number("25m", MPATH_NUMBER_RATE, 25000000);
    check_number("6250K", MPATH_NUMBER_RATE, 6250000);
    check_number("3g", MPATH_NUMBER_BYTES, 3ll << 30);
    assert_int_equal(mpath_number_parse("9223372036854775808", 19, MPATH_NUMBER_PLAIN, INT64_MIN, INT64_MAX, &value),
                     MPATH_ERR_PARAM);
    assert_int_equal(mpath_number_parse("9007199254740993k", 17, MPATH_NUMBER_BYTES, INT64_MIN, INT64_MAX, &value),
                     MPATH_ERR_PARAM);
    assert_int_equal(mpath_number_parse("-", 1, MPATH_NUMBER_PLAIN, -9, 9, &value), MPATH_ERR_PARAM);
    assert_int_equal(mpath_number_parse("5", 0, MPATH_NUMBER_PLAIN, 0, 9, &value), MPATH_ERR_PARAM);
    assert_int_equal(value, 5);
    assert_int_equal(mpath_number_parse("123", 2, MPATH_NUMBER_PLAIN, 0, 99, &value), MPATH_OK);
    assert_int_equal(value, 12);
    mpath_number_format(0, MPATH_NUMBER_BYTES, text, sizeof(text));
    assert_string_equal(text, "0");
    mpath_number_format(1ll << 40, MPATH_NUMBER_BYTES, text, sizeof(text));
    assert_string_equal(text, "1024g");
    check_shown(0, "B", "0 B");
    check_shown(999.94, "B/s", "999.9 B/s");
    check_shown(999.96, "B/s", "1 kB/s");
    check_shown(1443600e6, "B/s", "1.444 TB/s");
    check_shown(10e12, "B/s", "10 TB/s");
    check_shown(0.001264802, "s", "1.265 ms");
    check_shown(0.99996, "s", "1 s");
    check_shown(3e-9, "s", "3 ns");
    check_shown(1e-30, "s", "1e-18 ps");
    check_shown(4e21, "B", "4000 EB");
    mpath_number_format(25000000, MPATH_NUMBER_RATE, text, sizeof(text));
    assert_string_equal(text, "25m");
    mpath_number_format(4097, MPATH_NUMBER_BYTES, text, sizeof(text));
    assert_string_equal(text, "4097");
}

static void refused_item(const char *key, const char *problem, const char *used, void *arg)
{
    char *said = arg;

    snprintf(said + strlen(said), 512 - strlen(said), "%s: %s; using %s\n", key, problem, used);
}

/* Keys of internals: what cannot be used is told with what holds, and the rest counts. Other parameters are no keys. */
static void test_internals(void **state)
{
    mpath_settings_t settings;
    char said[512] = "";

    (void)state;
    mpath_settings_init(&settings);
    settings.internals = "chunk_bytes=16k,gpu_way=push,check_plan=yes";
    mpath_settings_read_internals(&settings, refused_item, said);
    assert_string_equal(said, "");
    assert_int_equal(settings.chunk_bytes, 16384);
    assert_int_equal(settings.gpu_way, MPATH_GPU_WAY_PUSH);
    assert_int_equal(settings.check_plan, 1);
    settings.internals = "chunk_bytes=1k,chunk_bites=8k,timeout_s=5,,pack_bytes,small_bytes=1k";
    mpath_settings_read_internals(&settings, refused_item, said);
    assert_string_equal(said,
                        "chunk_bytes: '1k' is not a number of bytes (suffixes k, m, g) from 4k to 64m; using 16k\n"
                        "chunk_bites: there is no such key, the nearest is chunk_bytes; using the rest\n"
                        "timeout_s: there is no such key; using the rest\n"
                        "pack_bytes: '' is not a number of bytes (suffixes k, m, g) from 0 to "
                        "9223372036854775807; using 1g\n");
    assert_int_equal(settings.chunk_bytes, 16384);
    assert_int_equal(settings.timeout_s, 120);
    assert_int_equal(settings.small_bytes, 1024);
}

/* Of the environment the list counts before a name that goes. */
static void test_internals_of_environment(void **state)
{
    mpath_settings_t settings;

    (void)state;
    setenv("MPATH_CHUNK_BYTES", "16k", 1);
    setenv("MPATH_LEADER_BYTES", "8k", 1);
    setenv("MPATH_INTERNALS", "chunk_bytes=32k,gpu_rail=7", 1);
    mpath_settings_init(&settings);
    capture_start();
    mpath_settings_from_env(&settings);
    capture_stop();
    assert_int_equal(settings.chunk_bytes, 32768);
    assert_int_equal(settings.leader_bytes, 8192);
    assert_int_equal(capture_count(), 1);
    assert_non_null(strstr(capture_text(),
                           "environment variable MPATH_INTERNALS: gpu_rail: '7' is none of auto, direct, "
                           "host; using auto"));
    unsetenv("MPATH_CHUNK_BYTES");
    unsetenv("MPATH_LEADER_BYTES");
    unsetenv("MPATH_INTERNALS");
}

/* doc/parameters.md is what mpath_info --params-doc writes. */
static void test_document(void **state)
{
    const char *folder = getenv("MPATH_TEST_SRCDIR");
    char *wanted       = NULL, *found;
    size_t size        = 0, length;
    char path[4096];
    FILE *out, *file;

    (void)state;
    if (folder == NULL) {
        skip(); /* not started by make check */
    }
    out = open_memstream(&wanted, &size);
    assert_non_null(out);
    mpath_params_write_doc(out);
    fclose(out);
    snprintf(path, sizeof(path), "%s/../doc/parameters.md", folder);
    file = fopen(path, "r");
    if (file == NULL) {
        fail_msg("cannot open %s", path);
    }
    found = calloc(1, size + 2);
    assert_non_null(found);
    length = fread(found, 1, size + 1, file);
    fclose(file);
    if ((length != size) || (memcmp(found, wanted, size) != 0)) {
        fail_msg("%s differs from the table: run mpath_info --params-doc > doc/parameters.md", path);
    }
    free(found);
    free(wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_good_values),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_internals),
        cmocka_unit_test(test_internals_of_environment),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_document),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
