// Numbers with their units, as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];

export const NONE = "–";

export const known = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (known(value) ? whole.format(value) : NONE);

export const tokens = (value) => (known(value) ? `${whole.format(value)} tokens` : NONE);

export const bytes = (value) => {
  if (!known(value)) return NONE;
  let step = 0;
  let size = value;
  while (size >= 1024 && step < BYTES.length - 1) { size /= 1024; step += 1; }
  return `${step && size < 100 ? size.toFixed(1) : whole.format(size)} ${BYTES[step]}`;
};

export const percent = (share) => {
  if (!known(share)) return NONE;
  const value = 100 * share;
  return `${value > 0 && value < 10 ? value.toFixed(1) : value.toFixed(value < 100 && value > 99 ? 1 : 0)} %`;
};

export const digits = (value) => {
  if (!known(value)) return NONE;
  if (value !== 0 && value < 0.01) return value.toExponential(1);
  return value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : whole.format(value);
};


export const seconds = (value) => {
  if (!known(value)) return NONE;
  if (value > 0 && value < 1) return `${digits(1000 * value)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 0)} s`;
  if (value < 7200) return `${whole.format(value / 60)} min`;
  if (value < 172800) return `${whole.format(value / 3600)} h`;
  return `${whole.format(value / 86400)} days`;
};

export const microseconds = (value) => (known(value) && value >= 1000 ? seconds(value / 1e6) : known(value) ? `${digits(value)} µs` : NONE);

export const nanoseconds = (value) => (!known(value) ? NONE : value < 1000 ? `${whole.format(value)} ns` : microseconds(value / 1000));

// A number whose name ends in its unit, such as ttft_s or input_tokens: [name, number with its unit].
const UNITS = [
  [/_us$/, microseconds], [/^seconds$/, seconds], [/_ns$/, nanoseconds], [/_ms$/, (value) => seconds(value / 1000)], [/_s$/, seconds],
  [/_?bytes$/, bytes], [/_pct$/, (value) => percent(value / 100)], [/_share$/, percent],
  [/_?(tokens|blocks|loads|turns|pages)$/, (value, unit) => `${count(value)} ${unit}`],
];

export const named = (name, value) => {
  for (const [pattern, format] of UNITS) {
    const match = name.match(pattern);
    if (match) return `${name.replace(pattern, "").replaceAll("_", " ")} ${format(value, match[1])}`.trim();
  }
  return `${name.replaceAll("_", " ")} ${Number.isInteger(value) ? count(value) : digits(value)}`;
};

export const clock = (moment) => (known(moment) && moment > 0 ? new Date(1000 * moment).toLocaleTimeString("en-GB") : NONE);

// Seconds between two moments, for people: whole numbers.
const span = (value) => (value < 120 ? `${whole.format(value)} s` : seconds(value));

export const ago = (moment, now = Date.now() / 1000) => (known(moment) && moment > 0 ? `${span(Math.max(0, now - moment))} ago` : NONE);

export const until = (moment, now = Date.now() / 1000) => {
  if (!known(moment)) return NONE;
  return moment > now ? `in ${span(Math.max(1, moment - now))}` : "over";
};

export const short = (id) => (id || "").slice(0, 12);

// One element with text and attributes: text is never markup.
export const el = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};
