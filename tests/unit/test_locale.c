/* SPDX-License-Identifier: BSD-3-Clause */
/* Applications may have a decimal comma: what mpath writes for programs and for people has a point all the same. */
#include "unit/capture.h"

#include "record/summary.h"
#include "util/number.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/mpath-test-locale.XXXXXX";
static int has_comma;

/* A locale of our own, since a machine may have none but "C". */
static int begin(void **state)
{
    char command[256], text[16];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof(command), "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    if ((system(command) == 0) && (setenv("LOCPATH", folder, 1) == 0) && (setlocale(LC_ALL, "de_DE.UTF-8") != NULL)) {
        snprintf(text, sizeof(text), "%.1f", 1.5);
        has_comma = strcmp(text, "1,5") == 0;
    }
    return 0;
}

static int end(void **state)
{
    char command[256];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) == 0 ? 0 : -1;
}

static void needs_comma(void)
{
    if (!has_comma) {
        print_message("localedef cannot make de_DE: install the package locales\n");
        skip();
    }
}

static void shown(double value, const char *expected)
{
    char text[MPATH_NUMBER_SHOWN];

    mpath_number_show(value, "B", text);
    assert_string_equal(text, expected);
}

static void test_show(void **state)
{
    (void)state;
    needs_comma();
    shown(0, "0 B");
    shown(1, "1 B");
    shown(31250000000.0, "31.25 GB");
    shown(0.001265, "1.265 mB");
    shown(0.1, "100 mB");
    shown(12.3456, "12.35 B");
    shown(99.996, "100 B");
    shown(999.94, "999.9 B");
    shown(999.96, "1 kB");
    shown(9.9996, "10 B");
    shown(0.5e-12, "0.5 pB");
    shown(1e-30, "1e-18 pB");
}

static void test_summary(void **state)
{
    mpath_summary_t *summary;
    mpath_report_t report;
    size_t size;
    char *text;
    FILE *out;

    (void)state;
    needs_comma();
    assert_int_equal(mpath_summary_create(1, "9.8.7", &summary), MPATH_OK);
    mpath_report_make(0, &report);
    report.job_ns = 1500000001;
    assert_int_equal(mpath_summary_add(summary, &report), MPATH_OK);
    out = open_memstream(&text, &size);
    assert_non_null(out);
    mpath_summary_write_json(summary, out);
    fclose(out);
    assert_non_null(strstr(text, "\"seconds\": 1.500000001,"));
    free(text);
    mpath_summary_destroy(summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_show), cmocka_unit_test(test_summary)};

    return cmocka_run_group_tests(tests, begin, end);
}
