// Drawing: elements, tables and plots. Text is put in as text and never as HTML.
import { clock, rough } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element; children are elements, or text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Puts rows into the body of a table: the first cell is the head of its row, one of
    [text, class] has that class; where there are none, `none` says so. */
export function fill(body, rows, none = "nothing") {
  const cell = (entry, at) => {
    const [what, style] = Array.isArray(entry) ? entry : [entry, ""];
    const attributes = at === 0 ? { scope: "row", class: "text" } : style ? { class: style } : {};
    return make(at === 0 ? "th" : "td", attributes, what);
  };
  const across = body.parentElement.querySelectorAll("thead th").length || 2;
  const empty = make("tr", {}, make("td", { class: "none", colspan: across }, none));
  body.replaceChildren(...(rows.length ? rows.map((row) => make("tr", {}, ...row.map(cell))) : [empty]));
}

/** A bar, for a part of a whole; the number stands beside it. */
export function bar(part, isFull) {
  const inner = make("span");
  inner.style.width = Math.min(100, Math.max(0, part * 100)) + "%";
  return make("span", { class: isFull ? "bar full" : "bar", "aria-hidden": "true" }, inner);
}

/** A number by its name, with some words below. */
export function tile(name, big, small = "") {
  return make("div", {}, make("dt", {}, name), make("dd", { class: "big" }, big), make("dd", { class: "small" }, small));
}

/** The next number above that is 1, 2 or 5 times a power of ten. */
function round(number) {
  if (number <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].find((times) => times * power >= number * 0.9999) * power;
}

/** A plot of lines over time, with a legend that has their last values, and a table. */
export class Plot {
  constructor(title, unit) {
    this.title = title;
    this.unit = unit;
    this.legend = make("ul", { class: "legend" });
    this.picture = svg("svg", { role: "img" });
    this.head = make("tr");
    this.body = make("tbody");
    this.details = make(
      "details",
      {},
      make("summary", {}, "as a table"),
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, this.head), this.body)),
    );
    this.figure = make("figure", {}, make("figcaption", {}, title), this.legend, this.picture, this.details);
  }

  /** Draws `lines` ({ name, values }) at `times`, from `from` to `to`, and the attacks. */
  draw({ times, lines, from, to, attacks }) {
    const first = times.findIndex((time) => time >= from);
    const begin = first < 0 ? times.length : first;
    const seen = times.slice(begin);
    const shown = lines.map((line) => ({ ...line, values: line.values.slice(begin) }));
    const keys = shown.map(({ name, values }, at) => {
      const key = svg("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" },
        svg("path", { class: `line line-${at + 1}`, d: "M0 4H26" }));
      return make("li", {}, key, `${name} ${rough(values[values.length - 1] ?? 0)}`);
    });
    this.legend.replaceChildren(...keys);
    this.paint(seen, shown, from, to, attacks);
    if (this.details.open) this.describe(seen, shown, from, to);
    const highest = shown.map(({ name, values }) => `${name} at most ${rough(values.reduce((a, b) => Math.max(a, b), 0))}`);
    this.picture.setAttribute("aria-label", `${this.title}, ${clock(from)} to ${clock(to)}: ${highest.join(", ")} ${this.unit}`);
  }

  paint(times, lines, from, to, attacks) {
    const width = Math.max(260, this.picture.clientWidth || 600);
    const [height, left, right, top, bottom] = [190, 52, 8, 18, 20];
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const most = lines.reduce((all, line) => line.values.reduce((a, b) => Math.max(a, b), all), 0);
    const step = round(Math.max(most, 1) / 4);
    const high = step * Math.max(1, Math.ceil(most / step - 0.0001));
    const x = (time) => left + ((time - from) / (to - from)) * (width - left - right);
    const y = (value) => height - bottom - (value / high) * (height - top - bottom);
    const parts = [];
    for (let value = 0; value <= high * 1.0001; value += step) {
      parts.push(svg("path", { class: value === 0 ? "axis" : "grid", d: `M${left} ${y(value)}H${width - right}` }));
      parts.push(svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, rough(value).replace(/\.0+(?!\d)|(\.\d*?[1-9])0+(?!\d)/, "$1")));
    }
    const marks = width < 420 ? 3 : 5;
    const minute = [5, 10, 15, 30, 60, 120, 180, 300, 600].find((size) => (to - from) / size <= marks) || 600;
    for (let time = Math.ceil(from / minute) * minute; time <= to; time += minute) {
      if (x(time) < left + 14 || x(time) > width - right - 20) continue;
      parts.push(svg("path", { class: "axis", d: `M${x(time)} ${height - bottom}v4` }));
      parts.push(svg("text", { x: x(time), y: height - 4, "text-anchor": "middle" }, clock(time, minute < 60)));
    }
    parts.push(...marked(attacks, from, to, x, top, height - bottom));
    lines.forEach((line, at) => {
      parts.push(svg("path", { class: `line line-${at + 1}`, d: path(times, line.values, x, y) }));
    });
    this.picture.replaceChildren(...parts);
  }

  /** The same in at most thirty rows, the newest first; each has the mean of its time. */
  describe(times, lines, from, to) {
    this.head.replaceChildren(...["until", ...lines.map((line) => line.name)].map((name) => make("th", { scope: "col" }, name)));
    const size = Math.ceil((to - from) / 30);
    const rows = new Map();
    times.forEach((time, at) => {
      const key = Math.floor((to - time) / size);
      if (!rows.has(key)) rows.set(key, { time, sums: lines.map(() => 0), many: 0 });
      const row = rows.get(key);
      lines.forEach((line, which) => (row.sums[which] += line.values[at]));
      row.many += 1;
      row.time = time;
    });
    const newest = [...rows.entries()].sort((a, b) => a[0] - b[0]).map((entry) => entry[1]);
    fill(this.body, newest.map(({ time, sums, many }) => [clock(time), ...sums.map((sum) => rough(sum / many))]));
  }
}

/** A line; of several values at one place the highest is drawn, so that none is hidden. */
function path(times, values, x, y) {
  let words = "";
  let last = null;
  let before = -Infinity;
  const flush = () => {
    if (last) words += `${last.begins ? "M" : "L"}${last.at} ${y(last.value).toFixed(1)}`;
  };
  times.forEach((time, index) => {
    const at = Math.round(x(time) * 2) / 2;
    const begins = time - before > 3.5;
    if (last && last.at === at && !begins) {
      last.value = Math.max(last.value, values[index]);
    } else {
      flush();
      last = { at, value: values[index], begins };
    }
    before = time;
  });
  flush();
  return words || "M0 0";
}

/** Where attacks began and ended: shaded, with lines and words. */
function marked(attacks, from, to, x, top, bottom) {
  const parts = [];
  for (const { began, ended } of attacks) {
    if ((ended ?? to) < from || began > to) continue;
    const [left, right] = [x(Math.max(began, from)), x(Math.min(ended ?? to, to))];
    parts.push(svg("rect", { class: "attack", x: left, y: top, width: Math.max(1, right - left), height: bottom - top }));
    const edge = (at, word, anchor) => {
      parts.push(svg("path", { class: "edge", d: `M${at} ${top - 4}V${bottom}` }));
      parts.push(svg("text", { class: "edge-text", x: at, y: top - 7, "text-anchor": anchor }, word));
    };
    const wide = right - left > 90;
    const late = left > x(to) - 70;
    if (began >= from) edge(left, wide || ended === null ? "attack ▸" : "attack", late ? "end" : "start");
    if (ended !== null && ended <= to) edge(right, wide ? "◂ ended" : "", "end");
  }
  return parts;
}
