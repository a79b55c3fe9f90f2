#!/usr/bin/env bash
# The command line as others see it: shells take the completions, Python takes the
# JSON, the kernel's own routes can be piped in, two runs of the generator give one
# table, and a full disk or a reader that leaves are met with manners.
. "$(dirname "$0")/lib/namespaces.sh"

# Completions: bash parses them and completes a subcommand with them.
"$program" completions bash >"$work/completions"
bash -n "$work/completions"
offered=$(bash -c '. "$1"; COMP_WORDS=(fingerpost ro); COMP_CWORD=1; _fingerpost fingerpost ro fingerpost
    echo "${COMPREPLY[*]}"' bash "$work/completions")
[ "$offered" = route ] || fail "bash completes \`ro\` to \`$offered\`"

# Manual pages: one for the program and for each subcommand.
"$program" man --dir "$work/man"
for page in fingerpost fingerpost-demo fingerpost-forward fingerpost-route-get fingerpost-table-info; do
    grep -q '^\.SH NAME' "$work/man/$page.1" || fail "no manual page $page"
done

# Every -j is one JSON document, also with an unusual locale and terminal.
for arguments in "table info" "route get --table"; do
    words=($arguments "$here/data/nested.txt" -j)
    [ "${words[0]}" = table ] || words+=(14.240.0.1 2001:db8::1)
    LC_ALL=tr_TR.UTF-8 TERM=dumb "$program" "${words[@]}" 2>"$work/err" >"$work/out" || [ $? -eq 1 ]
    "$python" -m json.tool "$work/out" >/dev/null || fail "\`$arguments -j\` is not JSON"
    [ ! -s "$work/err" ] || fail "\`$arguments -j\` says: $(cat "$work/err")"
done

# The kernel's own routes, through a pipe.
namespace here
namespace there
join here h0 02:00:00:00:00:01 there t0 02:00:00:00:00:02
within here ip addr add 192.0.2.1/24 dev h0
within here ip route add 198.51.100.0/24 via 192.0.2.9
within here ip route add default via 192.0.2.7
found=$(within here ip -j route | "$program" route get --table - 198.51.100.77 203.0.113.1)
grep -q '^198.51.100.77 in 198.51.100.0/24 via 192.0.2.9' <<<"$found" || fail "ip -j route: $found"
grep -q '^203.0.113.1 in 0.0.0.0/0 via 192.0.2.7' <<<"$found" || fail "ip -j route: $found"

# The generator: the same seed the same bytes, another seed others, sizes as requested.
generate=("$program" table generate --v4 20000 --v6 5000)
"${generate[@]}" --seed 7 >"$work/first"
"${generate[@]}" --seed 7 --output "$work/second"
"${generate[@]}" --seed 8 >"$work/third"
cmp "$work/first" "$work/second" || fail "the generator does not repeat itself"
! cmp -s "$work/first" "$work/third" || fail "two seeds, one table"
sizes=$("$program" table info -j "$work/first" | json 'print(d["v4"]["prefixes"], d["v6"]["prefixes"])')
[ "$sizes" = "20000 5000" ] || fail "requested 20000 and 5000 routes, got $sizes"
loads=$("$program" table info --loads -j "$work/first" | json '
v4, v6 = d["v4"]["loads"], d["v6"]["loads"]
print(*(sum(n.values()) for n in (v4["addresses_by_loads"], v4["routes_by_loads"], v6["routes_by_loads"])))')
[ "$loads" = "4294967296 20000 5000" ] || fail "loads of $loads addresses and routes"
"$program" table info --loads --engine dir24_8 -4 "$work/first" | has_line '^  addresses by loads  1: ' ||
    fail "table info --loads prints no shares"
chunks=$("$program" table info --engine D16R -4 -j "$work/first" | json '
v4 = d["v4"]
chunks, items = v4["chunks"], {part["name"]: part["items"] for part in v4["parts"]}
assert sum(n["chunks"] for n in chunks["by_ranges"]) == chunks["chunks"] > 1000, chunks
assert all(items[f["name"]] == f["stored_ranges"] <= f["ranges"] for f in chunks["formats"]), chunks
print(round(65536 * (1 - chunks["direct_coverage"])) - chunks["chunks"])')
[ "$chunks" = 0 ] || fail "the direct coverage is not that of the chunks: $chunks"
"$program" table info --engine D16R -4 "$work/first" | has_line '^    short ranges .* chunks stored, ' ||
    fail "table info prints no chunks"

# A reader that leaves is no error; a disk that is full is.
"${generate[@]}" 2>"$work/err" | head -n 1 >/dev/null
[ "${PIPESTATUS[0]}" -eq 0 ] || fail "a reader that left gave status ${PIPESTATUS[0]}"
[ ! -s "$work/err" ] || fail "a reader that left: $(cat "$work/err")"
status=0
"${generate[@]}" >/dev/full 2>"$work/err" || status=$?
[ "$status" -eq 1 ] || fail "a full disk gave status $status"
grep -q 'No space left' "$work/err" || fail "a full disk: $(cat "$work/err")"

# The log: severities for the journal, none elsewhere; levels by option and by environment.
: >"$work/journal"
status=0
JOURNAL_STREAM=$(stat -c %d:%i "$work/journal") "$program" run -c /nonexistent 2>>"$work/journal" || status=$?
[ "$status" -eq 1 ] || fail "a configuration that is not there gave status $status"
grep -q '^<3>/nonexistent: ' "$work/journal" || fail "in the journal: $(cat "$work/journal")"
refuse 1 'fingerpost: /nonexistent: ' env JOURNAL_STREAM=1:1 "$program" run -c /nonexistent
refuse 2 'error, warn, info or debug' "$program" --log-level loud run -c /nonexistent
refuse 1 'FINGERPOST_LOG: "loud" is no level' env FINGERPOST_LOG=loud "$program" run -c /nonexistent
printf '[[interface]]\nname = "eth0"\n[log]\nlevel = "loud"\n' >"$work/loud.toml"
refuse 1 'log.level' "$program" run --check -c "$work/loud.toml"

echo "completions, pages, JSON, pipes and the generator behave"
