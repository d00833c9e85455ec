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

# choose_cases PATTERN...: leaves of the array `cases` those that match one of the patterns; a name that is not among them stands
# for itself. Without patterns: all.
choose_cases() {
    local pattern name chosen=() before
    [ $# -gt 0 ] || return 0
    for pattern in "$@"; do
        before=${#chosen[@]}
        for name in "${cases[@]}"; do
            # shellcheck disable=SC2053 # a pattern it is
            [[ $name != $pattern ]] || chosen+=("$name")
        done
        [ ${#chosen[@]} -gt "$before" ] || chosen+=("$pattern")
    done
    cases=("${chosen[@]}")
}

# Ends the test with one SKIP line where the cluster cannot be made, or Open MPI or the component are missing.
require_cluster() {
    local why
    if ! why=$("$(dirname "${BASH_SOURCE[0]}")/cluster" check 2>&1); then
        echo "SKIP: cluster: $why"
        exit 0
    fi
}

require_component() { # BUILDDIR
    if ! command -v mpirun >/dev/null || ! command -v mpicc >/dev/null; then
        echo "SKIP: mpi: Open MPI's mpirun and mpicc are not installed"
        exit 0
    fi
    if [ ! -e "$1/ompi_coll_mpath/.libs/mca_coll_mpath.so" ]; then
        echo "FAIL: component: $1/ompi_coll_mpath/.libs/mca_coll_mpath.so is not built; nothing was tested"
        exit 1
    fi
}
