#!/usr/bin/env bash
# Packets of up to 9000 bytes through a gate and a grantor, whose tunnel has an MTU of 9100:
#
#   client c0 ── f0 gate g0 ── t0 grantor s0 ── v0 server      10.1.0.x │ 10.2.0.x │ 192.0.2.7
#
# TCP connections with segments of 9000 bytes, and echo requests of many lengths, pass in both directions, decided
# and tunneled as short ones are. With an MTU that their frames have no room for, the gate and the grantor refuse to
# start.
. "$(dirname "$0")/lib/protected_topology.sh"

for end in "client c0" "gate f0" "grantor s0" "server v0"; do
    read -r name interface <<<"$end"
    within "$name" ip link set "$interface" mtu 9000
done
within gate ip link set g0 mtu 9100
within grantor ip link set t0 mtu 9100
umask 077
secret_key grantor.key 2b
own_checksums client c0
own_checksums server v0
launch server "$python" "$here/smoke/lib/echo.py"
wait_for 10 within server "$python" -c 'import socket; socket.create_connection(("192.0.2.7", 80), 1)' ||
    fail "the server does not start"
{
    gate_config
    printf '[tunnel]\nudp_port = 6080\n'
} >"$work/gate.toml"
{
    grantor_config '"t0", "s0"' 10.9.1.100 10.2.0.1 7 grantor.key | sed 's/^gates = .*/&\nudp_port = 6080/'
    printf '[control]\nsocket = "%s"\n' "$work/sock"
} >"$work/grantor.toml"
grant_all

start_grantor
start_gate
for service in "gate show interfaces --socket $work/gate.sock" "grantor show interfaces --socket $work/sock"; do
    read -ra arguments <<<"$service"
    within "${arguments[0]}" "$program" "${arguments[@]:1}" >"$work/interfaces"
    [ "$(grep -c "AF_XDP copy" "$work/interfaces")" = 2 ] || fail "not the driver's mode: $(cat "$work/interfaces")"
done
within client "$python" - <<'CLIENT' || fail "the connection"
import random, socket
sent = random.Random(7).randbytes(1 << 20)
with socket.create_connection(("192.0.2.7", 80), 8) as connection:
    connection.settimeout(20)
    got = bytearray()
    for at in range(0, len(sent), 1 << 16):
        connection.sendall(sent[at:at + (1 << 16)])
        while len(got) < at + (1 << 16): got += connection.recv(1 << 16)
    segment = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
assert got == sent and segment >= 8900, segment
print(f"   1 MiB there and back in segments of {segment} bytes")
CLIENT
for length in 84 1500 3800 3900 5000 8999 9000; do
    within client ping -c 3 -i 0.05 -W 2 -M "do" -s $((length - 28)) 192.0.2.7 >"$work/ping" ||
        fail "$length bytes: $(cat "$work/ping")"
    grep -q "3 received" "$work/ping" || fail "$length bytes: $(cat "$work/ping")"
done
kill -INT "$gate" "$grantor"
wait "$gate" || fail "the gate ended with $?: $(cat "$work/gate.log")"
wait "$grantor" || fail "the grantor ended with $?: $(cat "$work/grantor.log")"
balanced <"$work/gate.json"

within gate ip link set f0 mtu 16107
within grantor ip link set t0 mtu 16107
refuse 1 "f0: MTU 16107 is too large" within gate "$program" gate check -c "$work/gate.toml"
limit="is too large: a frame of 16,384 bytes allows 16106"
refuse 1 "f0: MTU 16107 $limit" within gate "$program" gate -c "$work/gate.toml"
refuse 1 "t0: MTU 16107 $limit" within grantor "$program" grantor -c "$work/grantor.toml"
