# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2034,SC2054 # VM_... and the like: of cases; commas in values
# Jobs over the nodes of the virtual machine, and what is judged of them.

pass() { echo "PASS: vm/$*"; }
fail() {
    echo "FAIL: vm/$*"
    failed=1
}
skip() { echo "SKIP: vm/$*"; }
# Seconds of the machine's own clock.
stamp() { echo "vm: $(awk '{ print $1 }' /proc/uptime) s: $*"; }
show() { sed 's/^/    | /' "$1" | tail -n "${2:-15}"; }

aside=(--mca pml ob1 --mca btl vader,self --mca btl_vader_single_copy_mechanism none)
over_ucx=(--mca pml ucx --mca btl self --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any)
with_mpath=(--mca coll mpath --mca coll_mpath_gate always)

# job LIMIT_S RANKS_PER_NODE RAILS [MPIRUN OPTIONS] -- PROGRAM...: a job over $job_nodes nodes, into /tmp/job.log. Unless told
# otherwise MPI's own messages stay off the rails, which are then mpath's alone.
job_nodes=
job() {
    local limit_s=$1 options=()
    export VM_RANKS_PER_NODE=$2 VM_RAILS=$3
    shift 3
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    local own=()
    [[ " ${options[*]} " == *" pml ucx "* ]] || own=(env -u UCX_UD_VERBS_ETH_DGID_CHECK)
    timeout --kill-after=5 "$limit_s" "${own[@]}" mpirun --oversubscribe --bind-to none \
        -n $((${job_nodes:-$nodes} * VM_RANKS_PER_NODE)) "${options[@]}" "$here/rank_env" "$@" >/tmp/job.log 2>&1 </dev/null
}

# job_over_transport LIMIT_S RANKS_PER_NODE RAILS [MPIRUN OPTIONS] -- PROGRAM...: MPI's own messages take the UCX transport mpath.
job_over_transport() {
    VM_TRANSPORT=mpath job "$1" "$2" "$3" "${over_ucx[@]}" -x LD_PRELOAD="$transport/libmpath_ucx.so" -x UCX_MPATH_STATS=y \
        -x UCX_MPATH_RAIL_RATES="$rate_bps" "${@:4}"
}

# bench NAME RANKS_PER_NODE RAILS ITERATIONS MATRIX [MPIRUN OPTIONS]: sets median_ms; bytes and calls are judged.
bench() {
    local name=$1 ranks=$2 used=$3 iterations=$4 matrix=$5 line
    shift 5
    job 90 "$ranks" "$used" "$@" -- "$build_dir/src/tools/mpath_bench" --matrix "$matrix" --check --warmup 1 \
        --iters "$iterations" --json /tmp/bench.json
    local status=$?
    line=$(python3 - <<'PY' 2>/dev/null
import json
case = json.load(open("/tmp/bench.json"))
case = case.get("cases", [case])[0]
one = case["contestants"][0]
print(f'{one["median_s"] * 1000:.1f} {one["wrong_bytes"]} {int(one["mpath_calls"])} {case["iterations"]}')
PY
    )
    rm -f /tmp/bench.json
    read -r median_ms wrong calls iterations <<<"${line:-none}"
    if ((status != 0)) || [[ $median_ms == none || $wrong != 0 ]]; then
        fail "$name: status $status, wrong bytes ${wrong:-unknown}"
        show /tmp/job.log 25
        return 1
    fi
    if ((calls != iterations)); then
        fail "$name: mpath carried $calls of $iterations calls"
        show /tmp/job.log 25
        return 1
    fi
}

# exchange NAME RAILS one|two SECONDS [MPIRUN OPTIONS]: messages of 1 MiB between the first ranks of node 0 and node 1 over the
# transport, $exchange_ranks (1) per node; sets rate; every word is judged.
exchange() {
    local name=$1 used=$2 ways=$3 seconds=$4
    shift 4
    job_nodes=2 job_over_transport 150 "${exchange_ranks:-1}" "$used" "$@" -- "$VM_out/ucx_exchange" 1048576 4 "$seconds" "$ways"
    local status=$?
    rate=$(sed -n 's/^exchange bytes_per_second=\([0-9]*\) .* wrong=0$/\1/p' /tmp/job.log)
    if ((status != 0)) || [[ -z $rate ]]; then
        fail "$name: status $status over $used rails"
        show /tmp/job.log 25
        return 1
    fi
}

# remote_bytes: what the ranks of the last job moved by remote access.
remote_bytes() { awk '/ by remote access/ { for (i = 2; i <= NF; i++) if ($i == "bytes") sum += $(i - 1) } END { printf "%.0f", sum }' /tmp/job.log; }

# even NAME NODE USED BEFORE...: what the rails of a node sent since BEFORE, which has to be alike; others nearly nothing.
even() {
    local name=$1 node=$2 used=$3 after rail sum=0 bytes sent=()
    shift 3
    mapfile -t after < <(sent_bytes "$node" "$rails")
    for ((rail = 0; rail < rails; rail++)); do
        bytes=$((after[rail] - $1))
        shift
        sent+=("$bytes")
        ((rail >= used)) || sum=$((sum + bytes))
    done
    sent_text=$(printf ' %d' "${sent[@]}")
    for ((rail = 0; rail < rails; rail++)); do
        if ((rail < used && (sent[rail] * used < sum * 3 / 4 || sent[rail] * used > sum * 5 / 4))) ||
            ((rail >= used && sent[rail] > sum / 20)); then
            fail "$name: with $used rails node $node sent$sent_text bytes over its rails"
            return 1
        fi
    done
}

# report_cases NAME STATUS COUNTS: of a program of tests/mpi. COUNTS: what has to stand in its line of counts.
report_cases() {
    if (($2 != 0)) || grep -q '^case bad' /tmp/job.log || ! grep -q '^case ok' /tmp/job.log; then
        fail "$1: status $2"
        show /tmp/job.log 25
    elif ! grep -q -E "^calls $3" /tmp/job.log; then
        fail "$1: mpath carried no call: $(grep '^calls' /tmp/job.log)"
        show /tmp/job.log 10
    else
        pass "$1: $(grep -c '^case ok' /tmp/job.log) cases"
    fi
}

# note_figure WHAT RAILS BYTES_PER_SECOND: a line for the table.
note_figure() { echo "$1 $2 $3" >>/tmp/figures; }

# figures: the table of what was noted. Goals: 1.8 and 3.4 times one rail over 2 and 4. Printed, never judged.
figures() {
    [[ -s /tmp/figures ]] || return 0
    python3 - "$rate_bps" <<'PY'
import statistics
import sys

rail_bps = int(sys.argv[1])
seen = {}
for line in open("/tmp/figures"):
    what, rails, rate = line.split()
    seen.setdefault(what, {}).setdefault(int(rails), []).append(float(rate))
print(f"rails of {rail_bps * 8 / 1e6:.0f} Mbit/s; bytes per second: median (min to max) of launches in turn")
for what, rates in seen.items():
    one = statistics.median(rates.get(1, [0]))
    for rails, values in sorted(rates.items()):
        median = statistics.median(values)
        line = f"  {what.replace('_', ' '):26s} {rails} {'rails' if rails > 1 else 'rail '} {median:10.0f}"
        line += f" ({min(values):.0f} to {max(values):.0f}, {len(values)})  {median / rails / rail_bps * 100:3.0f} % of the rate"
        goal = {2: 1.8, 4: 3.4}.get(rails)
        if goal and one:
            line += f"  {median / one:.2f}x one rail, goal {goal}: {'reached' if median / one >= goal else 'MISSED'}"
        print(line)
PY
}
