# Sourced where a test needs the Debian package: packs it, and a later version of it.

# Packs a program into a folder.
pack() { # PROGRAM FOLDER
    "$(dirname "$bench")/xtask" deb --program "$1" -o "$2" >/dev/null 2>"$2.log" || fail "no package: $(cat "$2.log")"
}

# Packs a later version of a package, with another example of /etc/fingerpost/run.toml, and without the time to compress it.
pack_newer() { # PACKAGE NEWER FOLDER
    dpkg-deb --raw-extract "$1" "$3"
    sed -i 's/^Version: .*/&+newer/' "$3/DEBIAN/control"
    echo '# The example of a later version.' >>"$3/etc/fingerpost/run.toml"
    dpkg-deb --root-owner-group -Znone --build "$3" "$2" >"$3.log"
}
