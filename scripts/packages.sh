#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs the Debian or Ubuntu packages that mpath needs, only those that are missing.
# usage: scripts/packages.sh [--list] [build|cluster|test|torch|packaging|browser]...      (default: the first three groups)
# --list names the missing ones and installs nothing. Exit status 3: some are missing and this user cannot install them.
set -eu

build=(gcc make automake autoconf libtool pkg-config
    openmpi-bin libopenmpi-dev libucx-dev libhwloc-dev libxml2-dev libibverbs-dev libjansson-dev)
cluster=(iproute2 util-linux procps python3)
test=(g++ locales hwloc-nox clang clang-format libcmocka-dev libglpk-dev ucx-utils shellcheck xz-utils gfortran python3-mpi4py python3-numpy)
torch=(python3-venv) # PyTorch itself comes from PyPI, see ./check torch
# For ./check browser: pages are looked at by a browser without a window.
browser=(chromium-headless-shell fonts-dejavu-core)
# For ./check packaging.
packaging=(dpkg-dev debhelper bash-completion fakeroot lintian)

list=no
wanted=()
for word in "$@"; do
    case $word in
    --list) list=yes ;;
    build) wanted+=("${build[@]}") ;;
    cluster) wanted+=("${cluster[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    torch) wanted+=("${torch[@]}") ;;
    packaging) wanted+=("${packaging[@]}") ;;
    browser) wanted+=("${browser[@]}") ;;
    *)
        echo "packages: no group '$word'; there are build, cluster, test, torch, packaging, browser; nothing installed" >&2
        exit 2
        ;;
    esac
done
if ((${#wanted[@]} == 0)); then
    wanted=("${build[@]}" "${cluster[@]}" "${test[@]}")
fi

if ! command -v dpkg-query >/dev/null; then
    echo "packages: not a Debian system; what Debian calls ${wanted[*]} must be there; going on" >&2
    exit 3
fi

# The developer headers of Open MPI 5 and later include those of PMIx, which Debian does not make them depend on.
if [[ " ${wanted[*]} " == *" libopenmpi-dev "* ]]; then
    version=$(apt-cache show libopenmpi-dev 2>/dev/null | sed -n 's/^Version: \([0-9]*\).*/\1/p' | head -n 1)
    if ((${version:-0} >= 5)); then
        wanted+=(libpmix-dev libevent-dev)
    fi
fi

# clang's sanitizers and libFuzzer: a package of their own, named after clang's version, on newer systems.
if [[ " ${wanted[*]} " == *" clang "* ]]; then
    version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p')
    if [[ -n $(apt-cache search --names-only "^libclang-rt-$version-dev\$" 2>/dev/null) ]]; then
        wanted+=("libclang-rt-$version-dev")
    fi
fi

# What lstopo writes is read as a topology; there is one with windows, too, in hwloc.
if command -v lstopo >/dev/null; then
    wanted=("${wanted[@]/hwloc-nox/}")
fi

missing=()
for package in "${wanted[@]}"; do
    [[ -n $package ]] || continue
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    if [[ $status != installed ]]; then
        missing+=("$package")
    fi
done
if [[ $list == yes ]]; then
    printf '%s\n' "${missing[@]}"
    exit 0
fi
if ((${#missing[@]} == 0)); then
    exit 0
fi

as_root=()
if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
        echo "packages: missing, and installing needs root or sudo without a password: ${missing[*]}" >&2
        exit 3
    fi
    as_root=(sudo -n)
fi
echo "packages: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# What was interrupted while it installed packages keeps apt-get from installing others.
if ! { { [[ -z $(dpkg --audit) ]] || "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive dpkg --configure -a; } &&
    "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1; then
    echo "packages: apt-get failed, last lines:" >&2
    tail -n 5 "$log" >&2
    exit 1
fi
