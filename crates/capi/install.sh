#!/usr/bin/env bash
# Installs libfingerpost: the shared library with its soname and the versions of its symbols, the static library, the
# header, and the file of pkg-config.
#
#   cargo build --release -p fingerpost-capi
#   bash crates/capi/install.sh target/release/libfingerpost_capi.a PREFIX [LIBDIR]
#
#   libfingerpost_capi.a ── cc -shared, libfingerpost.map ──► libfingerpost.so.0.1.0 ◄── .so.0 ◄── .so
#
# LIBDIR is PREFIX/lib by default. With DESTDIR all files lie in that folder, as in the root of a package.
# rustc cannot give a library symbol versions (docs/decisions/0070), hence the C compiler: CC, default cc; STRIP, default strip.
set -Eeuo pipefail
[ $# = 2 ] || [ $# = 3 ] || {
    echo "usage: bash crates/capi/install.sh ARCHIVE PREFIX [LIBDIR]" >&2
    exit 2
}
archive=$1 prefix=$2
library=${3:-$prefix/lib}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -f "$archive" ] || {
    echo "install.sh: no archive $archive: cargo build --release -p fingerpost-capi" >&2
    exit 1
}
version=$(sed -n '/^\[workspace.package\]/,/^version/ s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
root=${DESTDIR:-}
install -d "$root$library/pkgconfig" "$root$prefix/include"
# Strips debug information, and keeps what the exported functions reach.
"${CC:-cc}" -shared -o "$root$library/libfingerpost.so.$version" -Wl,-soname,libfingerpost.so.0 \
    -Wl,--version-script="$here/libfingerpost.map" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now -Wl,--strip-debug -lpthread -lm -ldl -lgcc_s -lc
chmod 644 "$root$library/libfingerpost.so.$version"
ln -sf "libfingerpost.so.$version" "$root$library/libfingerpost.so.0"
ln -sf libfingerpost.so.0 "$root$library/libfingerpost.so"
install -m 644 "$archive" "$root$library/libfingerpost.a"
"${STRIP:-strip}" --strip-debug "$root$library/libfingerpost.a"
install -m 644 "$here/include/fingerpost.h" "$root$prefix/include/fingerpost.h"
sed "s#@PREFIX@#$prefix#; s#@LIBDIR@#$library#; s#@VERSION@#$version#" "$here/fingerpost.pc.in" \
    >"$root$library/pkgconfig/fingerpost.pc"
