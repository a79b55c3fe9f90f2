#!/usr/bin/env bash
# A definition of a few hundred routes carried out with every rival that can be had here:
# JSON, CSV and the page of HTML are whole, refusals are clear, and nothing stays.
. "$(dirname "$0")/lib/namespaces.sh"

cd "$here"
run() { "$bench" run "$@" --record "$work/record"; }

run tiny --html "$work/report.html" -j >"$work/report.json" 2>"$work/run.log" ||
    fail "bench run tiny: $(cat "$work/run.log")"
"$python" - "$work" <<'PY' || fail "the report is not whole"
import csv, glob, html.parser, json, re, sys

work = sys.argv[1]
found = json.load(open(f"{work}/report.json"))
ours = [one for one in found["contestants"] if one["ours"]]
others = [one for one in found["contestants"] if not one["ours"]]
there = {one["name"] for one in others} | {one["name"] for one in found["missing"]}
assert {one["name"] for one in ours} == {"rank", "flat", "D16X4R", "poptrie", "dir24_8"}, ours
assert there == {"rte_fib", "rte_lpm", "bart", "prefix-trie", "treebitmap"}, there
for one in found["missing"]:
    assert one["why"], one
for one in ours + others:
    assert {score["stream"] for score in one["scores"]} == {"RND", "SEQ", "REP", "PFX", "ZIPF"}
    assert all(score["min"] > 0 for score in one["scores"]), one["name"]
    assert one["latency"]["p50"] > 0 and one["changes"]["median"] > 0, one["name"]
    assert one["samples"] == found["rounds"], one["name"]
assert all(one["touched"] for one in ours)
limit = [at["independent"]["median"] for at in found["limit"]]
assert len(limit) == 12 and min(limit) > 0, limit

rows = list(csv.DictReader(open(glob.glob(f"{work}/record/*/*.csv")[0])))
assert {row["contestant"] for row in rows} >= {one["name"] for one in ours + others}

class Page(html.parser.HTMLParser):
    empty = {"meta", "line", "path", "rect", "circle", "br"}
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []
    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in self.empty:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href"), f"{tag} needs {value}"
    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
    def handle_endtag(self, tag):
        if tag not in self.empty:
            assert self.open and self.open.pop() == tag, tag

text = open(f"{work}/report.html").read()
page = Page()
page.feed(text)
assert not page.open, page.open
assert "script" not in page.seen and page.seen.count("svg") >= 8, page.seen.count("svg")
assert not re.search(r"url\(|@import|NaN", text)
for one in ours + others:
    assert one["name"] in text
print(f"{len(ours)} of ours, {len(others)} others, missing: {[one['name'] for one in found['missing']]}")
PY

# What others are given is what the sums are of.
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
grep -q "poptrie" "$work/without" || fail "nobody is measured"
