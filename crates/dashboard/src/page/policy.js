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
  removed: "removed rules",
  none: "no route, blocked sources, and what the kernel dropped",
};

/** Fills what became of packets by the rule that decided, those with most packets now first. */
export function showPolicies({ policies }, { now, began }) {
  const sum = (entry) => Object.values(entry).reduce((all, value) => all + value, 0);
  const all = policies.map((entry) => ({ ...entry, sum: sum(entry.packets) }));
  looks = looks.filter((look) => look.began === began && look.now < now && look.now > now - 6);
  looks.push({ now, began, sums: new Map(all.map((entry) => [entry.policy, entry.sum])) });
  const [first] = looks;
  const rate = (entry) => (now > first.now ? Math.max(0, entry.sum - (first.sums.get(entry.policy) ?? entry.sum)) / (now - first.now) : 0);
  const used = all.filter((entry) => entry.sum > 0 || !(entry.policy in REST)).map((entry) => ({ ...entry, rate: rate(entry) }));
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
    ? shadow.changes.map((entry) => [entry.policy, entry.candidate, entry.packets])
    : Object.entries(shadow.changes).map(([name, value]) => [...name.split("_"), value]).sort((a, b) => b[2] - a[2]);
  const sum = pairs.reduce((all, pair) => all + pair[2], 0);
  by("compared").textContent = ofGate
    ? `${shadow.version ?? "Without a name"}: of ${count(shadow.packets)} packets, estimated from ${count(shadow.samples)} samples, it would decide ${count(sum)} otherwise. It decides of nothing.`
    : `Of ${count(shadow.requests)} requests it would decide ${count(sum)} otherwise, and failed ${count(shadow.failed)} times. It decides of nothing.`;
  by("changed-what").textContent = ofGate ? "packets" : "requests";
  fill(by("changes"), pairs.map(([was, will, many]) => [was, [will, "text"], count(many)]), "nothing would be otherwise");
  const flow = (entry) => [entry.source, [entry.destination, "text"], [outcome(entry.policy), "text"], [outcome(entry.candidate), "text"], count(entry.packets ?? entry.requests)];
  fill(by("changed"), shadow.flows.slice(0, MOST).map(flow), "none");
}

const STATES = {
  local: "no bundle is in force: the file's own policy is",
  waiting: "a version is offered, and tried by others first",
  canary: "on trial, and one of the first to try entry",
  trial: "on trial",
  confirmed: "in force, its trial is over",
  rolled_back: "taken back to the version before",
};

/** Fills how it stands with bundles. */
export function showDistribution(entry) {
  const state = `${entry.state.replace("_", " ")}: ${STATES[entry.state] ?? ""}`;
  const left = entry.remaining_seconds === undefined ? "" : `, ${lasting(entry.remaining_seconds)} left`;
  fill(by("bundle"), [
    ["version in force", [entry.version === undefined ? "none" : String(entry.version), "text"]],
    ["state", [state + left, "text"]],
    ["why", [entry.reason ?? "–", "text"]],
    ["offered", [entry.offered === undefined ? "nothing else" : String(entry.offered), "text"]],
    ["can go back to", [entry.previous.join(", ") || "none", "text"]],
    ["the highest so far", [String(entry.floor), "text"]],
    ["this member", [entry.name, "text"]],
    ["from", [entry.source, "text"]],
  ]);
  const refused = Object.entries(entry.refused).reverse();
  fill(by("refused"), refused.map(([version, why]) => [version, [why, "text"]]), "none");
  by("bundle-trouble").hidden = !entry.last_error;
  if (by("bundle-trouble").textContent !== (entry.last_error ?? "")) by("bundle-trouble").textContent = entry.last_error ?? "";
}
