// The page: requests the status once a second, and shows it with its age.
import { Plot, bar, fill, tile } from "./draw.js";
import { picturesOfGrantor, showGrantor, tilesOfGrantor } from "./grantor.js";
import { showCandidate, showDistribution, showPolicies } from "./policy.js";
import { History, ask } from "./store.js";
import { clock, count, lasting, moment, percent, reason, rough } from "./words.js";

const by = (id) => document.getElementById(id);
const history = new History();
/** The last answers, by request; a request without an answer has none. */
const answers = {};
let range = 900;
let began = null;
let heard = null;
let lost = null;
/** How far this machine's clock is behind the server's. */
let behind = 0;

const plots = new Map();
/** The requests of each role every second, and those whose answer is one item instead of a list. */
const OFTEN = { gate: ["gate", "counters", "attacks", "destinations"], grantor: ["grantor", "programs", "counters"], router: ["counters"] };
const ALONE = new Set(["gate", "grantor", "counters", "distribution"]);

/** The lines of each plot. */
function pictures() {
  const rates = (name, column, times = 1) => ({ name, values: history.rates(column, times) });
  const levels = (name, column) => ({ name, values: history.levels(column) });
  const gate = answers.about.role === "gate";
  const all = [
    ["Packets a second", "a second", gate
      ? [rates("at the front", "packets.received"), rates("granted", "packets.granted"), rates("dropped", "dropped"), rates("requests", "packets.request")]
      : [rates("received", "received"), rates("sent", "sent"), rates("dropped", "dropped"), rates("to the kernel", "punted")]],
    ["Dropped, by reason, a second", "a second", history.most("dropped.").slice(0, 6).map((name) => rates(name.slice(8), name))],
    ["Bits a second", "a second", gate
      ? [rates("at the front", "bytes.received", 8), rates("granted", "bytes.granted", 8), rates("declined", "bytes.declined", 8), rates("requests", "bytes.request", 8)]
      : [rates("received", "received_bytes", 8), rates("sent", "sent_bytes", 8)]],
  ];
  if (answers.grantor) return [...picturesOfGrantor(answers.grantor, history), ...all];
  if (gate) {
    all.push(["Flows, by state", "flows", [levels("requests", "table.requests"), levels("granted", "table.granted"), levels("declined", "table.declined"), levels("by a program", "table.running")]]);
  }
  return all;
}

function drawPlots() {
  const to = history.times[history.times.length - 1];
  if (to === undefined) return;
  const all = pictures();
  // A candidate that is gone has no plot any more.
  for (const [title, plot] of plots) plot.figure.hidden = !all.some((entry) => entry[0] === title);
  for (const [title, unit, lines] of all) {
    if (!plots.has(title)) {
      const plot = new Plot(title, unit);
      plot.details.addEventListener("toggle", drawPlots);
      plots.set(title, plot);
      by("plots").append(plot.figure);
    }
    plots.get(title).draw({ times: history.times, lines, from: to - range, to, attacks: answers.attacks || [] });
  }
}

function showTiles() {
  const { counters, gate } = answers;
  const dropped = history.most("dropped.").map((name) => [name.slice(8), history.rate(name)]).sort((a, b) => b[1] - a[1]);
  const most = dropped.length && dropped[0][1] > 0 ? `most: ${dropped[0][0]}` : "nothing";
  const bits = (name) => rough(history.rate(name, 8), "bit/s");
  const tiles = [];
  if (gate) {
    const early = history.rate("packets.xdp_dropped");
    const load = gate.table.capacity ? gate.table.flows / gate.table.capacity : 0;
    tiles.push(
      tile("received, packets/s", rough(history.rate("packets.received")), bits("bytes.received")),
      tile("granted, packets/s", rough(history.rate("packets.granted")), bits("bytes.granted")),
      tile("requests, packets/s", rough(history.rate("packets.request")), `${rough(history.rate("link.requests_sent"))} got through`),
      tile("declined or blocked, packets/s", rough(history.rate("packets.declined") + history.rate("packets.blocked")), `${rough(early)} of them in the kernel`),
      tile("dropped, packets/s", rough(history.rate("dropped")), most),
      tile("flow table", percent(load), `${count(gate.table.flows)} of ${count(gate.table.capacity)}`),
    );
  } else {
    if (answers.grantor) tiles.push(...tilesOfGrantor(answers.grantor, history));
    tiles.push(
      tile("received, packets/s", rough(history.rate("received")), bits("received_bytes")),
      tile("sent, packets/s", rough(history.rate("sent")), bits("sent_bytes")),
      tile("punted, packets/s", rough(history.rate("punted")), "to the kernel"),
      tile("dropped, packets/s", rough(history.rate("dropped")), most),
    );
  }
  if (counters) tiles.push(tile("since the start", rough(counters.received), `${count(counters.received)} received`));
  by("tiles").replaceChildren(...tiles);
}

function showHead() {
  const { about, gate, grantor, distribution } = answers;
  const names = { gate: "Gate", grantor: "Grantor", router: "Router" };
  const title = gate ? `Gate ${gate.front} → ${gate.back}` : names[about.role] || "Fingerpost";
  by("name").textContent = title;
  const words = [`Fingerpost ${about.version}`, `at work for ${lasting(about.uptime)}`];
  if (gate) words.push(`link ${rough(gate.bandwidth, "bit/s")}`, `policy ${gate.version ?? "without a name"}, generation ${gate.generation}`);
  if (grantor) words.push(`policy sha256 ${grantor.digest.slice(0, 12)}`);
  if (distribution) words.push(distribution.version ? `bundle ${distribution.version}` : "no bundle");
  by("what").textContent = words.join(" · ");
  const on = (answers.attacks || []).some((entry) => entry.ended === null);
  document.title = (lost ? "✕ no contact: " : on ? "⚠ attack: " : "") + title;
  const there = { gate, grantor, distribution, candidate: (gate || grantor)?.candidate };
  for (const [name, entry] of Object.entries(there)) {
    for (const part of document.querySelectorAll(`section.${name}, div.${name}`)) part.hidden = !entry;
  }
}

/** Puts words where they are read out when they change, and not every second. */
function say(id, words) {
  if (by(id).textContent !== words) by(id).textContent = words;
}

function mostOf(dropped) {
  const all = Object.entries(dropped).sort((a, b) => b[1] - a[1]);
  return all.length ? all[0][0] : "";
}

function showAttacks() {
  const { about, attacks } = answers;
  if (!attacks) return;
  const { packets, share, begin, within, quiet } = about.rule;
  by("rule").textContent =
    `A second counts in which the gate drops at least ${packets} packets, and one in ${share} of all that came. ` +
    `${begin} of these in ${within} seconds are the beginning of an attack; ${quiet} seconds without one are its end.`;
  const sum = (dropped) => Object.values(dropped).reduce((all, value) => all + value, 0);
  const row = (entry) => [
    moment(entry.began),
    entry.ended === null ? "goes on" : moment(entry.ended),
    lasting((entry.ended ?? about.now) - entry.began),
    rough(entry.dropped_peak, "/s"),
    rough(entry.received_peak, "/s"),
    count(sum(entry.dropped)),
    [`${mostOf(entry.dropped)}: ${reason(mostOf(entry.dropped))}`, "text"],
  ];
  fill(by("attacks"), attacks.map(row).reverse(), "none so far");
  const now = attacks.find((entry) => entry.ended === null);
  by("attack").hidden = !now;
  const words = now ? `Attack since ${moment(now.began)}: up to ${rough(now.dropped_peak)} packets a second dropped, most of them ${mostOf(now.dropped)}.` : "";
  say("attack", words);
}

function showLink() {
  const { gate } = answers;
  const row = (name, column, may, limit, dropped) => {
    const bits = history.rate(column, 8);
    const part = bits / gate.bandwidth;
    return [name, rough(bits, "bit/s"), percent(part), [bar(part / limit, part >= limit * 0.98), "text"], [may, "text"], dropped];
  };
  fill(by("link"), [
    row("requests", "link.request_bytes", "5 %, whatever else there is", 0.05, count(gate.link.requests_dropped)),
    row("granted", "link.granted_bytes", "95 %", 0.95, count(gate.link.granted_dropped)),
    row("operational", "link.operational_bytes", "5 % for sure, more if it is free", 1, "–"),
  ]);
  const waiting = gate.link.requests_waiting;
  by("queue").textContent = waiting
    ? `${count(waiting)} requests wait; the first of them has priority ${gate.link.highest_priority} (DSCP).`
    : "No request waits. Bars are of what a class may have; bytes include 24 of framing a packet.";
}

function showTop() {
  const { destinations } = answers;
  if (!destinations) return;
  const { seconds, samples, every } = destinations;
  const early = history.rate("packets.xdp_dropped");
  by("sampled").textContent =
    `Of the last ${lasting(seconds)}: ` +
    (every > 1 ? `estimated from ${count(samples)} samples, one packet in ${count(every)} or more.` : `every packet, ${count(samples)} of them.`) +
    (early > 0 ? ` Without ${rough(early)} packets a second of declined flows and blocked sources, which the kernel drops before anybody sees where they go.` : "") +
    " Requests are counted before the lowest of them lose their places.";
  const rows = destinations.destinations.map((entry) => [
    entry.destination, rough(entry.packets), percent(entry.share), rough(entry.requests), rough(entry.granted), rough(entry.passed), rough(entry.dropped), rough(entry.bits), entry.error > 0 ? "±" + percent(entry.error) : "none",
  ]);
  fill(by("top"), rows, "no packets");
}

function showPolicy() {
  const { gate } = answers;
  const silent = gate.silent || [];
  const address = (entry) => (silent.includes(entry) ? `${entry} (silent)` : entry);
  by("silent").hidden = silent.length === 0;
  say("silent", silent.length ? `Silent, and without flows: ${silent.length} of ${gate.grantors.length} grantors (${silent.join(", ")}).` : "");
  fill(by("policy"), [
    ["version", [gate.version ?? "without a name", "text"]],
    ["generation", [count(gate.generation), "text"]],
    ["prefixes", [count(gate.prefixes), "text"]],
    ["reloads", [`${count(gate.reloads)}, and ${count(gate.reloads_refused)} refused`, "text"]],
    ["grantors", [gate.grantors.map(address).join(", "), "text"]],
  ]);
  const named = (name) => `decisions.${name}`;
  const rows = Object.entries(gate.decisions).filter((entry) => entry[1] > 0);
  fill(by("decisions"), rows.map(([name, value]) => [name.replace(/_/g, " "), history.columns.has(named(name)) ? rough(history.rate(named(name))) : "", count(value)]));
}

function showEnds() {
  const { counters, gate } = answers;
  if (counters) {
    const some = (of, kind) => Object.entries(of).filter((entry) => entry[1] > 0).map(([name, value]) => [`${kind}${name}: ${reason(name)}`, history.columns.has(`dropped.${name}`) ? rough(history.rate(`dropped.${name}`)) : "", count(value)]);
    fill(by("ends"), [
      ["received", rough(history.rate("received")), count(counters.received)],
      ...(counters.originated ? [["originated: ICMP errors, fragments and other packets", "", count(counters.originated)]] : []),
      ["sent", rough(history.rate("sent")), count(counters.sent)],
      ...some(counters.punted, "to the kernel, "),
      ...some(counters.dropped, "dropped, "),
    ]);
  }
  if (gate) {
    const rows = Object.entries(gate.packets).filter((entry) => entry[1] > 0);
    fill(by("verdicts"), rows.map(([name, value]) => [name, rough(history.rate(`packets.${name}`)), count(value), name in gate.bytes ? count(gate.bytes[name]) : ""]));
  }
}

function showRouter() {
  const { workers, interfaces, fib, feeds } = answers;
  const sum = (of) => Object.values(of).reduce((all, value) => all + value, 0);
  if (workers) fill(by("workers"), workers.map(({ worker, counters: entry }) => [String(worker), count(entry.received), count(entry.sent), count(sum(entry.punted)), count(sum(entry.dropped))]));
  if (interfaces) fill(by("interfaces"), interfaces.map((entry) => [entry.name, [entry.up ? "up" : "DOWN", "text"], [entry.observe ? "observed" : entry.mode, "text"], count(entry.mtu), count(entry.steered.taken || 0)]));
  if (fib) fill(by("fib"), fib.map((entry) => [`${entry.table} ${entry.family}`, count(entry.routes), [entry.engine, "text"], rough(entry.bytes, "B"), count(entry.generation), [entry.full || "none", "text"]]));
  if (feeds) fill(by("feeds"), feeds.map((entry) => [entry.name, count(entry.messages), count(entry.overruns), count(entry.resynchronizations), count(entry.errors), [entry.last_error || "none", "text"]]));
}

function show() {
  showHead();
  showTiles();
  drawPlots();
  showAttacks();
  if (answers.gate) {
    showLink();
    showTop();
    showPolicy();
    showPolicies(answers.gate, answers.about);
  }
  if (answers.grantor) showGrantor(answers, history);
  showCandidate(answers.gate || answers.grantor || {});
  if (answers.distribution) showDistribution(answers.distribution);
  showEnds();
  showRouter();
}

/** Asks for what may be missing without the page being out of touch. */
async function also(names) {
  const troubles = [];
  await Promise.all(names.map(async (name) => {
    try {
      const answer = await ask(name);
      answers[name] = ALONE.has(name) ? answer[0] : answer;
    } catch (error) {
      troubles.push(`${name}: ${error.message}`);
    }
  }));
  return troubles;
}

function connected() {
  if (lost) by("lost").hidden = true;
  lost = null;
  heard = Date.now() / 1000;
  document.body.classList.remove("is-lost");
  const age = answers.about.now - (history.times[history.times.length - 1] ?? answers.about.now);
  by("contact").textContent = age > 5 ? `answers, but the recorder stands still for ${lasting(age)}` : `live, ${clock(answers.about.now - behind)}`;
}

function disconnected(error) {
  if (!lost) lost = heard ?? Date.now() / 1000;
  document.body.classList.add("is-lost");
  by("contact").textContent = "no contact";
  by("lost").hidden = false;
  const since = heard ? `What is shown is of ${clock(heard)}, and ${lasting(Date.now() / 1000 - heard)} old.` : "Nothing was heard so far.";
  by("lost").textContent = `No contact (${error.message}). ${since} It is tried again every second.`;
  if (answers.about) showHead();
}

async function look(turn) {
  const about = await ask("about");
  // Another process: it counts from the beginning.
  if (about.began !== began) {
    began = about.began;
    history.forget();
    for (const name of Object.keys(answers)) delete answers[name];
  }
  answers.about = about;
  behind = about.now - Date.now() / 1000;
  history.add(await ask(`history?since=${history.last}`), about.history);
  const often = [...OFTEN[about.role], ...(about.distribution ? ["distribution"] : [])];
  const seldom = turn % 5 === 0 || !answers.fib ? ["workers", "interfaces", "fib", "feeds"] : [];
  const troubles = await also([...often, ...seldom]);
  connected();
  by("router-trouble").hidden = troubles.length === 0;
  by("router-trouble").textContent = `Not answered: ${troubles.join("; ")}`;
  show();
}

async function main() {
  for (let turn = 0; ; turn += 1) {
    const next = Date.now() + 1000;
    try {
      await look(turn);
    } catch (error) {
      disconnected(error);
    }
    await new Promise((done) => setTimeout(done, Math.max(100, next - Date.now())));
  }
}

by("range").addEventListener("click", (event) => {
  const pressed = event.target.closest("button");
  if (!pressed) return;
  range = Number(pressed.dataset.seconds);
  for (const button of by("range").children) button.setAttribute("aria-pressed", String(button === pressed));
  drawPlots();
});
window.addEventListener("resize", drawPlots);
main();
