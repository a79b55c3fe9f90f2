#!/usr/bin/env bash
# The C library as a program uses it: installed, found by pkg-config, with its soname and the versions of its symbols; its
# tests as they are, under AddressSanitizer and UndefinedBehaviorSanitizer, and under valgrind, against the shared and the
# static library; so the routes of the elements for Click. Its example forwards pings between two namespaces, another is a node
# of a DPDK graph. Its Debian packages, installed, compile and run the first program of the guide, and leave nothing behind.
#
#   west: TUN west 10.0.0.1 ── forward ── TUN east 10.1.0.1 :east
. "$(dirname "$0")/lib/namespaces.sh"

source=$here/crates/capi
archive=$(find "$(dirname "$(readlink -f "$bench")")/deps" -name 'libfingerpost_capi-*.a' -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2-)
[ -n "$archive" ] || fail "no C library beside $bench: cargo test --no-run -p fingerpost-capi"
bash "$source/install.sh" "$archive" "$work/usr"
refuse 1 "no archive $work/none" bash "$source/install.sh" "$work/none" "$work/usr"
refuse 2 "usage: " bash "$source/install.sh"
export PKG_CONFIG_PATH=$work/usr/lib/pkgconfig LD_LIBRARY_PATH=$work/usr/lib
library=$work/usr/lib/libfingerpost.so
readelf -d "$library" | has_line "Library soname: \[libfingerpost.so.0\]" || fail "another soname"
nm -D --defined-only "$library" | awk '$2 == "T" { sub("@@FINGERPOST_0", "", $3); print $3 }' | sort >"$work/symbols"
grep -v '^typedef' "$source/libfingerpost.abi" | grep -o 'fp_[a-z0-9_]*(' | tr -d '(' | sort >"$work/promised"
diff "$work/promised" "$work/symbols" || fail "other symbols than those of libfingerpost.abi"

read -ra flags <<<"$(pkg-config --cflags --libs fingerpost)"
compile() { # OUTPUT FILE OPTION...
    cc -std=c11 -D_DEFAULT_SOURCE -O1 -g -Wall -Wextra -Wpedantic -Werror "$2" -o "$work/$1" "${@:3}"
}
g++ -fsyntax-only -Wall -Wextra -Werror -x c++ "$work/usr/include/fingerpost.h"
full=${FINGERPOST_DATA:-$here/../shared/data}/ipv4-20260730-routeviews-origin.dat.gz
for name in table errors pointers threads files; do
    routes=$here/data/nested.txt
    [ "$name" != files ] || [ ! -f "$full" ] || routes=$full
    compile "$name" "$source/tests/c/$name.c" "${flags[@]}"
    "$work/$name" "$work" "$routes" || fail "$name"
    compile "$name-checked" "$source/tests/c/$name.c" "${flags[@]}" -fsanitize=address,undefined -fno-sanitize-recover=all
    "$work/$name-checked" "$work" "$here/data/nested.txt" || fail "$name with sanitizers"
    echo "   $name: passes, and with sanitizers"
done
# The first program of the guide.
sed -n '/^```c$/,/^```$/p' "$here/docs/guide/c-library.md" | sed '1d;$d' >"$work/first.c"
compile first "$work/first.c" "${flags[@]}"
[ "$("$work/first")" = "label 7" ] || fail "the guide's program prints another label"
# The routes of the elements for Click, which need no Click.
g++ -std=c++11 -O1 -g -Wall -Wextra -Werror "$source"/click/{test/,}routes.cc -o "$work/routes" "${flags[@]}" -pthread -fsanitize=address,undefined -fno-sanitize-recover=all
"$work/routes" || fail "the routes of the elements for Click"
# Threads take a minute there.
for name in table errors pointers; do
    valgrind -q --error-exitcode=9 --leak-check=full "$work/$name" "$work" 2>"$work/valgrind.log" || fail "$name under valgrind"
done
echo "   table, errors, pointers: pass under valgrind"
read -ra flags <<<"$(pkg-config --static --cflags --libs fingerpost)"
compile static "$source/tests/c/table.c" "${flags[@]/-lfingerpost/-l:libfingerpost.a}"
LD_LIBRARY_PATH='' "$work/static" || fail "table with the static library"

namespace router
namespace west
namespace east
compile forward "$source/examples/forward.c" -I"$work/usr/include" -L"$work/usr/lib" -lfingerpost
printf '10.0.0.0/24 west\n10.1.0.0/24 east\n' >"$work/routes"
launch router env LD_LIBRARY_PATH="$LD_LIBRARY_PATH" "$work/forward" "$work/routes" >"$work/forward.out" 2>"$work/forward.log"
forward=$launched
wait_for 10 grep -q "^forwarding by 2 routes$" "$work/forward.out" || fail "the example does not start"
number=0
for name in west east; do
    within router ip link set "$name" netns "$prefix$name"
    within "$name" ip addr add "10.$number.0.1/24" dev "$name"
    within "$name" ip link set "$name" up
    within "$name" ip route add 10.0.0.0/8 dev "$name"
    number=$((number + 1))
done
within west ping -c 5 -i 0.05 -W 2 10.1.0.1 >"$work/pings" || fail "pings are lost: $(cat "$work/pings")"
# 64 at the start, one hop.
[ "$(grep -c 'ttl=63' "$work/pings")" -eq 5 ] || fail "another TTL: $(cat "$work/pings")"
kill "$forward"
refuse 1 "/nowhere" "$work/forward" /nowhere
echo "the example forwards: $(tail -2 "$work/pings" | head -1)"

read -ra flags <<<"$(pkg-config --cflags --libs fingerpost libdpdk)"
cc -O1 -Wall -Wextra -Werror "$source/examples/dpdk_node.c" -o "$work/dpdk_node" "${flags[@]}"
RUNTIME_DIRECTORY=$work "$work/dpdk_node" --no-huge --no-pci -m 128 --no-telemetry --no-shconf >"$work/dpdk" 2>"$work/dpdk.log" || fail "the DPDK graph"
# Its packets are the same in each run.
has_line "^$(sed -n '/^```text$/,/^```$/p' "$here/docs/guide/dpdk.md" | sed '1d;$d')$" <"$work/dpdk" || fail "other packets in the DPDK graph: $(cat "$work/dpdk")"

"$(dirname "$bench")/xtask" deb-library --archive "$archive" -o "$work/debian" >"$work/packages" 2>"$work/deb.log" || fail "no packages"
cat >"$work/installed.sh" <<'INSTALLED'
set -Eeuo pipefail
work=$1
# The changes of this machine's files are in memory, and go with this process.
mount -t tmpfs none /mnt
for folder in usr var etc; do
    mkdir -p "/mnt/$folder/upper" "/mnt/$folder/work"
    mount -t overlay none -o "lowerdir=/$folder,upperdir=/mnt/$folder/upper,workdir=/mnt/$folder/work" "/$folder"
done
unset PKG_CONFIG_PATH LD_LIBRARY_PATH
dpkg --install "$work"/debian/libfingerpost0_*.deb "$work"/debian/libfingerpost-dev_*.deb
ldconfig
cc "$work/first.c" -o "$work/packaged" $(pkg-config --cflags --libs fingerpost)
[ "$("$work/packaged")" = "label 7" ]
files() { find /mnt/usr/upper -name '*fingerpost*' ! -type d; }
[ -n "$(files)" ]
dpkg --purge libfingerpost-dev libfingerpost0
[ -z "$(files)" ]
INSTALLED
unshare --mount bash "$work/installed.sh" "$work" >"$work/installed.log" 2>&1 || fail "the packages do not work"
echo "the packages are installed, used, and purged: $(xargs -n1 basename <"$work/packages" | xargs)"
