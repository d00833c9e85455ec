#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The stages of ./check. usage: scripts/stages.sh STAGE
# Each prints PASS/FAIL/SKIP lines for what it tested and anything else for the log.
set -u
cd "$(dirname "$0")/.." || exit 2
# shellcheck source=scripts/build_lib.sh
. scripts/build_lib.sh

check_dir=$PWD/build/check

pass() { echo "PASS: $*"; }
fail() { echo "FAIL: $*"; }
skip() { echo "SKIP: $*"; }

# verdict NAME WHY CMD...: runs CMD; PASS: NAME or FAIL: NAME: WHY.
verdict() {
    local name=$1 why=$2
    shift 2
    if "$@"; then
        pass "$name"
    else
        fail "$name: $why"
    fi
}

# suite NAME CMD...: runs a test runner; one that breaks off without a FAIL line of its own is a failure too.
suite() {
    local name=$1 output rc
    shift
    output=$(mktemp)
    "$@" 2>&1 | tee "$output"
    rc=${PIPESTATUS[0]}
    if ((rc != 0)) && ! grep -q '^FAIL: ' "$output"; then
        fail "$name: ended with status $rc"
    elif ! grep -q -E '^(PASS|FAIL|SKIP): ' "$output"; then
        fail "$name: ran no test"
    fi
    rm -f "$output"
}

# Of the files that standard input names, those that no configure and no libtool has made, which write that into their first lines.
not_generated() {
    local files
    mapfile -t files
    comm -23 <(printf '%s\n' "${files[@]}" | sort) <(printf '%s\0' "${files[@]}" |
        xargs -0 awk 'FNR > 5 { nextfile } /[Gg]enerated (automatically )?(by|from) (config|libtool|GNU libtool)/ { print FILENAME; nextfile }' | sort)
}

# Every file of the project: from git in a checkout, from find in an unpacked release, where autogen.sh and configure have left theirs.
project_files() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files
    else
        find . \( -path ./build -o -path ./build-aux -o -path ./autom4te.cache -o -path ./.git \) -prune -o -type f \
            ! -path ./configure ! -path ./aclocal.m4 ! -path './m4/libtool.m4' ! -path './m4/lt*.m4' ! -name Makefile.in \
            ! -name '*~' -print | sed 's,^\./,,' | not_generated
    fi
}

project_scripts() {
    local file first
    while IFS= read -r file; do
        [[ -f $file && $file != *.[ch] ]] || continue
        IFS= read -r first <"$file" 2>/dev/null || continue
        case $first in
        '#!/bin/sh'* | '#!/bin/bash'* | '#!/usr/bin/env bash'*) echo "$file" ;;
        esac
    done < <(project_files)
}

stage_packages() {
    local output rc=0
    output=$(scripts/packages.sh 2>&1) || rc=$?
    echo "$output"
    case $rc in
    0) pass packages ;;
    3) skip "$output" ;;
    *) fail "packages: apt-get failed; what is missing: scripts/packages.sh --list" ;;
    esac
}

check_spdx() {
    local file rc=0
    while IFS= read -r file; do
        if [[ -f $file ]] && ! head -n 3 "$file" | grep -q 'SPDX-License-Identifier: BSD-3-Clause'; then
            echo "$file: no SPDX line"
            rc=1
        fi
    done < <(project_files | grep -E '\.(c|cc|cu|cuh|h|sh|m4|am|mk)$')
    return $rc
}

stage_style() {
    local sources scripts
    if command -v clang-format >/dev/null; then
        mapfile -t sources < <(project_files | grep -E '\.([ch]|cc)$')
        verdict clang-format "files differ from .clang-format" clang-format --dry-run -Werror "${sources[@]}"
    else
        skip "clang-format: not installed"
    fi
    if command -v shellcheck >/dev/null; then
        mapfile -t scripts < <(project_scripts)
        verdict shellcheck "warnings in shell scripts" shellcheck -x "${scripts[@]}"
    else
        skip "shellcheck: not installed"
    fi
    verdict layers "a room includes a room above it" scripts/check_layers.sh
    verdict licence-lines "files without an SPDX line" check_spdx
}

# What make install leaves: the component alone, exporting its one symbol, with everything it needs resolved.
check_install() {
    local build_dir=$1 root=$check_dir/install component
    rm -rf "$root"
    make -s -C "$build_dir" install DESTDIR="$root" || return 1
    component=$(find "$root" -name mca_coll_mpath.so)
    if [[ -z $component ]]; then
        echo "make install put no mca_coll_mpath.so anywhere"
        return 1
    fi
    if ldd -r "$component" 2>&1 | grep -E 'undefined symbol|not found'; then
        return 1
    fi
    if [[ $(nm -D --defined-only "$component" | awk '{print $3}') != mca_coll_mpath_component ]]; then
        echo "exported symbols:"
        nm -D --defined-only "$component"
        return 1
    fi
    [[ -x $root/usr/local/bin/mpath_info ]] || { echo "mpath_info is not installed"; return 1; }
}

# For clang's warnings, and for the fuzzers. Without the kernels, as where there is no nvcc.
clang_tree=("$check_dir/clang" CC=clang CFLAGS="-g1 -O1" --without-cuda --enable-werror --enable-fuzzers
    "--enable-sanitizers=address,undefined")

stage_build() {
    verdict build-gcc "warnings or errors" build_tree "$check_dir/gcc" CC=gcc --enable-werror
    if command -v clang >/dev/null; then
        verdict build-clang "warnings or errors" build_tree "${clang_tree[@]}"
    else
        skip "build-clang: clang is not installed"
    fi
    if [[ -f $check_dir/gcc/src/device/kernels/kernels.fatbin ]]; then
        verdict kernel-targets "see the log" tests/gpu/kernel_targets "$check_dir/gcc/src/device/kernels/kernels.fatbin" sm_80 sm_90 PTX
    else
        skip "kernel-targets: built without nvcc"
    fi
    verdict install "see the log" check_install "$check_dir/gcc"
    if grep -q '^MOE_LAYER_MISSING = *$' "$check_dir/gcc/Makefile"; then
        verdict examples "warnings or errors" make -s -C "$check_dir/gcc" examples
    else
        skip "examples: $(sed -n 's/^MOE_LAYER_MISSING = //p' "$check_dir/gcc/Makefile")"
    fi
}

# failed_tests PROGRAM LOG: of each cmocka test that failed a line with the first check that did, of a rank where it was one's, and the
# end of what the test said; of a program that broke off the test that it was in.
failed_tests() {
    awk -v program="$1" '
        BEGIN {
            kinds[1] = "^ranks: rank [0-9]+: "
            kinds[2] = "Assertion|ERROR: |runtime error: "
            kinds[3] = "^\\[  ERROR   \\]|rror"
        }
        function tell(name, why, kind, i) {
            for (kind = 1; kind <= 3 && why == ""; kind++) {
                for (i = 0; i < n && why == ""; i++) {
                    if (said[i] ~ kinds[kind]) { why = said[i] }
                }
            }
            print "FAIL: " program name ": " (why == "" ? "failed" : why)
            for (i = (n > 30 ? n - 30 : 0); i < n; i++) { print "  " said[i] }
            told++
            n = 0
        }
        /^\[ RUN      \] / { n = 0; running = $4 }
        /^\[==========\] .*run\.$/ { over = 1 }
        over { next }
        { said[n++] = $0 }
        /^\[       OK \] |^\[  SKIPPED \] / { running = "" }
        /^\[  FAILED  \] / { tell("." running); running = "" }
        END {
            if (running != "") { tell("." running, "broke off") } else if (!told) { tell("") }
        }' "$2"
}

# One line per cmocka test, and per PASS/FAIL/SKIP line of a script, out of the logs that make check left in BUILD/tests.
report_unit_logs() {
    local trs log program result before
    while IFS= read -r trs; do
        log=${trs%.trs}.log
        program=$(basename "${trs%.trs}")
        result=$(sed -n 's/^:global-test-result: //p' "$trs")
        before=$lines
        while IFS= read -r line; do
            echo "$line"
            lines=$((lines + 1))
        done < <(sed -n -E -e "s/^\[       OK \] (.*)/PASS: $program.\1/p" -e "s/^\[  SKIPPED \] ([A-Za-z_].*)/SKIP: $program.\1: skipped/p" \
            -e '/^(PASS|FAIL|SKIP): /p' "$log" | sort -u)
        if [[ $result != PASS && $result != SKIP ]]; then
            if grep -q '^FAIL: ' "$log"; then
                tail -n 30 "$log" | sed 's/^/  /'
            else
                failed_tests "$program" "$log"
            fi
        elif ((lines == before)); then
            echo "$result: $program"
        fi
    done < <(find "$1/tests" -name '*.trs' | sort)
}

# Tests that wait for deadlines for most of their time, and the longest one: they begin first, and the others run beside them.
waiting_tests=(unit/scripts unit/test_{gpu_nodes_cut,alltoallv,resume,cut_plans,relay_cut,gpu_nodes_faults,relay_faults,failures,attend,agree_own,share_rates,symmetric_failures,dead_end,gpu_symmetric})

# run_unit BUILD [TEST...]: all tests of make check but these.
run_unit() {
    local build_dir=$1 rc=0 lines=0 first="" tests name
    tests=" $(make -s --no-print-directory -C "$build_dir/tests" list-tests) "
    for name in "${@:2}"; do
        tests=${tests/ $name / }
    done
    for name in "${waiting_tests[@]}"; do
        [[ $tests != *" $name "* ]] || first+=" $name"
        tests=${tests/ $name / }
    done
    tests=$first$tests
    find "$build_dir/tests" -name '*.trs' -delete
    # More at a time than processors: many of them wait for deadlines most of their time.
    make -s -j6 -C "$build_dir" check TESTS="$tests" >"$build_dir/make_check.log" 2>&1 || rc=$?
    report_unit_logs "$build_dir"
    # With no result at all find is content.
    if ((rc != 0)) && [[ -z $(find "$build_dir/tests" -name '*.trs' -exec grep -l '^:global-test-result: FAIL' {} +) ]]; then
        tail -n 20 "$build_dir/make_check.log"
        fail "unit: make check ended with status $rc"
    fi
}

stage_unit() {
    build_tree "$check_dir/gcc" CC=gcc --enable-werror || { fail "unit: the build failed"; return; }
    run_unit "$check_dir/gcc"
}

# What runs on GPUs, on the driver without one: the tests, and what else there is, in a form that tries the script.
run_gpu() {
    local options=(--build "$check_dir/gcc" --fake "$check_dir/gcc/tests/fake_cuda" --out "$check_dir/gpu")
    suite gpu tests/gpu/run "${options[@]}" info smoke relays
    suite gpu-script tests/gpu/run "${options[@]}" --gpus 2 \
        kinds traps traps-relays calls large bench:{small,skew,nvlink,zipf,stock,allreduce,allgather,overlap,nccl}
}

stage_mpi() {
    build_programs mpi-programs "$check_dir/gcc" CC=gcc --enable-werror || { fail "mpi: the build failed"; return; }
    run_gpu >"$check_dir/gpu.out" 2>&1 &
    suite mpi tests/mpi/run "$check_dir/gcc"
    wait
    cat "$check_dir/gpu.out"
}

stage_sanitize() {
    take_kernels "$check_dir/gcc" "$check_dir/asan"
    if ! build_programs mpi-programs "$check_dir/asan" CC=gcc CFLAGS="-g1 -O1" --enable-werror --enable-sanitizers=address,undefined; then
        fail "sanitize: the build failed"
        return
    fi
    export UBSAN_OPTIONS=print_stacktrace=1
    # scale/growth counts allocations, golden/compilers compiles the planner itself, the others try configure, scripts, documents and what is installed, whatever the tree is made of.
    ASAN_OPTIONS=detect_leaks=1 run_unit "$check_dir/asan" scale/growth golden/compilers unit/scripts unit/man unit/packaging unit/docs
    # Open MPI itself leaks at exit, so leak detection stays with the unit tests.
    ASAN_OPTIONS=detect_leaks=0 MPATH_SANITIZED=1 suite mpi-sanitized tests/mpi/run "$check_dir/asan"
}

run_fuzzer() {
    local program=$1 name found corpora
    name=$(basename "$program")
    found=$check_dir/fuzz_found/$name
    mkdir -p "$found"
    corpora=("$found")
    if [[ -d tests/fuzz/corpus/$name ]]; then
        corpora+=("tests/fuzz/corpus/$name")
    fi
    # New inputs go into the first folder; the project's corpus is only read.
    verdict "fuzz-$name" "crash input left in $found" "$program" -max_total_time="${MPATH_FUZZ_SECONDS:-20}" -timeout=100 \
        -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 -artifact_prefix="$found/" \
        "${corpora[@]}"
}

stage_fuzz() {
    local program outputs=()
    if ! command -v clang >/dev/null; then
        skip "fuzz: clang is not installed"
        return
    fi
    if ! build_programs fuzz-programs "${clang_tree[@]}"; then
        fail "fuzz: the build failed"
        return
    fi
    # Each takes one processor.
    while IFS= read -r program; do
        while (($(jobs -pr | wc -l) >= $(nproc))); do
            wait -n
        done
        run_fuzzer "$program" >"$program.out" 2>&1 &
        outputs+=("$program.out")
    done < <(find "$check_dir/clang/tests/fuzz" -maxdepth 1 -name 'fuzz_*' ! -name '*.out' -type f -executable | sort)
    wait
    ((${#outputs[@]} == 0)) || cat "${outputs[@]}"
}

stage_cluster() {
    local as_root=() reason script access part output outputs=()
    export MPATH_CLUSTER=check
    if ! reason=$(tests/cluster/cluster check 2>&1); then
        if ((EUID != 0)) && sudo -n true 2>/dev/null; then
            as_root=(sudo -n -E)
        else
            skip "cluster: $reason"
            return
        fi
    fi
    build_programs mpi-programs "$check_dir/gcc" CC=gcc --enable-werror || { fail "cluster: the build failed"; return; }
    # Each on a cluster of its own: bytes decide, not times, and much of it is waiting.
    for script in failures mpath_test; do
        for access in affine all; do
            for part in 1/2 2/2; do
                output=$check_dir/cluster-$script-$access-${part%/*}.out
                outputs+=("$output")
                MPATH_CASES=$part suite "cluster-$script-$access-$part" "${as_root[@]}" tests/cluster/$script "$check_dir/gcc" "*_$access" \
                    >"$output" 2>&1 &
            done
        done
    done
    suite cluster-self-test "${as_root[@]}" tests/cluster/self_test
    wait
    cat "${outputs[@]}"
}

# The transport for UCX needs the source of the installed UCX, which is fetched once.
stage_ucx() {
    local source part as_root=() reason=$check_dir/ucx-source.log
    if ! source=$(scripts/fetch-ucx-source "$check_dir/ucx-source" 2>"$reason"); then
        skip "ucx: $(tail -n 1 "$reason")"
        return
    fi
    if ! command -v ucx_info >/dev/null; then
        skip "ucx: ucx_info is not installed (ucx-utils)"
        return
    fi
    if ! configure_tree "$check_dir/ucx" CC=gcc --enable-werror --with-ucx-source="$source" ||
        ! make -s -j2 -C "$check_dir/ucx/ucx_tl_mpath"; then
        fail "ucx: the build failed"
        return
    fi
    if ((EUID != 0)) && sudo -n true 2>/dev/null; then
        as_root=(sudo -n -E)
    fi
    # Each on a cluster of its own; they wait for slow rails.
    for part in 1/2 2/2; do
        MPATH_CASES=$part suite "ucx-$part" "${as_root[@]}" tests/cluster/ucx_test "$check_dir/ucx" >"$check_dir/ucx-${part%/*}.out" 2>&1 &
    done
    wait
    cat "$check_dir"/ucx-[12].out
}

# Releases of PyTorch that torch_mpath is tested with.
torch_releases=(2.15.0 2.14.1 2.11.0)

# torch_python RELEASE: installs it, once, in an environment of its own, and prints its interpreter.
torch_python() {
    local folder=$check_dir/torch/venv-$1
    if [[ ! -e $folder/complete ]]; then
        { python3 -m venv "$folder" && "$folder/bin/python" -m pip install --progress-bar off "torch==$1" numpy 'setuptools>=70.1,<82'; } >&2 || return 1
        : >"$folder/complete"
    fi
    echo "$folder/bin/python"
}

# PyTorch over mpath. MPATH_TORCH=install: with all its releases, installed from PyPI; else with what is installed.
stage_torch() {
    local release python pythons=() as_root=()
    if [[ ${MPATH_TORCH:-} == install ]]; then
        scripts/packages.sh cluster torch || (($? == 3)) || { fail "torch: packages are missing, see the log"; return; }
        for release in "${torch_releases[@]}"; do
            if python=$(torch_python "$release"); then
                pythons+=("$python")
            else
                fail "torch: PyTorch $release cannot be installed, see the log"
            fi
        done
    elif python3 -c 'import torch' 2>/dev/null; then
        pythons=(python3)
    else
        skip "torch: python3 has no PyTorch; ./check torch installs it"
    fi
    ((${#pythons[@]} > 0)) || return 0
    build_tree "$check_dir/gcc" CC=gcc --enable-werror || { fail "torch: the build failed"; return; }
    if ((EUID != 0)) && sudo -n true 2>/dev/null; then
        as_root=(sudo -n -E)
    fi
    for python in "${pythons[@]}"; do
        suite torch "${as_root[@]}" tests/torch/run "$check_dir/gcc" "$python"
    done
}

# Once more when something failed: software emulation that got no time looks like a network that fails.
run_vm() {
    local output rc
    output=$(mktemp)
    tests/vm/run "$@" >"$output" 2>&1
    rc=$?
    if ((rc != 0)); then
        sed 's/^/vm, the first time: /' "$output"
        tests/vm/run "$@" >"$output" 2>&1
        rc=$?
    fi
    cat "$output"
    rm -f "$output"
    return "$rc"
}

# Pages in a browser, also that of a job with its timeline: the other stages leave that out where there is none.
stage_browser() {
    scripts/packages.sh browser || (($? == 3)) || { fail "browser: packages are missing, see the log"; return; }
    build_programs mpi-programs "$check_dir/gcc" CC=gcc --enable-werror || { fail "browser: the build failed"; return; }
    MPATH_TEST_BUILDDIR=$check_dir/gcc/tests MPATH_TEST_SRCDIR=$PWD/tests suite browser tests/unit/report
    suite browser-job tests/mpi/run "$check_dir/gcc" seen
}

# Over real verbs: a part in a minute, or with MPATH_VM=all everything.
stage_vm() {
    local source cases=(discovery rails conformance_affine) tree=("$check_dir/gcc" CC=gcc --enable-werror)
    case ${MPATH_VM:-} in
    '' | all) ;;
    no)
        skip "vm: MPATH_VM is no"
        return
        ;;
    *)
        fail "vm: MPATH_VM is '$MPATH_VM'; it can be all or no"
        return
        ;;
    esac
    if [[ ${MPATH_VM:-} == all ]] && source=$(scripts/fetch-ucx-source "$check_dir/ucx-source" 2>/dev/null); then
        tree=("$check_dir/ucx" CC=gcc --enable-werror --with-ucx-source="$source")
    fi
    build_programs mpi-programs "${tree[@]}" || { fail "vm: the build failed"; return; }
    if [[ ${MPATH_VM:-} == all ]]; then
        suite vm tests/vm/run "${tree[0]}"
    else
        MPATH_VM_LIMIT_S=300 suite vm run_vm "${tree[0]}" "${cases[@]}"
    fi
}

# The release that distcheck has left holds every file of the project but the one that only git reads.
check_dist_files() {
    local releases=("$check_dir"/gcc/mpath-*.tar.xz) missing
    missing=$(comm -23 <(project_files | grep -v -x -F .gitignore | sort) <(tar -tf "${releases[0]}" | sed 's,^[^/]*/,,' | sort)) || return 1
    if [[ -n $missing ]]; then
        printf 'not in the release:\n%s\n' "$missing"
        return 1
    fi
}

# What an unpacked release can miss is a file. With all files in it, it runs the tests that read some, and builds just those: the
# others are built and run from the same sources in the stage "unit". unit/scripts is not run: it calls configure again and again,
# and dist-files sees whether a file of its is missing. Lines are not counted twice. Nothing is optimised, so the
# planner's tables, minutes then, are left to "unit", too. The kernels are PTX only where nvcc can that: with -G a fifth of the time.
check_dist() {
    local tests programs flags="CFLAGS='-O0' 'NVCCFLAGS=-std=c++17 -G -gencode arch=compute_90,code=compute_90'"
    tests=$(cd tests && grep -s -l MPATH_TEST_SRCDIR golden/run unit/* | sed -e '/^unit\/scripts$/d' -e 's/\.c$//' | tr '\n' ' ')
    programs=$(cd tests && grep -s -l MPATH_TEST_SRCDIR unit/*.c | sed 's/\.c$//' | tr '\n' ' ')
    MPATH_NOT_OPTIMISED=1 XZ_OPT=-1 make -s -j2 -C "$check_dir/gcc" distcheck AM_MAKEFLAGS="TESTS='$tests' check_PROGRAMS='$programs'" \
        DISTCHECK_CONFIGURE_FLAGS="$flags" 2>&1 |
        sed -E 's/^(PASS|FAIL|SKIP): /  &/'
    return "${PIPESTATUS[0]}"
}

stage_dist() {
    configure_tree "$check_dir/gcc" CC=gcc --enable-werror || { fail "dist: configure failed"; return; }
    rm -f "$check_dir"/gcc/mpath-*.tar.xz
    verdict distcheck "see the log" check_dist
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        verdict dist-files "see the log" check_dist_files
    else
        skip "dist-files: no checkout tells which files there are"
    fi
}

# The Debian packages of the release, and what lintian says of them.
check_debian() {
    local releases=("$check_dir"/gcc/mpath-*.tar.xz) output=$check_dir/debian
    rm -rf "$output"
    # Tests that run in it are counted in the stage "unit".
    DEB_BUILD_OPTIONS="parallel=2" contrib/debian/build "${releases[0]}" "$output" 2>&1 | sed -E 's/^(PASS|FAIL|SKIP): /  &/'
    return "${PIPESTATUS[0]}"
}

check_lintian() {
    local said
    said=$(lintian --allow-root --display-info "$check_dir"/debian/*.changes 2>&1)
    echo "$said"
    [[ -z $said ]]
}

# What is installed from the packages into a folder of its own has programs, pages, documents and the component in its place.
check_debian_contents() {
    local root=$check_dir/debian/root package component
    rm -rf "$root"
    for package in "$check_dir"/debian/mpath{,-doc}_*.deb; do
        dpkg-deb -x "$package" "$root" || return 1
    done
    component=$(ompi_info --path pkglibdir --parsable | sed -n 's/^path:pkglibdir://p')/mca_coll_mpath.so
    [[ $("$root/usr/bin/mpath_info" --version) == "mpath_info "* && -e $root$component && -e $root/usr/share/man/man7/mpath.7.gz &&
        -e $root/usr/share/doc/mpath-doc/doc/openmpi.md && -e $root/usr/share/doc/mpath-doc/examples/moe_layer/moe_layer.c &&
        -e $root/usr/share/bash-completion/completions/mpath_plan ]]
}

# Where an engine is installed and answers.
check_container() {
    local engine
    for engine in podman docker; do
        if "$engine" info >/dev/null 2>&1; then
            verdict container "see the log" "$engine" build -f contrib/container/Containerfile -t mpath-check .
            return
        fi
    done
    skip "container: neither podman nor docker works here"
}

check_spack() {
    local repository=$check_dir/spack-repository
    if ! command -v spack >/dev/null; then
        skip "spack: not installed"
        return
    fi
    rm -rf "$repository"
    mkdir -p "$repository/packages/mpath"
    printf 'repo:\n  namespace: mpath_check\n' >"$repository/repo.yaml"
    cp contrib/spack/package.py "$repository/packages/mpath"
    verdict spack "see the log" spack -c "repos:[$repository]" info mpath
}

# Packages built from a release: on demand, as it takes minutes.
stage_packaging() {
    local command missing=()
    build_tree "$check_dir/gcc" CC=gcc --enable-werror || { fail "packaging: the build failed"; return; }
    rm -f "$check_dir"/gcc/mpath-*.tar.xz
    XZ_OPT=-1 make -s -C "$check_dir/gcc" dist || { fail "packaging: there is no release"; return; }
    for command in dpkg-buildpackage dh lintian; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    if ((${#missing[@]} > 0)); then
        skip "debian: not installed: ${missing[*]} (scripts/packages.sh packaging)"
    elif check_debian; then
        pass debian
        verdict debian-lintian "see the log" check_lintian
        verdict debian-contents "a file is missing in the packages, or a program does not run" check_debian_contents
    else
        fail "debian: dpkg-buildpackage failed"
    fi
    check_container
    check_spack
}

case ${1:-} in
packages | style | build | unit | mpi | sanitize | fuzz | cluster | ucx | torch | vm | dist | packaging | browser) "stage_$1" ;;
*)
    echo "stages.sh: no stage '${1:-}'" >&2
    exit 2
    ;;
esac
