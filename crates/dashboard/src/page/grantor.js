// The grantor's part of the page: requests, decisions of the policy, gates.
import { fill, tile } from "./draw.js";
import { count, lasting, rough } from "./words.js";

const by = (id) => document.getElementById(id);

/** What goes wrong with a policy, by the name of its counter. */
const FAILURES = {
  failed: "the script ended in an error",
  over_time: "the script took more instructions or memory than it may",
  unread: "a request could not be read",
  lost: "decisions found no room on their way",
};

const failures = (history) => Object.keys(FAILURES).reduce((sum, name) => sum + history.rate(`policy.${name}`), 0);

/** The lines of each plot: requests and decisions. */
export function picturesOfGrantor(grantor, history) {
  const rates = (name, column) => ({ name, values: history.rates(column) });
  const all = [
    ["Requests a second", "a second", [rates("requests", "policy.requests"), rates("of them renewals", "policy.renewals"), rates("delivered", "policy.delivered")]],
    ["Decisions a second, by kind", "a second", [rates("granted", "policy.granted"), rates("declined", "policy.declined"), rates("programs", "policy.programs"), rates("undecided", "policy.undecided")]],
    ["Failures of the policy a second", "a second", Object.keys(FAILURES).map((name) => rates(name.replace("_", " "), `policy.${name}`))],
    ["To the gates, a second", "a second", [rates("decisions", "decisions.items"), rates("messages", "decisions.messages"), rates("acknowledgements", "decisions.acks_received"), rates("abandoned", "decisions.abandoned")]],
  ];
  if (grantor.candidate) {
    all.push(["The candidate, a second", "a second", [rates("requests", "candidate.requests"), rates("differs", "candidate.changed"), rates("failed", "candidate.failed")]]);
  }
  return all;
}

/** Whether a gate has acknowledged something in the last seconds. */
const isHeard = (gate) => gate.heard_ago !== undefined && gate.heard_ago < 3;

/** The numbers of the moment. */
export function tilesOfGrantor(grantor, history) {
  const rate = (name) => rough(history.rate(name));
  const all = Object.keys(FAILURES).reduce((sum, name) => sum + (grantor.policy[name] ?? 0), 0);
  const { gates } = grantor;
  return [
    tile("requests/s", rate("policy.requests"), `${rate("policy.renewals")} renewals`),
    tile("granted/s", rate("policy.granted"), `${rate("policy.programs")} by programs`),
    tile("declined/s", rate("policy.declined"), `${rate("policy.undecided")} undecided`),
    tile("failures/s", rough(failures(history)), `${count(all)} since the start`),
    tile("gates heard", `${gates.filter(isHeard).length} of ${gates.length}`, `${rate("decisions.messages")} messages/s to them`),
  ];
}

/** Fills what only a grantor has. */
export function showGrantor({ grantor, programs }, history) {
  const { policy, decisions } = grantor;
  const rows = (part, numbers, words = {}) => {
    const some = Object.entries(numbers).filter(([name, value]) => value > 0 && name !== "memory_bytes");
    return some.map(([name, value]) => [
      name.replace(/_/g, " ") + (words[name] ? `: ${words[name]}` : ""),
      rough(history.rate(`${part}.${name}`)),
      count(value),
    ]);
  };
  fill(by("decided"), rows("policy", policy, FAILURES), "no requests yet");
  fill(by("sent-decisions"), rows("decisions", decisions), "nothing was sent");
  const now = failures(history);
  by("failures").hidden = now === 0;
  const words = now > 0 ? `The policy fails: ${rough(now)} times a second. ${grantor.last_error ?? ""}` : "";
  if (by("failures").textContent !== words) by("failures").textContent = words;
  const lists = Object.entries(grantor.lists).map(([name, prefixes]) => `${name}: ${count(prefixes)} prefixes`);
  fill(by("script"), [
    ["sha256", [grantor.digest, "text"]],
    ["reloads", [`${count(grantor.reloads)}, and ${count(grantor.reloads_refused)} refused`, "text"]],
    ["lists", [lists.join(", ") || "none", "text"]],
    ["memory", [rough(policy.memory_bytes ?? 0, "B"), "text"]],
    ["last error", [grantor.last_error ?? "none", "text"]],
    ...(grantor.record_failed ? [["not recorded", [grantor.record_failed, "text"]]] : []),
  ]);
  const of = (gate) => (programs ?? []).filter((entry) => entry.gate === gate).map((entry) => `${entry.number} ${entry.name ?? ""} ${entry.state.replace("_", " ")}`);
  const heard = (entry) => (entry.heard_ago === undefined ? "never" : entry.heard_ago < 3 ? "now" : `${lasting(entry.heard_ago)} ago`);
  fill(by("gates"), grantor.gates.map((entry) => [entry.gate, heard(entry), [of(entry.gate).join(", ") || "–", "text"]]), "none");
}
