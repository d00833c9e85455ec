#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs the Debian or Ubuntu packages that the build, the tests and the demo need, only those that are missing.
# usage: scripts/packages.sh [--list]     (--list names the missing ones and installs nothing)
set -eu

packages=(
    # build
    gcc clang make automake autoconf libtool pkg-config
    openmpi-bin libopenmpi-dev libucx-dev libhwloc-dev libxml2-dev libibverbs-dev libjansson-dev
    # tests
    libcmocka-dev libglpk-dev libclang-rt-14-dev clang-format shellcheck python3
    # emulated cluster
    iproute2 util-linux ethtool procps
)

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    if [[ $status != installed ]]; then
        missing+=("$package")
    fi
done

if [[ ${1:-} == --list ]]; then
    printf '%s\n' "${missing[@]}"
    exit 0
fi
if ((${#missing[@]} == 0)); then
    exit 0
fi

as_root=()
if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
        echo "packages: missing and not installed, since this needs root or sudo: ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo -n)
fi
echo "packages: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1; then
    echo "packages: apt-get failed, last lines:" >&2
    tail -n 5 "$log" >&2
    exit 1
fi
