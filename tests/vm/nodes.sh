# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Nodes with Soft-RoCE rails inside the virtual machine. The kernel's Soft-RoCE knows only the first network namespace, so all
# nodes live in it: vNrR is the NIC of node N on rail R, nNrR the RDMA device on it, 10.5R.0.N+1 its address, brR the switch
# of rail R. What makes ranks nodes of their own is a host name and an IPC namespace (enter_node).

# nodes_up NODES RAILS
nodes_up() {
    local nodes=$1 rails=$2 node rail peer table kind
    for kind in all default; do
        echo 1 >"/proc/sys/net/ipv4/conf/$kind/accept_local"
        echo 0 >"/proc/sys/net/ipv4/conf/$kind/rp_filter"
        echo 1 >"/proc/sys/net/ipv4/conf/$kind/arp_ignore"
        echo 1 >"/proc/sys/net/ipv6/conf/$kind/disable_ipv6"
    done
    # All addresses are local: what leaves by a node's NIC is routed before the table "local" is asked.
    {
        for ((rail = 0; rail < rails; rail++)); do
            echo "link add br$rail mtu 4200 type bridge"
            echo "link set br$rail up"
            for ((node = 0; node < nodes; node++)); do
                echo "link add v${node}r$rail mtu 4200 address 02:00:00:00:0$node:0$rail numtxqueues 1 numrxqueues 1" \
                    "type veth peer name p${node}r$rail mtu 4200 numtxqueues 1 numrxqueues 1"
                echo "link set p${node}r$rail master br$rail up"
                echo "link set v${node}r$rail up"
                echo "addr add 10.5$rail.0.$((node + 1))/24 dev v${node}r$rail"
            done
        done
        echo "rule add pref 100 lookup local"
        for ((rail = 0; rail < rails; rail++)); do
            for ((node = 0; node < nodes; node++)); do
                table=$((1000 + node * 10 + rail))
                for ((peer = 0; peer < nodes; peer++)); do
                    ((peer != node)) || continue
                    echo "neigh add 10.5$rail.0.$((peer + 1)) lladdr 02:00:00:00:0$peer:0$rail dev v${node}r$rail nud permanent"
                    echo "route add 10.5$rail.0.$((peer + 1))/32 dev v${node}r$rail src 10.5$rail.0.$((node + 1)) table $table"
                done
                echo "rule add pref 50 oif v${node}r$rail lookup $table"
            done
        done
        echo "rule del pref 0"
    } >/tmp/ip.batch
    ip -batch /tmp/ip.batch || return 1
    for ((rail = 0; rail < rails; rail++)); do
        for ((node = 0; node < nodes; node++)); do
            # One processor per NIC: with several, packets of a connection overtake each other behind a shaper, and Soft-RoCE then
            # waits for the whole time-out of a retry.
            for kind in "v${node}r$rail" "p${node}r$rail"; do
                printf '%x' $((1 << (node % $(nproc)))) >"/sys/class/net/$kind/queues/rx-0/rps_cpus"
            done
            rdma link add "n${node}r$rail" type rxe netdev "v${node}r$rail" || return 1
        done
    done
    for ((node = 0; node < nodes; node++)); do
        touch "/run/uts$node" "/run/ipc$node"
        unshare --uts="/run/uts$node" --ipc="/run/ipc$node" hostname "node$node" || return 1
    done
}

# shape RATE|off: the rate of every NIC of every node, as tc writes it. Two queues take turns, as in an RDMA NIC: in one, the
# requests to read memory would wait behind all that the node itself was asked for, and each direction for the other. What a
# responder sends of a connection stays in order: read responses and acknowledgements (opcodes 0x0d to 0x12 behind the UDP header).
shape() {
    local nic opcode
    for nic in /sys/class/net/v[0-9]r[0-9]; do
        nic=${nic##*/}
        echo "qdisc add dev $nic root handle 1: tbf rate $1 burst 32k limit 8m"
        echo "qdisc add dev $nic parent 1:1 handle 2: drr"
        echo "class add dev $nic parent 2: classid 2:1 drr quantum 4300"
        echo "class add dev $nic parent 2: classid 2:2 drr quantum 4300"
        echo "qdisc add dev $nic parent 2:1 pfifo limit 4000"
        echo "qdisc add dev $nic parent 2:2 pfifo limit 4000"
        for opcode in "0x0d 0xff" "0x0e 0xfe" "0x10 0xfe" "0x12 0xff"; do
            echo "filter add dev $nic parent 2: protocol ip prio 1 u32 match ip protocol 17 0xff match u8 $opcode at 28 flowid 2:2"
        done
        echo "filter add dev $nic parent 2: protocol all prio 2 u32 match u32 0 0 flowid 2:1"
        tc qdisc del dev "$nic" root 2>/dev/null
    done >/tmp/tc.batch
    [[ $1 == off ]] || tc -batch /tmp/tc.batch
}

# sent_bytes NODE RAILS: what each rail of the node has sent so far.
sent_bytes() {
    local rail
    for ((rail = 0; rail < $2; rail++)); do
        cat "/sys/class/net/v$1r$rail/statistics/tx_bytes"
    done
}

# devices NODE RAILS: n0r0:1,n0r1:1... (1: the port)
devices() {
    local rail list=
    for ((rail = 0; rail < $2; rail++)); do
        list+=,n$1r$rail:1
    done
    echo "${list#,}"
}
