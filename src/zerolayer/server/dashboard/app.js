// The dashboard: asks the server once a second, while the page is seen, and shows what it says.

import { ApiError, get, setKey } from "./api.js";
import { Chart } from "./charts.js";
import { bytes, clock, count, microseconds, percent, seconds, tokens } from "./format.js";
import { Heat } from "./heat.js";
import { Strip } from "./strip.js";
import { showChoice, showEvents, showPolicies, showSessions, showTiles } from "./tables.js";

const POLL_MS = 1000;
const SLOW_POLLS = 15; // what changes rarely is asked every so many polls
const KEPT_EVENTS = 2000;
const GAP_S = 30; // after longer without a point (a hidden page, a server that was gone) the server's own record is asked again
const PATIENCE = 4; // a document's blocks are asked again after so many times what they took: a large one is slow

const byId = (id) => document.getElementById(id);
const select = byId("session");
const state = { polls: 0, events: [], last: 0, started: 0, filled: false, at: 0, totals: null, sessions: [], byHand: false, seen: "", next: 0, failed: new Map() };

const grade = (name) => ({ label: name, color: `--${name.toLowerCase()}`, value: (t) => t.grade_tokens[name] || 0 });
const tier = (name) => ({ label: name, color: `--${name}`, value: (t) => t.tier_bytes[name] || 0 });
const when = (condition, value) => (condition ? value : null);
const powersOfTwo = Array.from({ length: 50 }, (_, power) => 2 ** power);
const whole = Array.from({ length: 36 }, (_, index) => [1, 2, 5][index % 3] * 10 ** Math.floor(index / 3));
const wide = (plot, low, high) => [0, Math.max(1, high || 0) * 1.08];

const charts = [
  new Chart("tiers", [tier("device"), tier("host"), tier("disk")], { format: bytes, steps: powersOfTwo, stacked: true, label: "Bytes of KV by tier" }),
  new Chart("grades", ["P0", "P1", "P2", "P3"].map(grade), { format: tokens, axis: count, steps: whole, stacked: true, label: "Tokens by grade" }),
  new Chart("discarded", [
    { label: "this server", color: "--ours", value: (t) => t.discarded_tokens },
    { label: "static window", color: "--window", dash: [6, 4], value: (t) => t.window_cut_tokens },
  ], { format: tokens, axis: count, steps: whole, range: wide, label: "Tokens discarded by poor scheduling" }),
  new Chart("waste", [
    { label: "waste", color: "--waste", value: (t) => when(t.loads_used + t.wasted_loads, t.wasted_share) },
    { label: "coverage", color: "--ours", value: (t) => when(t.used_block_turns, t.coverage) },
    { label: "window's waste", color: "--waste", dash: [6, 4], value: (t) => when(t.window_loads, t.window_wasted_share) },
    { label: "window's coverage", color: "--ours", dash: [6, 4], value: (t) => when(t.used_block_turns, t.window_coverage) },
  ], { format: percent, range: () => [0, 1.04], label: "Waste and coverage" }),
  new Chart("latency", ["p50", "p95", "p99"].map((name, index) => ({
    label: name, color: ["--ours", "--waste", "--window"][index], dash: index ? [8 - 2 * index, 3] : undefined,
    value: (t) => when(t.p0_access_latency_us.count, t.p0_access_latency_us[name]),
  })), { format: microseconds, log: true, label: "P0 access latency" }),
];
const heat = new Heat();
const strip = new Strip();

// One request; a failure is kept by its path until that path answers again.
const ask = async (path, show, options) => {
  const name = path.split("?")[0];
  try {
    show(await get(path, options));
    state.failed.delete(name);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (!state.failed.has(name)) state.failed.set(name, { since: new Date(), error });
    else state.failed.get(name).error = error;
  }
};

const showErrors = () => {
  const all = [...state.failed.entries()];
  byId("key-form").hidden = !all.some(([, { error }]) => error.status === 401);
  const text = all.map(([name, { since, error }]) => `${name}: ${error.message} (since ${since.toLocaleTimeString("en-GB")})`).join("\n");
  const box = byId("errors");
  box.hidden = !text;
  if (box.textContent !== text) box.textContent = text;
  if (all.some(([name]) => name === "ready")) readiness("no answer", "bad");
};

const readiness = (text, kind) => {
  const chip = byId("ready");
  chip.textContent = text;
  chip.className = `chip ${kind}`;
};

const showReady = (ready) => readiness(ready.ready ? "ready" : `not ready: ${ready.reasons.join("; ")}`, ready.ready ? "idle" : "warn");

const showTotals = (totals) => {
  if (totals.started !== state.started) { // another server: its events count from 1 again
    state.started = totals.started;
    state.events = [];
    state.last = 0;
    state.filled = false;
  }
  showTiles(totals);
  const now = Date.now() / 1000;
  const passed = now - state.at; // not positive: this machine's clock was set back
  if (passed <= 0 || passed > GAP_S || charts[0].full) state.filled = false;
  state.at = now;
  state.totals = totals;
  charts.forEach((chart) => chart.add(now, totals));
  byId("footer").textContent = `Up for ${seconds(totals.uptime_s)}. Curves begin when the server started. Numbers as of ${clock(now)}.`;
};

// What came before, by this machine's clock, which need not agree with the server's.
const showHistory = ({ started, now, samples }) => {
  if (started !== state.started) return; // of another server already: asked again once its totals are here
  const here = Date.now() / 1000;
  const points = samples.map((sample) => [here - (now - sample.time), sample]);
  charts.forEach((chart) => chart.fill([...points, [here, state.totals]]));
  state.at = here;
  state.filled = true;
};

const showAllSessions = ({ sessions }) => {
  state.sessions = sessions;
  showChoice(select, sessions);
  // What somebody looks at is not taken away by the next question to another document.
  if (!state.byHand && !strip.box.matches(":hover")) select.value = (sessions.find((s) => s.state !== "stored") || sessions[0] || { id: "" }).id;
  showSessions(sessions, select.value);
};

const showNewEvents = ({ events, last }) => {
  state.last = last;
  if (events.length || !state.polls) {
    state.events = [...state.events, ...events].slice(-KEPT_EVENTS);
    showEvents(state.events);
  }
};

const showModel = ({ data }) => {
  const model = data[0];
  byId("about").textContent = model ? model.display_name || model.id : "";
};

// A session that is not there, or is stored, has no arena: nothing to ask, nothing to draw until it is used again.
const showNone = (id, title) => {
  ["v1/rtls/blocks", "v1/rtls/heat"].forEach((path) => state.failed.delete(path));
  heat.show(null, title);
  strip.show(id, title, []);
};

// Blocks and heat are large: they are asked again when what the session says of itself has changed.
const showChosen = async () => {
  const session = state.sessions.find((one) => one.id === select.value);
  if (!session) {
    showNone("", "");
    return;
  }
  const { id, turns, tier_tokens, grade_blocks, tokens_read, pin_blocks, state: now } = session;
  const seen = JSON.stringify([id, turns, tier_tokens, grade_blocks, tokens_read, pin_blocks, now]);
  if (seen === state.seen || (id === strip.session && Date.now() < state.next)) return;
  if (now === "stored") {
    showNone(id, session.title);
    state.seen = seen;
    return;
  }
  const query = `?session_id=${encodeURIComponent(id)}`;
  let complete = 0;
  const asked = Date.now();
  await Promise.all([
    ask(`v1/rtls/blocks${query}`, ({ blocks }) => { complete += 1; strip.show(id, session.title, blocks); }),
    ask(`v1/rtls/heat${query}`, (answer) => { complete += 1; heat.show(answer.heat, session.title); }),
  ]);
  if (complete === 2) state.seen = seen;
  state.next = Date.now() + PATIENCE * (Date.now() - asked);
};

const poll = async () => {
  const slow = state.polls % SLOW_POLLS === 0;
  await Promise.all([
    ask("v1/rtls/totals", showTotals),
    ask("v1/rtls/sessions", showAllSessions),
    ask("ready", showReady, { accept503: true }),
    slow ? ask("v1/rtls/policies", ({ policies }) => showPolicies(policies)) : null,
    slow ? ask("v1/models", showModel) : null,
  ]);
  await Promise.all([
    ask(`v1/rtls/events?since=${state.last}`, showNewEvents),
    state.totals && !state.filled ? ask("v1/rtls/history", showHistory) : null,
  ]);
  await showChosen();
  showErrors();
  state.polls += 1;
};

const run = async () => {
  try {
    if (!document.hidden) await poll();
  } catch (error) { // a defect of this page or an answer of another shape: said, and tried again
    state.failed.set("this page", { since: new Date(), error: new ApiError("", 0, error.message) });
    showErrors();
    console.error(error);
  }
  setTimeout(run, POLL_MS);
};

const setTheme = (choice) => {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  localStorage.setItem("zerolayer-theme", choice);
  document.querySelectorAll("[data-theme-choice]").forEach((button) => {
    button.setAttribute("aria-pressed", button.dataset.themeChoice === choice ? "true" : "false");
  });
  charts.forEach((chart) => chart.recolour());
};

document.querySelectorAll("[data-theme-choice]").forEach((button) => {
  button.addEventListener("click", () => setTheme(button.dataset.themeChoice));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.recolour()));
select.addEventListener("change", () => {
  state.byHand = true;
  showSessions(state.sessions, select.value);
  showChosen().then(showErrors);
});
["click", "keydown"].forEach((kind) => strip.box.addEventListener(kind, () => { state.byHand = true; }));
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(byId("key").value);
  state.polls = 0;
});

setTheme(localStorage.getItem("zerolayer-theme") || "auto");
run();
