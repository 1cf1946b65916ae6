// One session's document as a ribbon of blocks: grade as colour and digit, tier as the height of the bar below.

import { clock, bytes, count, digits, el, nanoseconds, NONE, short } from "./format.js";

const TIERS = { device: "device", host: "host", disk: "disk", none: "not computed yet" };
const GRADES = { P0: "must stay on the device", P1: "prefer the device", P2: "compressed in host memory", P3: "cold" };

export class Strip {
  constructor() {
    this.box = document.getElementById("strip");
    this.detail = document.getElementById("block");
    this.about = document.getElementById("strip-about");
    this.session = "";
    this.blocks = [];
    this.cells = [];
    this.chosen = -1; // kept until another is chosen
    this.shown = -1; // the one in the detail: pointed at, else chosen
    this.box.addEventListener("pointerover", (event) => this.over(event));
    this.box.addEventListener("pointerleave", () => this.showDetail(this.chosen));
    this.box.addEventListener("click", (event) => this.choose(this.indexOf(event.target)));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("focus", () => { if (this.chosen < 0 && this.blocks.length) this.choose(0); });
    this.writeLegend();
  }

  writeLegend() {
    const grades = Object.entries(GRADES).map(([grade, text]) => el("div", {},
      el("dt", {}, el("span", { class: `cell ${grade}` }, grade[1]), `${grade}: ${text}`)));
    const tiers = Object.entries(TIERS).map(([tier, text]) => el("div", {},
      el("dt", {}, el("span", { class: `cell tier-${tier}` }), `bar: ${text}`)));
    const marks = [["pinned", "ring: pinned"], ["sight", "line above: in sight of the answer"]].map(([mark, text]) => el("div", {},
      el("dt", {}, el("span", { class: `cell ${mark}` }), text)));
    document.getElementById("strip-legend").append(...grades, ...tiers, ...marks);
  }

  show(session, title, blocks) {
    const same = session === this.session && blocks.length === this.blocks.length;
    if (session !== this.session || this.chosen >= blocks.length) this.chosen = -1; // a conversation only grows
    this.session = session;
    this.blocks = blocks;
    if (!same) this.build();
    blocks.forEach((block, index) => this.paint(this.cells[index], block, index === this.chosen));
    const pages = new Set(blocks.map((block) => block.page).filter((page) => page > 0)).size;
    this.about.textContent = blocks.length
      ? `${title}: ${count(blocks.length)} blocks of up to ${count(Math.max(...blocks.map((b) => b.tokens)))} tokens, ${count(pages)} pages`
      : title ? `${title} has no blocks to show: it is stored, not live` : "No session yet: ask the server something.";
    if (!same) this.showDetail(this.chosen);
    else if (this.shown >= 0) this.refresh();
  }

  build() {
    if (this.chosen < 0) this.box.removeAttribute("aria-activedescendant");
    const parts = [];
    let label = "";
    this.cells = this.blocks.map((block, index) => {
      const place = block.page > 0 ? `p. ${block.page}` : block.part;
      if (place !== label) {
        parts.push(el("span", { class: "page", "aria-hidden": "true" }, place));
        label = place;
      }
      const cell = el("span", { id: `block-${index}`, role: "option", "data-index": index });
      parts.push(cell);
      return cell;
    });
    this.box.replaceChildren(...parts);
  }

  paint(cell, block, chosen) {
    const name = ["cell", block.grade, `tier-${block.tier}`, block.pinned && "pinned", block.in_sight && "sight", chosen && "chosen"].filter(Boolean).join(" ");
    if (cell.className !== name) {
      cell.className = name;
      cell.textContent = block.grade[1];
      cell.setAttribute("aria-selected", chosen ? "true" : "false");
      const page = block.page > 0 ? `page ${block.page}, ` : "";
      cell.setAttribute("aria-label", `Block ${block.index}, ${page}${block.grade}, ${TIERS[block.tier] || block.tier}${block.pinned ? ", pinned" : ""}`);
    }
  }

  indexOf(target) {
    const index = target instanceof Element ? target.closest("[data-index]")?.dataset.index : undefined;
    return index === undefined ? -1 : Number(index);
  }

  over(event) {
    const index = this.indexOf(event.target);
    if (index >= 0) this.showDetail(index);
  }

  choose(index) {
    if (index < 0 || index >= this.blocks.length) return;
    const before = this.chosen;
    this.chosen = index;
    if (before >= 0) this.paint(this.cells[before], this.blocks[before], false);
    this.paint(this.cells[index], this.blocks[index], true);
    this.box.setAttribute("aria-activedescendant", `block-${index}`);
    this.cells[index].scrollIntoView({ block: "nearest" });
    this.showDetail(index);
  }

  key(event) {
    const at = Math.max(0, this.chosen);
    const moves = {
      ArrowRight: () => at + 1,
      ArrowLeft: () => at - 1,
      ArrowDown: () => this.beside(at, 1),
      ArrowUp: () => this.beside(at, -1),
      PageDown: () => this.page(at, 1),
      PageUp: () => this.page(at, -1),
      Home: () => 0,
      End: () => this.blocks.length - 1,
    };
    const move = moves[event.key];
    if (!move || !this.blocks.length) return;
    event.preventDefault();
    this.choose(Math.min(this.blocks.length - 1, Math.max(0, move())));
  }

  // The nearest block of the line above or below.
  beside(at, step) {
    const from = this.cells[at];
    let line = null;
    let best = at;
    for (let index = at + step; index >= 0 && index < this.cells.length; index += step) {
      const cell = this.cells[index];
      if (cell.offsetTop === from.offsetTop) continue;
      line = line === null ? cell.offsetTop : line;
      if (cell.offsetTop !== line) break;
      if (best === at || Math.abs(cell.offsetLeft - from.offsetLeft) < Math.abs(this.cells[best].offsetLeft - from.offsetLeft)) best = index;
    }
    return best;
  }

  page(at, step) {
    const page = this.blocks[at].page;
    let index = at;
    while (index + step >= 0 && index + step < this.blocks.length && this.blocks[index].page === page) index += step;
    return index;
  }

  // The same block again, only if what is told of it has changed: a reader is not interrupted for nothing.
  refresh() {
    const told = JSON.stringify(this.blocks[this.shown]);
    if (told !== this.told) this.showDetail(this.shown);
  }

  showDetail(index) {
    this.shown = index;
    const block = this.blocks[index];
    if (!block) {
      this.detail.replaceChildren(el("p", { class: "note" }, "Point at a block, or move to the strip with the keyboard."));
      return;
    }
    this.told = JSON.stringify(block);
    const pages = block.page_last > block.page ? `pages ${block.page} to ${block.page_last}` : block.page > 0 ? `page ${block.page}` : block.part;
    const facts = [
      ["Grade", `${block.grade}${block.pinned ? ", pinned" : ""}`],
      ["Why", block.why || NONE],
      ["Tier", `${TIERS[block.tier] || block.tier}${block.slot === null ? "" : `, slot ${block.slot}`}${block.in_sight ? ", in sight" : ""}`],
      ["Persistence", block.persistence === null ? NONE : `${digits(block.persistence)} (probability of use within 10 turns)`],
      ["Attention", `${digits(block.attention)} (decayed share)`],
      ["Used", block.use_count ? `in ${count(block.use_count)} turns, last in turn ${count(block.last_used_turn)}` : "never"],
      ["Place", `characters ${count(block.char_start)} to ${count(block.char_end)}, ${count(block.tokens)} tokens`],
      ["Id", short(block.id)],
    ];
    this.detail.replaceChildren(
      el("h3", {}, `Block ${count(block.index)}, ${pages}`, block.document ? el("small", {}, ` of ${block.document}`) : null),
      el("blockquote", {}, block.text.trim() || "(no text of the document)"),
      el("dl", { class: "facts" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
      this.history(block.history),
    );
  }

  history(entries) {
    if (!entries.length) return el("p", { class: "note" }, "No instruction has moved it yet.");
    const rows = entries.slice().reverse().map((entry) => el("li", {},
      el("time", {}, clock(entry.time)), ` turn ${count(entry.turn)}: `, el("code", {}, entry.text),
      ` ${entry.outcome}, ${bytes(entry.nbytes)}, ${nanoseconds(entry.ns)}${entry.reason ? ` (${entry.reason})` : ""}`));
    return el("div", {}, el("h4", {}, "Last instructions, the latest first"), el("ol", { class: "plain events" }, ...rows));
  }
}
