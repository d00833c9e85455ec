# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What the scripts here share: the environment of a job, and the reading of what its programs print.
# The caller sets build_dir (a configured build tree) and scratch (a folder of its own).
# shellcheck disable=SC2154

# Debian 13's launcher hands its processes PMIx's component folder in place of Open MPI's own, so that they find no
# component outside the library unless the path is given.
launcher_sets_path() {
    mpirun --oversubscribe -n 1 env 2>/dev/null </dev/null | grep -q '^OMPI_MCA_mca_base_component_path=.*pmix'
}

# mpi_setup: environment in which mpirun finds this build's component and runs many ranks on few cores.
mpi_setup() {
    local component=$build_dir/ompi_coll_mpath/.libs
    mpirun_options=(--oversubscribe --bind-to none)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # Jobs run side by side: mpirun removes the folder of its user's sessions when that is empty, while another one makes its own
    # there and ends with status 1 for it (Open MPI 4.1). With something in it the folder stays.
    export TMPDIR=$scratch/sessions
    mkdir -p "$TMPDIR/ompi.$(uname -n).$(id -u)/stays"
    export OMPI_MCA_mpi_yield_when_idle=1
    export OMPI_MCA_coll_mpath_gpu_probe=off # a driver without GPUs has no steady rates
    # Open MPI 5 and later name the launcher's parameters differently; its own DVM needs them.
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    export OMPI_MCA_btl_base_warn_component_unused=0
    # UCX over the loopback device stands for rails; its own notices are not what is tested.
    export UCX_WARN_UNUSED_ENV_VARS=n
    # Open MPI 4.1 wants the system's folder named too; later ones find an installed component only.
    if [[ -e $component/mca_coll_mpath.so && $(mpirun --version) == *") 4."* ]]; then
        export OMPI_MCA_mca_base_component_path=$component:SYS_DEFAULT
    elif launcher_sets_path; then
        export OMPI_MCA_mca_base_component_path=$component
    fi
}

# write_nodes FILE ACCESS NICS COUNT...: a topology of virtual nodes with COUNT ranks each; every NIC is the loopback device.
write_nodes() {
    local file=$1 access=$2 nics=$3 node=0 nic rank count
    shift 3
    {
        echo "<mpath version=\"1\" access=\"$access\">"
        for count in "$@"; do
            echo "  <node host=\"virtual$node\" host-memory-bps=\"8000000000\">"
            for ((nic = 0; nic < nics; nic++)); do
                echo "    <nic name=\"lo\" rail=\"$nic\" rate-bps=\"1000000000\" up=\"1\"/>"
            done
            echo "  </node>"
            node=$((node + 1))
        done
        node=0
        for count in "$@"; do
            for ((rank = 0; rank < count; rank++)); do
                echo "  <rank node=\"$node\" nic=\"$((rank % nics))\" gpu=\"-1\"/>"
            done
            node=$((node + 1))
        done
        echo "</mpath>"
    } >"$file"
}

# write_gpu_nodes FILE NODES GPUS: nodes of GPUs with links between each other, a rank on each and a NIC beside it, the loopback device.
write_gpu_nodes() {
    local file=$1 nodes=$2 gpus=$3 node gpu peer
    {
        echo "<mpath version=\"1\" access=\"affine\">"
        for ((node = 0; node < nodes; node++)); do
            echo "  <node host=\"virtual$node\" host-memory-bps=\"8000000000\" gpu-link=\"mesh\">"
            for ((gpu = 0; gpu < gpus; gpu++)); do
                echo "    <nic name=\"lo\" rail=\"$gpu\" rate-bps=\"1000000000\" up=\"1\"/>"
            done
            for ((gpu = 0; gpu < gpus; gpu++)); do
                echo "    <gpu pcie-up-bps=\"2000000000\" pcie-down-bps=\"2000000000\" nics=\"$gpu\"/>"
            done
            for ((gpu = 0; gpu < gpus * gpus; gpu++)); do
                ((peer = gpu % gpus))
                ((peer == gpu / gpus)) || echo "    <nvlink from=\"$((gpu / gpus))\" to=\"$peer\" bps=\"3000000000\"/>"
            done
            echo "  </node>"
        done
        for ((gpu = 0; gpu < nodes * gpus; gpu++)); do
            echo "  <rank node=\"$((gpu / gpus))\" nic=\"$((gpu % gpus))\" gpu=\"$((gpu % gpus))\"/>"
        done
        echo "</mpath>"
    } >"$file"
}

# report NAME STATUS LIMIT LOG [carried]: PASS/FAIL/SKIP lines from what a job printed. `carried`: mpath must have carried calls.
report() {
    local name=$1 status=$2 limit_s=$3 log=$4 carried=${5:-} bad=0 line
    while IFS= read -r line; do
        case $line in
        "case ok "*) echo "PASS: $name/${line#case ok }" ;;
        "case skip "*) echo "SKIP: $name/${line#case skip }" ;;
        "case bad "*)
            echo "FAIL: $name/${line#case bad }"
            bad=1
            ;;
        esac
    done <"$log"
    if ((status == 124 || status == 137)); then
        echo "FAIL: $name: not finished after $limit_s s"
        bad=1
    elif ((status != 0 && bad == 0)); then
        echo "FAIL: $name: ended with status $status"
        bad=1
    elif [[ -n $carried ]] && ! grep -q -E '^calls mpath=[1-9]' "$log" && ! grep -q '^case skip' "$log"; then
        echo "FAIL: $name: mpath carried no call, so nothing was tested: $(grep '^calls ' "$log" || echo 'no counters')"
        bad=1
    fi
    if ((bad)); then
        tail -n 25 "$log" | sed 's/^/    | /'
    fi
}

# job NAME LIMIT RANKS [MPIRUN OPTIONS] -- PROGRAM [ARGUMENTS]: runs a job that mpath has to carry, and reports it.
job() {
    local name=$1 limit_s=$2 ranks=$3 options=() status log start_s=$SECONDS
    shift 3
    log=$scratch/${name//\//-}.log
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    timeout --kill-after=10 "$limit_s" mpirun "${mpirun_options[@]}" -n "$ranks" "${options[@]}" "$@" >"$log" 2>&1 </dev/null
    status=$?
    report "$name" "$status" "$limit_s" "$log" carried
    echo "TIME: $name $((SECONDS - start_s)) s"
}
