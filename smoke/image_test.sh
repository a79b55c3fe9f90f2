#!/usr/bin/env bash
# The image of a full table: saved at the end, on request and after changes, forwarded by
# at the next start, refused when it is damaged, and whole on a full disk:
#
#   source s0 ── r0 router r1 ── a0 a: the prefixes on odd lines
#                          r2 ── b0 b: the others
# runs alone: a start has to forward within 100 ms
. "$(dirname "$0")/lib/router_topology.sh"

prefixes 1
awk '{ print "route add " $1 " via 10.0." (NR % 2 ? 1 : 2) ".2" }' "$work/prefixes" >"$work/batch"
within router ip -batch "$work/batch"
configure "[image]
path = \"$work/table.image\""
said() { grep -q "$1" "$work/fingerpost.log" || fail "the router does not say: $1"; }

echo "the first start has no image; it is saved at the end"
start_router
said "no image file yet"
[ "$(have)" -ge "$total" ] || fail "$(have) routes of $total"
stop_router
said "image saved: $work/table.image"
sed -n 's/^fingerpost: /   /p' "$work/fingerpost.log" | grep image
"$program" table load "$work/table.image" | sed 's/^/   /'
"$program" table load -j "$work/table.image" | json "assert d['tables'][0]['routes'] >= $total, d; assert d['beside'] == ['ways', 'hops'], d"
address=$(head -1 "$work/prefixes" | cut -d/ -f1)
"$program" route get "$address" --image "$work/table.image" | has_line "$address via 10.0.1.2 dev r1" || fail "route get --image"

echo "the next goes by the image at once, and by the kernel's routes when they are known"
# So that only the router forwards, and the moment is seen.
stop_kernel
"$python" "$here/smoke/image_watch.py" "$prefix" "$work/prefixes" "$work/start" "$work/end" >"$work/watch.log" 2>&1 &
watch=$!
wait_for 60 test -e "$work/end.ready" || fail "the watch does not begin: $(cat "$work/watch.log")"
now >"$work/start"
start_router
sleep 1
touch "$work/end"
wait "$watch" || fail "$(cat "$work/watch.log")"
cat "$work/watch.log"
sed -n 's/^fingerpost: /   /p' "$work/fingerpost.log" | grep -e image -e following
# Tables, links and neighbors; what is left until packets are taken is the kernel's, which
# makes the sockets and their rings.
ready=$(sed -n 's/.*tables of the image ready after \([0-9]*\).*/\1/p' "$work/fingerpost.log")
[ "$ready" -lt 100 ] || fail "the tables of the image are ready after $ready ms"
resume_kernel
agrees
kill -KILL "$router"
wait "$router" 2>/dev/null || true

echo "routes that changed while no router ran are corrected at the start"
head -1000 "$work/prefixes" | sed 's/^/route del /' >"$work/batch"
within router ip -batch "$work/batch"
within router ip route add 5.5.5.0/24 via 10.0.2.2
sed -n '1001,3000 s/$/ via 10.0.1.2/; s/^/route replace /; 1001,3000 p' "$work/prefixes" >"$work/batch"
within router ip -batch "$work/batch"
configure "[image]
path = \"$work/table.image\"
interval = \"1s\""
start_router
said "tables of the image ready"
same
agrees

echo "saved on request, and after changes"
digest() { "$program" table load -j "$work/table.image" | json 'print(d["digest"])'; }
"$program" save --socket "$work/sock" | has_line "^$work/table.image: .* bytes in .* ms$" || fail "save"
before=$(digest)
within router ip route add 5.5.6.0/24 via 10.0.1.2
changed() { [ "$(digest)" != "$before" ]; }
wait_for 10 changed || fail "the image is not saved after a change"
kill -KILL "$router"
wait "$router" 2>/dev/null || true

echo "a damaged image is reported, and the start goes on without it"
printf '\xff' | dd of="$work/table.image" bs=1 seek=100000 conv=notrunc status=none
refuse 1 "the image is damaged: checksum" "$program" table load "$work/table.image"
start_router
said "started without the image: $work/table.image: the image is damaged"
agrees
stop_router
digest >/dev/null

echo "a full disk leaves the old one, and the router"
mkdir "$work/small"
full() { within router bash -c 'mount -t tmpfs -o size=64k none "$0" && echo old >"$0/table.image" && exec "$@"' "$work/small" "$@"; }
refuse 1 "No space left" full "$program" table save "$work/prefixes" -o "$work/small/table.image"
full bash -c "'$program' table save '$work/prefixes' -o '$work/small/table.image' 2>/dev/null; ls -A '$work/small'; cat '$work/small/table.image'" >"$work/left"
[ "$(tr '\n' ' ' <"$work/left")" = "table.image old " ] || fail "left: $(cat "$work/left")"
configure "[image]
path = \"$work/small/table.image\""
launch router bash -c 'mount -t tmpfs -o size=64k none "$0" && exec "$@"' "$work/small" \
    "$program" run -c "$work/router.toml" -j >"$work/report.json" 2>"$work/fingerpost.log"
router=$launched
wait_for 20 grep -q 'following the kernel after' "$work/fingerpost.log" || fail "the router does not start"
refuse 1 "not saved: cannot write $work/small/.table.image." "$program" save --socket "$work/sock"
[ -z "$(ls -A "/proc/$router/root$work/small")" ] || fail "something is left on the full disk"
agrees
stop_router
said "no image saved: .* No space left"
