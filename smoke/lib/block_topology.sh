# A client that sends from many addresses, and a server that `fingerpost block` protects; sourced by its tests.
#
#   client c0 ── s0 server      10.1.0.2 ── 10.1.0.1, fd01::2 ── fd01::1; the client has the addresses ${sources[@]}, too,
#                               which a test may set before
#
#   addresses                  gives both ends their addresses, again after the link is made again
#   answered SOURCE [TARGET]   whether three pings from a source are answered
#   put FILE LINE...           replaces $work/FILE as a whole
#   attached                   whether an XDP program is on s0

. "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"

namespace client
namespace server
join client c0 02:00:00:00:01:02 server s0 02:00:00:00:01:01
[ -n "${sources[*]:-}" ] ||
    sources=(203.0.113.5 203.0.113.200 198.51.100.7 192.0.2.77 2001:db8:9::5 2001:db8:9:1::5)
addresses() {
    within client ip addr add 10.1.0.2/24 dev c0
    within server ip addr add 10.1.0.1/24 dev s0
    within client ip addr add fd01::2/64 dev c0
    within server ip addr add fd01::1/64 dev s0
    local source
    for source in "${sources[@]}"; do
        case $source in
        *:*) within client ip addr add "$source/128" dev c0 && within server ip route add "$source" via fd01::2 ;;
        *) within client ip addr add "$source/32" dev c0 && within server ip route add "$source" via 10.1.0.2 ;;
        esac
    done
    # Neighbors do not ask from a listed source.
    within client ip neigh replace 10.1.0.1 lladdr 02:00:00:00:01:01 dev c0
    within client ip -6 neigh replace fd01::1 lladdr 02:00:00:00:01:01 dev c0
    within server ip neigh replace 10.1.0.2 lladdr 02:00:00:00:01:02 dev s0
    within server ip -6 neigh replace fd01::2 lladdr 02:00:00:00:01:02 dev s0
}
addresses

answered() { # SOURCE [TARGET]
    local target=${2:-10.1.0.1}
    case $1 in *:*) target=${2:-fd01::1} ;; esac
    within client ping -q -c 3 -i 0.02 -W 1 -I "$1" "$target" | has_line " 0% packet loss"
}
put() { printf '%s\n' "${@:2}" >"$work/new" && mv "$work/new" "$work/$1"; } # FILE LINE...
attached() { within server ip link show s0 | has_line 'xdp'; }
