// Tiles, sessions, policies and events: what is not a curve.

import { ago, bytes, clock, count, el, microseconds, named, NONE, percent, seconds, short, tokens, until } from "./format.js";

const GRADES = ["P0", "P1", "P2", "P3"];
const MOST_EVENTS = 60;
const MOST_FALLBACKS = 8;

const tile = (name, value, note, bad = false) =>
  el("div", { class: bad ? "bad" : null }, el("dt", {}, name), el("dd", {}, value), el("dd", { class: "note" }, note));

export const showTiles = (totals) => {
  const loads = totals.loads_used + totals.wasted_loads;
  const latency = totals.p0_access_latency_us;
  const failed = totals.requests.failed || 0;
  const cached = totals.cache_read_input_tokens;
  const input = totals.input_tokens + totals.cache_creation_input_tokens + cached;
  document.getElementById("now").replaceChildren(
    tile("Discarded", tokens(totals.discarded_tokens), `the static window: ${tokens(totals.window_cut_tokens)} (simulated)`, totals.discarded_tokens > 0),
    tile("Wasted loads", loads ? percent(totals.wasted_share) : NONE, loads
      ? `of ${count(loads)} loads; the window: ${percent(totals.window_wasted_share)} (simulated)` : "no block was loaded yet"),
    tile("Coverage", totals.used_block_turns ? percent(totals.coverage) : NONE, totals.used_block_turns
      ? `of used blocks were there; the window: ${percent(totals.window_coverage)} (simulated)` : "no block was used yet"),
    tile("P0 access", latency.count ? microseconds(latency.p50) : NONE, latency.count
      ? `p50; p95 ${microseconds(latency.p95)}, p99 ${microseconds(latency.p99)}` : "no P0 block was asked for yet"),
    tile("First token", totals.ttft_s.count ? seconds(totals.ttft_s.p50) : NONE, totals.ttft_s.count
      ? `p50; p95 ${seconds(totals.ttft_s.p95)}; then ${seconds(totals.decode_s_per_token)} a token` : "no answer yet"),
    tile("Input read back", input ? percent(cached / input) : NONE, `${tokens(cached)} of ${tokens(input)}, ${tokens(totals.recomputed_tokens)} recomputed`),
    tile("Turns", `${count(totals.turns)} turns`, `${count(totals.running)} running, ${count(totals.queue_length)} waiting, ${count(failed)} failed`, failed > 0),
    tile("Device memory", bytes(totals.device_bytes), `of a budget of ${bytes(totals.device_budget_bytes)}; ${count(totals.sessions_live)} live, ${count(totals.sessions_parked)} parked sessions`),
  );
};

export const showSessions = (sessions, chosen) => {
  const body = document.querySelector("#sessions tbody");
  if (!sessions.length) {
    body.replaceChildren(el("tr", {}, el("td", { colspan: 13, class: "note" }, "No session yet: ask the server something.")));
    return;
  }
  body.replaceChildren(...sessions.map((session) => {
    const tier = session.tier_tokens;
    const grade = session.grade_blocks;
    const pins = session.pins.map((pin) => `${pin.grade} “${pin.text}”`).join(", ");
    const number = (value) => el("td", { class: "n" }, count(value));
    return el("tr", { class: session.id === chosen ? "chosen" : null },
      el("th", { scope: "row", title: session.id }, session.title || NONE, el("small", {}, ` ${short(session.id)}`)),
      el("td", {}, el("span", { class: `chip ${session.state}` }, session.state)),
      el("td", {}, session.policy || NONE),
      number(session.document_tokens), number(session.conversation_tokens),
      number(tier.device || 0), number(tier.host || 0), number(tier.disk || 0),
      el("td", { class: "nowrap" }, GRADES.map((name) => count(grade[name] || 0)).join(" · ")),
      number(session.turns),
      el("td", { class: "n", title: pins || null }, `${count(session.pin_blocks)} of ${count(session.pin_blocks_most)}`),
      el("td", { class: "nowrap" }, ago(session.last_used)),
      el("td", { class: "nowrap" }, session.expires ? until(session.expires) : session.pin_blocks ? "its end" : NONE));
  }));
};

// The choice of one session, by hand; until then the latest used live one.
export const showChoice = (select, sessions) => {
  const options = sessions.map((session) => `${session.id} ${session.title} ${session.state}`).join("\n");
  if (select.dataset.options === options) return;
  const before = select.value;
  select.dataset.options = options;
  select.replaceChildren(...sessions.map((session) => el("option", { value: session.id }, `${session.title || "no document"} (${short(session.id)}, ${session.state})`)));
  if (sessions.some((session) => session.id === before)) select.value = before;
};

export const showPolicies = (policies) => {
  document.getElementById("policies").replaceChildren(...policies.map((policy) => el("li", {},
    el("strong", {}, policy.name), ` ${policy.kind} `, policy.default ? el("span", { class: "chip" }, "default") : null,
    policy.sessions ? `, ${count(policy.sessions)} live sessions` : "", el("br"), el("span", { class: "note" }, policy.about))));
};

const numbers = (values) => Object.entries(values).map(([name, value]) => named(name, value)).join(", ");

const TOLD = ["turn", "pin", "read"]; // kinds whose text has their numbers already

const eventLine = (event) => el("li", {},
  el("time", {}, clock(event.time)), " ", el("span", { class: `chip ${event.kind}` }, event.kind), " ", event.text,
  el("small", {}, event.session ? ` ${short(event.session)}` : "", TOLD.includes(event.kind) ? "" : ` ${numbers(event.numbers)}`));

export const showEvents = (events) => {
  const latest = events.slice(-MOST_EVENTS).reverse();
  const fallbacks = events.filter((event) => event.kind === "fallback").slice(-MOST_FALLBACKS).reverse();
  document.getElementById("events").replaceChildren(...(latest.length ? latest.map(eventLine) : [el("li", { class: "note" }, "Nothing has happened yet.")]));
  document.getElementById("fallbacks").replaceChildren(...(fallbacks.length ? fallbacks.map(eventLine) : [el("li", { class: "note" }, "None since the server started.")]));
};
