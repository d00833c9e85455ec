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
# for itself. Without patterns: all. MPATH_CASES=K/N: of these the K-th, and each N-th from there.
choose_cases() {
    local pattern name chosen=() before i
    : "${MPATH_CASES:=1/1}"
    for pattern in "$@"; do
        before=${#chosen[@]}
        for name in "${cases[@]}"; do
            # shellcheck disable=SC2053 # a pattern it is
            [[ $name != $pattern ]] || chosen+=("$name")
        done
        [ ${#chosen[@]} -gt "$before" ] || chosen+=("$pattern")
    done
    [ $# = 0 ] || cases=("${chosen[@]}")
    chosen=()
    for ((i = ${MPATH_CASES%/*} - 1; i < ${#cases[@]}; i += ${MPATH_CASES#*/})); do
        chosen+=("${cases[i]}")
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
    local root=${MPATH_CLUSTER_ROOT:-}
    if [ ! -e "$root$(command -v mpirun)" ] || [ ! -e "$root$(command -v mpicc)" ]; then
        echo "SKIP: mpi: Open MPI's mpirun and mpicc are not installed"
        exit 0
    fi
    if [ ! -e "$root$1/ompi_coll_mpath/.libs/mca_coll_mpath.so" ]; then
        echo "FAIL: component: $1/ompi_coll_mpath/.libs/mca_coll_mpath.so is not built; nothing was tested"
        exit 1
    fi
}

# build_folder BUILDDIR: where it lies, as programs see it: MPATH_CLUSTER_ROOT names the root folder of another release.
build_folder() {
    local folder
    folder=$(realpath "${MPATH_CLUSTER_ROOT:-}$1")
    echo "${folder#"${MPATH_CLUSTER_ROOT:-}"}"
}

# compile_mpi SOURCE TARGET: an MPI program, by the compiler of the release on which it will run.
compile_mpi() {
    local folder status=0
    if [ -z "${MPATH_CLUSTER_ROOT:-}" ]; then
        mpicc -std=gnu11 -O2 -o "$2" "$1"
        return
    fi
    folder=$(mktemp -d "$MPATH_CLUSTER_ROOT/root/compile.XXXXXX")
    cp "$1" "$folder/program.c" &&
        chroot "$MPATH_CLUSTER_ROOT" mpicc -std=gnu11 -O2 -o "/root/${folder##*/}/program" "/root/${folder##*/}/program.c" &&
        mv "$folder/program" "$2" || status=1
    rm -rf "$folder"
    return $status
}

# program uct|late|lossy|pair|relay: makes it, once, where it will run, for ucx_test. Skips the case where UCX's headers are not installed.
program() {
    local source=$here/ucx_$1.c libraries=(-lucp -lucs)
    if [ "$1" = uct ]; then
        [ -e "$uct_program" ] || ${CC:-cc} -std=gnu11 -O2 -o "$uct_program" "$source" -luct -lucs 2>"$scratch/compiler"
    elif [ "$1" = late ] || [ "$1" = lossy ]; then
        [ -e "$scratch/$1.so" ] || ${CC:-cc} -std=gnu11 -O2 -shared -fPIC -o "$scratch/$1.so" "$source" 2>"$scratch/compiler"
    elif [ -e "$place/made_$1" ]; then
        :
    elif [ -n "$root" ]; then
        cp "$source" "$place" &&
            chroot "$root" gcc -std=gnu11 -O2 -o "/root/ucx_$1" "/root/ucx_$1.c" "${libraries[@]}" 2>"$scratch/compiler"
    else
        ${CC:-cc} -std=gnu11 -O2 -o "$place/ucx_$1" "$source" "${libraries[@]}" 2>"$scratch/compiler" && : >"$place/made_$1"
    fi || skip "ucx_$1 does not build, are UCX's headers installed? $(tail -n 1 "$scratch/compiler")"
}
