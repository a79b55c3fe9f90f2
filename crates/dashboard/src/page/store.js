// The store: what the server has said, and what of the history is here already.

/** Asks for one thing; an error if there is no answer within three seconds. */
export async function ask(path) {
  const answer = await fetch("/api/" + path, { cache: "no-store", signal: AbortSignal.timeout(3000) });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

/** The history: of each column a list of rates or levels, as long as the list of times. */
export class History {
  constructor() {
    this.forget();
  }

  forget() {
    this.last = 0;
    this.times = [];
    this.lengths = [];
    this.columns = new Map();
  }

  /** Takes rows that are not here yet, and lets go of those beyond so many. */
  add({ columns, rows }, most) {
    for (const name of columns) {
      if (!this.columns.has(name)) this.columns.set(name, new Array(this.times.length).fill(0));
    }
    const fresh = rows.filter((row) => row[0] > this.last);
    for (const [number, time, seconds, values] of fresh) {
      this.last = number;
      this.times.push(time);
      this.lengths.push(seconds);
      const here = new Map(columns.map((name, at) => [name, values[at]]));
      for (const [name, list] of this.columns) list.push(here.get(name) || 0);
    }
    const over = this.times.length - most;
    if (over > 0) {
      for (const list of [this.times, this.lengths, ...this.columns.values()]) list.splice(0, over);
    }
  }

  /** What a column has, second by second. */
  levels(name) {
    return this.columns.get(name) || new Array(this.times.length).fill(0);
  }

  /** How much was added to a counter, a second. */
  rates(name, by = 1) {
    return this.levels(name).map((value, at) => (value * by) / Math.max(this.lengths[at], 0.1));
  }

  /** The rate of the last five seconds: one alone is nervous. */
  rate(name, by = 1) {
    const last = this.rates(name, by).slice(-5);
    return last.length ? last.reduce((sum, value) => sum + value, 0) / last.length : 0;
  }

  /** The names of the columns that begin so, those with the most first. */
  most(begin) {
    const sum = (name) => this.levels(name).reduce((all, value) => all + value, 0);
    const names = [...this.columns.keys()].filter((name) => name.startsWith(begin));
    const sums = names.map((name) => [name, sum(name)]).filter((entry) => entry[1] > 0);
    return sums.sort((a, b) => b[1] - a[1]).map((entry) => entry[0]);
  }
}
