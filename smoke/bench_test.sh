#!/usr/bin/env bash
# A definition of a few hundred routes carried out with every rival that can be had here:
# JSON, CSV and the page of HTML are whole, refusals are clear, and nothing stays.
. "$(dirname "$0")/lib/namespaces.sh"

cd "$here"
run() { "$bench" run "$@" --record "$work/record"; }

run tiny --html "$work/report.html" -j >"$work/report.json" 2>"$work/run.log" ||
    fail "bench run tiny: $(cat "$work/run.log")"
"$python" "$here/smoke/bench_report.py" "$work" || fail "the report is not whole"

# The exported files are those that the sums in the definition are about.
run tiny --export "$work/export" 2>>"$work/run.log" || fail "no export"
labeled=$(sed -n 's/^labeled = "\(.*\)"/\1/p' bench/definitions/tiny.toml)
[ "$(sha256sum <"$work/export/routes.txt")" = "$labeled  -" ] || fail "other routes are exported"
for stream in RND SEQ REP PFX ZIPF; do
    sum=$(sed -n "/name = \"$stream\"/,/^\$/s/^answers = \"\(.*\)\"/\1/p" bench/definitions/tiny.toml)
    [ "$(sha256sum <"$work/export/$stream.answers")" = "$sum  -" ] ||
        fail "other answers to $stream are exported"
done

# Refusals.
mkdir "$work/definitions"
cp bench/definitions/tiny.t* "$work/definitions"
tiny=$work/definitions/tiny.toml
sed -i 's/^labeled = "./labeled = "-/' "$tiny"
refuse 1 "the routes have other next hops" "$bench" run "$tiny"
cp bench/definitions/tiny.toml "$tiny"
echo "10.9.9.0/24	64500" >>"$work/definitions/tiny.txt"
refuse 1 "is another file than the definition is about" "$bench" run "$tiny"
cp bench/definitions/tiny.txt "$work/definitions"
sed -i '0,/^answers = "./s//answers = "-/' "$tiny"
refuse 1 "the answers to RND are not those of the definition" "$bench" run "$tiny"
rm "$work/definitions/tiny.txt"
refuse 1 "no table tiny.txt" "$bench" run "$tiny"
refuse 1 "the definition has" "$bench" run tiny --only poptree

# A rival that cannot be built is missing, and the others are measured.
cp bench/definitions/tiny.t* "$work/definitions"
sed 's/^build = .*/build = "echo no compiler >\&2; exit 1"/' bench/rivals/rivals.toml >"$work/rivals.toml"
run "$tiny" --rivals "$work/rivals.toml" --only bart,poptrie --rounds 1 >"$work/without" 2>>"$work/run.log" ||
    fail "one missing rival ends it all"
grep -q "Missing: bart: no compiler; it takes: Go" "$work/without" ||
    fail "a missing rival is passed over: $(cat "$work/without")"
grep -q "poptrie" "$work/without" || fail "no engine is measured"

# Every contestant drops packets of listed sources; without ipset the others do.
"$bench" block --prefixes 5000 --rounds 1 --rate 500 --seconds 1 --packets 20000 -j --record "$work/record" >"$work/block.json" \
    2>"$work/block.log" || fail "bench block: $(cat "$work/block.log")"
wanted='["block", "pair", "lpm_trie", "nftables", "none"]'
grep -q "without ipset: " "$work/block.log" || wanted="${wanted%]}, \"ipset\"]"
json "assert [drops['contestant'] for drops in d['drops']] == $wanted, d" <"$work/block.json" || fail "other contestants"
mkdir "$work/bin"
ln -s "$(command -v nft)" "$(command -v ethtool)" "$(command -v ip)" "$(command -v unshare)" "$(command -v sh)" "$(command -v mount)" "$work/bin"
PATH=$work/bin "$bench" block --prefixes 5000 --rounds 1 --rate 500 --seconds 1 --packets 20000 -j --record "$work/record" >"$work/block.json" \
    2>"$work/block.log" || fail "bench block without ipset: $(cat "$work/block.log")"
grep -q "without ipset: running ipset: " "$work/block.log" || fail "no note of ipset: $(cat "$work/block.log")"
json 'assert "ipset" not in [drops["contestant"] for drops in d["drops"]], d' <"$work/block.json" || fail "ipset without ipset"
