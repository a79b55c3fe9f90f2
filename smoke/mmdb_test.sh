#!/usr/bin/env bash
# MaxMind databases, written by MaxMind's own writer: each size of a record, both versions of IP, with aliases of IPv4 and
# below a shorter prefix. MaxMind's own reader must find the same records and prefixes, also in the databases that `table
# convert` writes of their text. Then a user's mistakes.
#
# FINGERPOST_SEED: the first seed; FINGERPOST_NETWORKS: the networks in each database.
. "$(dirname "$0")/lib/namespaces.sh"

seed=${FINGERPOST_SEED:-1} networks=${FINGERPOST_NETWORKS:-300}
perl "$here/smoke/mmdb_write.pl" "$work" "$seed" "$networks" || fail "no databases"

for database in "$work"/*.mmdb; do
    name=$(basename "$database" .mmdb)
    "$python" "$here/smoke/mmdb_records.py" addresses "$work/$name.networks" "$seed" >"$work/addresses"
    "$program" route get --table "$database" -j -f "$work/addresses" >"$work/answers" || [ $? -eq 1 ] || fail "$name: no answers"
    "$python" "$here/smoke/mmdb_records.py" compare "$database" "$work/answers" || fail "$name: the answers differ"
    "$program" table convert "$database" --to text | "$program" table convert - --to mmdb >"$work/written" || fail "$name: not converted"
    # A prefix around ::/96 is divided by it.
    [[ $name == *-covered ]] && verb=records || verb=compare
    "$python" "$here/smoke/mmdb_records.py" "$verb" "$work/written" "$work/answers" || fail "$name: the written database differs"
done

echo "networks with equal records share one"
"$program" table info -j "$work/32-4.mmdb" >"$work/info"
json 'v4 = d["v4"]; assert v4["prefixes"] > 200 and 20 < v4["next_hops"] <= 41, v4' <"$work/info"

echo "a map of the records, by the example of fingerpost-lpm"
records() { sed 's/^[^ ]* [^ ]* //; s/^-$/null/' "$1" | paste -sd, | sed 's/.*/[&]/' | json 'print(d)'; }
map=$(dirname "$(readlink -f "$bench")")/examples/database
[ -x "$map" ] || fail "no $map: cargo build -p fingerpost-lpm --example database"
for name in 24-4 32-6; do
    "$python" "$here/smoke/mmdb_records.py" addresses "$work/$name.networks" "$seed" >"$work/addresses"
    "$python" "$here/smoke/mmdb_records.py" answers "$work/$name.mmdb" "$work/addresses" >"$work/theirs"
    xargs "$map" "$work/$name.mmdb" <"$work/addresses" >"$work/ours" 2>/dev/null || fail "$name: no map"
    diff <(cut -d' ' -f1,2 "$work/theirs") <(cut -d' ' -f1,2 "$work/ours") || fail "$name: the map has other prefixes"
    cmp <(records "$work/theirs") <(records "$work/ours") || fail "$name: the map has other records"
done
refuse 1 "usage: database FILE ADDRESS" "$map"

echo "compressed, from standard input, into an image"
database=$work/28-6.mmdb
address=$(head -1 "$work/28-6.networks" | cut -d/ -f1)
"$program" route get --table "$database" "$address" >"$work/plain"
gzip -c "$database" | "$program" route get --table - "$address" | cmp - "$work/plain" || fail "compressed, the answer differs"
"$program" table save "$database" -o "$work/table.image" >/dev/null || fail "no image"
"$program" route get --image "$work/table.image" -j "$address" | json 'print(d[0]["next_hop"])' >"$work/image"
"$program" route get --table "$database" -j "$address" | json 'print(d[0]["next_hop"])' | cmp - "$work/image" || fail "the image has another record"
"$program" table info "$database" | has_line "$database: MaxMind database" || fail "the format is not named: $("$program" table info "$database" | head -3)"

echo "damaged"
size=$(stat -c %s "$database")
head -c $((size / 2)) "$database" >"$work/cut.mmdb"
if "$program" route get --table "$work/cut.mmdb" "$address" >"$work/out" 2>"$work/err"; then fail "a cut database is read"; fi
[ ! -s "$work/out" ] || fail "a cut database gives answers"
grep -q "$work/cut.mmdb: " "$work/err" || fail "the error does not name the file: $(cat "$work/err")"
# Node 1 leads back to the root.
{ head -c 7 "$database" && printf '\0\0\0\0\0\0\0' && tail -c +15 "$database"; } >"$work/circle.mmdb"
if timeout 20 "$program" route get --table "$work/circle.mmdb" "$address" 2>"$work/err"; then fail "a tree with a circle is read"; fi
grep -q "$work/circle.mmdb: damaged" "$work/err" || fail "the error does not name the damage: $(cat "$work/err")"

echo "other formats"
mmdblookup -f "$work/written" -v -i "$address" | has_line "    Type:          fingerpost" || fail "MaxMind's C library does not read the database"
printf '192.0.2.0/24 192.0.2.1\n2001:db8::/32 fe80::1\n' >"$work/table"
for format in text ip-route updates bgpdump mrt; do
    "$program" table convert "$work/table" --to "$format" >"$work/converted" || fail "not converted to $format"
    "$program" table convert "$work/converted" --to text | cmp - "$work/table" || fail "$format has another table"
done
printf '192.0.2.0/24 64500\n' >"$work/table"
"$program" table convert "$work/table" --to pfx2as | "$program" table convert - --to text | cmp - "$work/table" || fail "pfx2as has another table"
printf '192.0.2.0/24 west\n' >"$work/table"
echo old >"$work/converted"
if "$program" table convert "$work/table" --to mrt -o "$work/converted" 2>"$work/err"; then fail "MRT has a next hop \"west\""; fi
grep -q '192.0.2.0/24: label "west"' "$work/err" || fail "the error does not name the route: $(cat "$work/err")"
[ "$(cat "$work/converted")" = old ] || fail "an error changed the file"
"$program" table convert "$work/table" --to mmdb -j -o "$work/converted" | json 'assert d["v4"] == 1 and d["v6"] == 0, d' || fail "no summary"
