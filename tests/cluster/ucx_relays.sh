# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154,SC2317 # what ucx_test sets, and calls
# Sourced by ucx_test: its cases of relays between nodes.

# Ranks that drive one rail each: a pair uses all of them through its neighbours, which wait in MPI meanwhile.
test_relays() {
    local rail access=relays ranks=8 map=slot
    cluster_up && exchange UCX_MPATH_STATS=y -- 1048576 8 2 two || return
    for rail in 0 1 2 3; do
        share_between "$rail" 8 60 || return
    done
    awk '/^mpath relay: / && $(NF - 1) > 1000000 { ++ok } END { exit ok < 6 }' "$scratch/out" ||
        fail "not all neighbours relayed: $(grep 'mpath relay' "$scratch/out" | tr '\n' '|')"
}

# The same where the rail of each process could take all puts by itself.
test_relays_remote_access() {
    local rail access=relays ranks=8 map=slot
    cluster_up && exchange UCX_RNDV_SCHEME=put_zcopy UCX_MPATH_RMA_TLS=tcp UCX_TCP_PUT_ENABLE=y -- 1048576 8 3 two || return
    for rail in 0 1 2 3; do
        share_between "$rail" 8 60 || return
    done
}

# Two processes with a rail each, and relays beside them: killed ones cost their rails only, and new ones bring them back.
start_relay() { # NODE RAIL [MESSAGES]: until it is killed, or so many large messages
    "$here/in_root" "$1" "$root" env LD_PRELOAD="$loader" UCX_TLS=mpath UCX_MPATH_RAILS="$rails" UCX_MPATH_ACCESS=affine \
        UCX_MPATH_RELAY_GROUP=relays OMPI_COMM_WORLD_LOCAL_RANK="$2" "${relay_program#"$root"}" "${@:3}" >"$scratch/$1.$2" 2>&1 &
    disown # it ends by a signal, which is nothing to report
}

signal_relay() { # NODE RAIL SIGNAL
    local pid
    for pid in $("$cluster" exec "$1" pidof ucx_relay); do
        if "$cluster" exec "$1" grep -q -z "^OMPI_COMM_WORLD_LOCAL_RANK=$2\$" "/proc/$pid/environ"; then
            "$cluster" exec "$1" kill -"$3" "$pid"
        fi
    done
}

stop_relay() { signal_relay "$1" "$2" KILL; }

relays_of() { # NODE: the rails that its relays drive
    case $1:${own_rail:-0} in
    node0:1) echo 0 2 3 ;;
    *) echo 1 2 3 ;;
    esac
}

relays_ready() {
    local node rail tries=3000
    for node in node0 node1; do
        for rail in $(relays_of "$node"); do
            until [ "$(cat "$scratch/$node.$rail" 2>/dev/null)" = ready ]; do
                ((tries-- > 0)) || fail "no relay on $node for rail $rail: $(last_lines "$scratch/$node.$rail")" || return
                sleep 0.1
            done
        done
    done
}

# relays_change MESSAGES COMMAND: a pair and its relays, of which that of node0 for rail 1 ends after so many; meanwhile COMMAND.
relays_change() {
    local rail node rc=0 pid LIMIT_S=1400
    program relay && cluster_up || return
    for node in node0 node1; do
        for rail in $(relays_of "$node"); do
            start_relay "$node" "$rail" "$([ "$node$rail" != node01 ] || echo "$1")"
        done
    done
    relays_ready || return
    rm -f "$scratch/not_seen"
    ("$2"
        end_pair) &
    pid=$!
    pair "UCX_MPATH_ACCESS=affine UCX_MPATH_RELAY_GROUP=relays OMPI_COMM_WORLD_LOCAL_RANK=0" tag 1048576 8 1300 two || rc=1
    wait "$pid"
    for node in node0 node1; do
        for rail in $(relays_of "$node"); do
            stop_relay "$node" "$rail"
        done
    done
    ((rc == 0)) || return
    [ ! -e "$scratch/not_seen" ] || fail "$(cat "$scratch/not_seen")"
}

kill_and_start_relays() {
    until_sent 3 60 1 2 3 && stop_relay node0 1 && sleep 2 && stop_relay node1 2 && until_sent 0 2 1 2 &&
        start_relay node0 1 && start_relay node1 2 && until_sent 3 60 1 2
}
test_relay_killed() { relays_change 0 kill_and_start_relays; }

# One that is killed while it writes a message leaves it unfinished in the queue of its neighbour.
start_after_end() {
    local tries=3000
    while "$cluster" exec node0 pidof ucx_relay | awk '{ exit NF < 3 }'; do
        ((tries-- > 0)) || { echo "the relay did not end" >"$scratch/not_seen"; return 1; }
        sleep 0.1
    done
    start_relay node0 1 && until_sent 3 60 1 2 3
}
test_relay_killed_writing() { relays_change 500 start_after_end; }

# Processes that have no rail in common: what they tell each other about relays goes through relays, which may lose it.
replace_unheard() {
    local rail
    until_sent 3 60 0 1 2 3 && stop_relay node1 1 && until_sent 0 2 1 || return
    for rail in $(relays_of node0); do
        signal_relay node0 "$rail" USR1
    done
    start_relay node1 1 && sleep 15 && until_sent 3 60 1
}
test_relay_replaced() { own_rail=1 relays_change 0 replace_unheard; }
