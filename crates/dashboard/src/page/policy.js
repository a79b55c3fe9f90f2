// A gate's policy, rule by rule; a candidate that is only compared with it, and the bundles it comes in.
import { fill } from "./draw.js";
import { count, lasting, rough } from "./words.js";

const by = (id) => document.getElementById(id);
/** Flows that are listed; `show` has more of them. */
const MOST = 16;

/** Rules that are listed; `show` has all of them. */
const RULES = 32;
/** What rules had in the last seconds: when, by whose clock, and how many packets each. */
let looks = [];
const REST = {
  others: "rules beyond those that are counted one by one",
  gone: "rules that are no longer there",
  none: "no route, blocked sources, and what the kernel dropped",
};

/** Fills what became of packets by the rule that decided, those with most packets now first. */
export function showPolicies({ policies }, { now, began }) {
  const sum = (it) => Object.values(it).reduce((all, value) => all + value, 0);
  const all = policies.map((it) => ({ ...it, sum: sum(it.packets) }));
  looks = looks.filter((look) => look.began === began && look.now < now && look.now > now - 6);
  looks.push({ now, began, sums: new Map(all.map((it) => [it.policy, it.sum])) });
  const [first] = looks;
  const rate = (it) => (now > first.now ? Math.max(0, it.sum - (first.sums.get(it.policy) ?? it.sum)) / (now - first.now) : 0);
  const used = all.filter((it) => it.sum > 0 || !(it.policy in REST)).map((it) => ({ ...it, rate: rate(it) }));
  used.sort((a, b) => b.rate - a.rate || b.sum - a.sum);
  const row = ({ policy, action, line, packets, bytes, rate: many }) => [
    policy, [(action ?? REST[policy] ?? "") + (line ? ` (line ${line})` : ""), "text"], rough(many),
    ...["request", "granted", "passed", "dropped"].map((name) => count(packets[name])), count(sum(bytes)),
  ];
  fill(by("rules"), used.slice(0, RULES).map(row));
  const more = used.length - RULES;
  by("rules-more").textContent = "Since the start; together they are all packets that were received." + (more > 0 ? ` ${count(more)} rules more are in show gate.` : "");
}

/** What rules of a gate say, and by which prefix; a grantor's policy says it in words. */
function outcome(said) {
  if (typeof said === "string") return said;
  return said.action + (said.rule ? ` by ${said.rule}` : "") + (said.line ? ` (line ${said.line})` : "");
}

/** Fills what a candidate would do, of a gate or of a grantor. */
export function showCandidate({ candidate: shadow }) {
  if (!shadow) return;
  const ofGate = Array.isArray(shadow.changes);
  const pairs = ofGate
    ? shadow.changes.map((it) => [it.policy, it.candidate, it.packets])
    : Object.entries(shadow.changes).map(([name, value]) => [...name.split("_"), value]).sort((a, b) => b[2] - a[2]);
  const sum = pairs.reduce((all, pair) => all + pair[2], 0);
  by("compared").textContent = ofGate
    ? `${shadow.version ?? "Without a name"}: of ${count(shadow.packets)} packets, estimated from ${count(shadow.samples)} samples, it would decide ${count(sum)} otherwise. It decides of nothing.`
    : `Of ${count(shadow.requests)} requests it would decide ${count(sum)} otherwise, and failed ${count(shadow.failed)} times. It decides of nothing.`;
  by("changed-what").textContent = ofGate ? "packets" : "requests";
  fill(by("changes"), pairs.map(([was, will, many]) => [was, [will, "text"], count(many)]), "nothing would be otherwise");
  const flow = (it) => [it.source, [it.destination, "text"], [outcome(it.policy), "text"], [outcome(it.candidate), "text"], count(it.packets ?? it.requests)];
  fill(by("changed"), shadow.flows.slice(0, MOST).map(flow), "none");
}

const STATES = {
  local: "no bundle is in force: the file's own policy is",
  waiting: "a version is offered, and tried by others first",
  canary: "on trial, and one of the first to try it",
  trial: "on trial",
  confirmed: "in force, its trial is over",
  rolled_back: "taken back to the version before",
};

/** Fills how it stands with bundles. */
export function showDistribution(it) {
  const state = `${it.state.replace("_", " ")}: ${STATES[it.state] ?? ""}`;
  const left = it.remaining_seconds === undefined ? "" : `, ${lasting(it.remaining_seconds)} left`;
  fill(by("bundle"), [
    ["version in force", [it.version === undefined ? "none" : String(it.version), "text"]],
    ["state", [state + left, "text"]],
    ["why", [it.reason ?? "–", "text"]],
    ["offered", [it.offered === undefined ? "nothing else" : String(it.offered), "text"]],
    ["can go back to", [it.previous.join(", ") || "none", "text"]],
    ["the highest so far", [String(it.floor), "text"]],
    ["this member", [it.name, "text"]],
    ["from", [it.source, "text"]],
  ]);
  const refused = Object.entries(it.refused).reverse();
  fill(by("refused"), refused.map(([version, why]) => [version, [why, "text"]]), "none");
  by("bundle-trouble").hidden = !it.last_error;
  if (by("bundle-trouble").textContent !== (it.last_error ?? "")) by("bundle-trouble").textContent = it.last_error ?? "";
}
