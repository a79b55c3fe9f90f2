# GoBGP with a session of flow specifications; sourced by the tests of them, behind lib/namespaces.sh.
#
#   start_gobgp NAME   starts GoBGP in a namespace, with a neighbor at 127.0.0.1, port 1179; its process is $gobgpd
#   gobgp WORD...      runs a command of it

start_gobgp() { # NAME
    gobgp_in=$1
    cat >"$work/gobgp.toml" <<GOBGP
[global.config]
  as = 65001
  router-id = "10.0.0.9"
  port = -1
[[neighbors]]
  [neighbors.config]
    neighbor-address = "127.0.0.1"
    peer-as = 65001
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [neighbors.transport.config]
    remote-port = 1179
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-flowspec"
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv6-flowspec"
GOBGP
    launch "$1" gobgpd -f "$work/gobgp.toml" -l warn >"$work/gobgpd.log" 2>&1
    gobgpd=$launched
    wait_for 10 gobgp global || fail "GoBGP does not start: $(cat "$work/gobgpd.log")"
}

gobgp() { within "$gobgp_in" gobgp "$@"; }
