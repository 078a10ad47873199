#!/usr/bin/env bash
# Two hosts on one machine: network namespaces with a cable between them, MPI over TCP.
#
# usage: two_hosts.sh NAME up | down | cut | run COMMAND...
#
# NAME: of this pair, 8 letters at most. cut: nothing passes the cable any more. run: on 2 ranks of each host. Needs root
# and a kernel that grants namespaces; where there are none "up" says so and ends with status 3.
set -euo pipefail
a=$1-a b=$1-b
up() {
  if ! ip netns add "$a" 2>/dev/null; then
    echo "two_hosts.sh: expected the right to make network namespaces, found none" >&2
    exit 3
  fi
  ip netns add "$b"
  ip link add "$a" netns "$a" type veth peer name "$b" netns "$b"
  local host
  for host in "$a" "$b"; do
    ip -n "$host" link set lo up
    ip -n "$host" link set "$host" up
    # How soon mpirun and its daemons give up a connection that is cut: by default a quarter of an hour.
    ip netns exec "$host" sh -c 'echo 3 >/proc/sys/net/ipv4/tcp_retries2'
  done
  ip -n "$a" addr add 10.213.0.1/24 dev "$a"
  ip -n "$b" addr add 10.213.0.2/24 dev "$b"
}
run() {
  # mpirun starts its daemon on the second host with "AGENT HOST COMMAND...".
  agent=$(mktemp)
  trap 'rm -f "$agent"' EXIT
  printf '#!/bin/sh\nshift\nexec ip netns exec %s unshare --uts sh -c "hostname %s; $*"\n' "$b" "$b" >"$agent"
  chmod +x "$agent"
  ip netns exec "$a" unshare --uts sh -c "hostname $a; exec \"\$@\"" sh \
    mpirun --host 10.213.0.1:2,10.213.0.2:2 --bind-to none --mca mpi_yield_when_idle 1 \
    --mca plm_rsh_agent "$agent" --mca btl tcp,self --mca btl_tcp_if_include 10.213.0.0/24 \
    --mca oob_tcp_if_include 10.213.0.0/24 "$@"
}
case "${2:-}" in
  up) up ;;
  down) ip netns del "$a"; ip netns del "$b" ;;
  cut) ip -n "$a" link set "$a" down ;;
  run) run "${@:3}" ;;
  *) sed -n 2,7p "$0" >&2; exit 2 ;;
esac
