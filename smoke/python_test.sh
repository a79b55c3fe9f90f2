#!/usr/bin/env bash
# The Python module as a wheel: the README's example in an empty environment; beside pytricia, py-radix, pyasn, NumPy and
# MaxMind's reader from PyPI; its stub against mypy. The module is that of the tests' build, packed as `pip wheel crates/python` packs that of
# a release build, which would compile the tables once more.
. "$(dirname "$0")/lib/namespaces.sh"

source=$here/crates/python
module=$(dirname "$(readlink -f "$bench")")/deps/libfingerpost_python.so
[ -f "$module" ] || fail "no module beside $bench: cargo build -p fingerpost-python"

install() {
    "$work/$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}" >"$work/pip.log" 2>&1 || fail "pip: $(tail -5 "$work/pip.log")"
}
"$python" -m venv "$work/empty"
"$python" -m venv "$work/peers"
install peers wheel 'maturin>=1.8,<2' mypy numpy pytricia==1.3.0 py-radix==1.1.0 pyasn==1.6.2 maxminddb==3.2.0

echo "a wheel"
mkdir -p "$work/wheel/fingerpost"
(cd "$source" && PATH=$work/peers/bin:$PATH maturin pep517 write-dist-info --metadata-directory "$work/wheel" --interpreter python) >/dev/null 2>"$work/log" ||
    fail "no metadata: $(cat "$work/log")"
cp "$module" "$work/wheel/fingerpost/fingerpost.abi3.so"
cp "$source/fingerpost.pyi" "$work/wheel/fingerpost/__init__.pyi"
touch "$work/wheel/fingerpost/py.typed"
# As maturin writes it.
echo 'from .fingerpost import *' >"$work/wheel/fingerpost/__init__.py"
"$work/peers/bin/python" -m wheel pack --dest-dir "$work" "$work/wheel" >/dev/null
wheel=$(ls "$work"/fingerpost-*-cp39-abi3-*.whl)
install empty --no-index "$wheel"
install peers --no-index --no-deps "$wheel"

echo "the README's example, without another package"
sed -n '/^```python/,/^```/p' "$source/README.md" | grep -v '^```' >"$work/example.py"
printed=$("$work/empty/bin/python" "$work/example.py")
grep -qF "prints \`$printed\`" "$source/README.md" || fail "the example printed $printed"
"$work/empty/bin/python" "$source/tests/test_table.py" 2>"$work/log" || fail "$(tail -30 "$work/log")"

echo "beside other packages"
"$work/peers/bin/python" "$source/tests/test_packages.py" "$source/tests/prefixes.txt" "$here/data/mmdb" 2>"$work/log" || fail "$(tail -30 "$work/log")"
grep -q '^OK$' "$work/log" || fail "tests were skipped: $(tail -3 "$work/log")"

echo "the stub"
# The classes behind the module are no part of it; Python 3.9 has no decorator for a class with a layout of its own.
printf '%s\n' 'fingerpost\.fingerpost' 'fingerpost\._.*' 'fingerpost\.Table' >"$work/allowed"
"$work/peers/bin/python" -m mypy.stubtest fingerpost --allowlist "$work/allowed" --ignore-unused-allowlist >"$work/log" || fail "$(cat "$work/log")"

echo "mistakes"
for script in 'Table.load("/nonexistent")' 'Table()["foo"] = 1' 'Table()[None]' 'Table()["10.0.0.1"]' 'Table().lookup_many(["10.0.0.1"])'; do
    if "$work/empty/bin/python" -c "from fingerpost import Table; $script" 2>"$work/log"; then fail "$script is no error"; fi
    tail -1 "$work/log" >>"$work/errors"
done
for error in 'FileNotFoundError: .*/nonexistent' "ValueError: \"foo\" is no address" 'TypeError: NoneType is no address' "KeyError: .*10.0.0.1" "ModuleNotFoundError: .*numpy"; do
    grep -q "^$error" "$work/errors" || fail "no $error among: $(cat "$work/errors")"
done
