#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The dependency rule: util <- record <- device <- topo <- plan <- lane <- rail <- team <- wire <- tune <- node <- mover <- pipeline <- coll <- tools, and no MPI header below src/ except in
# the files of tools/mpath_bench. Prints each include that breaks it.
set -u
cd "$(dirname "$0")/../src" || exit 2

rooms=(util record device topo plan lane rail team wire tune node mover pipeline coll tools)
# Rooms a room may include besides itself: all before it. plan is pure arithmetic, which the order says already.
rc=0
allowed=
for room in "${rooms[@]}"; do
    allowed="$allowed${allowed:+|}$room"
    while IFS=: read -r file line text; do
        [[ -n $file ]] || continue
        included=${text#*\"}
        included=${included%%\"*}
        if [[ $included == */* && ! $included =~ ^($allowed)/ ]]; then
            echo "src/$file:$line: $room may not include $included"
            rc=1
        fi
    done < <(grep -rn --include='*.[ch]' '^ *# *include *"' "$room")
done

# CUDA has names below device/cuda only; mpath_bench makes memory of every kind that its driver has, and runs NCCL.
if grep -rnE --include='*.[ch]' 'mpath_cu_|MPATH_CU_|"device/cuda/' . ../ompi_coll_mpath ../ucx_tl_mpath | grep -v -E '^\./(device/cuda/|tools/bench/)'; then
    echo "src: only device/cuda and the tools that make memory for benchmarks call CUDA; the others use device/device.h"
    rc=1
fi

for pattern in '<mpi\.h>' '"mpi\.h"' '"ompi' '"opal'; do
    if grep -rn --include='*.[ch]' "^ *# *include *$pattern" . | grep -v -E '^\./tools/bench/'; then
        echo "src: only tools/mpath_bench is an MPI program"
        rc=1
    fi
done
if grep -rnE --include='*.[ch]' '^ *# *include *<(ucp|uct|ucs|cuda|infiniband)' util plan; then
    echo "src: util and plan include no UCX, CUDA or verbs header"
    rc=1
fi
exit $rc
