# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by the tests of this folder: a case is a function test_NAME that returns 0, or says why not by fail or skip.

fail() { # WHY: always returns 1
    case_result="FAIL"
    case_why=$*
    return 1
}

skip() {
    case_result="SKIP"
    case_why=$*
    return 1
}

# run_cases NAME...: runs them in turn, prints a line for each, exits 1 when any failed.
run_cases() {
    local name failed=0
    for name in "$@"; do
        case_result="" case_why=""
        if "test_$name" && [ -z "$case_result" ]; then
            echo "PASS: $name"
        else
            echo "${case_result:-FAIL}: $name: ${case_why:-ended with an error}"
            [ "${case_result:-FAIL}" = SKIP ] || failed=1
        fi
    done
    exit $failed
}
