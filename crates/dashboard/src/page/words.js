// Words: numbers, times and reasons as people read them. Nothing here touches the page.
// The server makes verdicts.js from the table of verdicts.

import { VERDICTS } from "./verdicts.js";

const THIN = "\u202f";

/** An exact number, its digits in threes. */
export function count(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

/** Three digits of a number, with a prefix of the SI: 1.23 k. */
export function rough(number, unit = "") {
  if (!Number.isFinite(number)) return "–";
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let at = 0;
  let value = Math.abs(number);
  while (value >= 999.5 && at < prefixes.length - 1) {
    value /= 1000;
    at += 1;
  }
  const digits = value >= 99.95 || (at === 0 && Number.isInteger(value)) ? 0 : value >= 9.995 ? 1 : 2;
  const sign = number < 0 ? "-" : "";
  const after = prefixes[at] + unit;
  return sign + value.toFixed(digits) + (after ? THIN + after : "");
}

/** A part of a whole in percent. */
export function percent(part) {
  if (!Number.isFinite(part)) return "–";
  const value = part * 100;
  return (value >= 9.95 || value === 0 ? value.toFixed(0) : value.toFixed(value >= 0.1 ? 1 : 2)) + THIN + "%";
}

const two = (number) => String(number).padStart(2, "0");

/** A time of day, from seconds since 1970. */
export function clock(unix, seconds = true) {
  const date = new Date(unix * 1000);
  const day = two(date.getHours()) + ":" + two(date.getMinutes());
  return seconds ? day + ":" + two(date.getSeconds()) : day;
}

/** A time of day, with the date where that is not today's. */
export function moment(unix) {
  const date = new Date(unix * 1000);
  const today = date.toDateString() === new Date().toDateString();
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return today ? clock(unix) : `${day} ${clock(unix)}`;
}

/** How long something took. */
export function lasting(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return whole + THIN + "s";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let left = whole;
  const words = [];
  for (const [size, name] of parts) {
    const many = Math.floor(left / size);
    left -= many * size;
    if (many > 0) words.push(many + THIN + name);
  }
  return words.slice(0, 2).join(" ");
}

/** The explanation of a verdict. */
export function reason(name) {
  return VERDICTS[name] || name.replace(/_/g, " ");
}
