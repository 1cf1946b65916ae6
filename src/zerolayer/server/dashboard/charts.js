// Curves over time, with a legend of the latest or the pointed-at values. uPlot draws; this keeps the points.

import { el, known, percent } from "./format.js";

const KEPT = 3600; // points, at one a second: an hour beside what came before
const DAY = 86400;
const HEIGHT = 190; // CSS pixels

// Times of an axis: where its marks are days, or one is a midnight, the day.
const moments = (plot, marks, axis, space, step) => marks.map((mark) => {
  const moment = new Date(1000 * mark);
  const day = step >= DAY || moment.getHours() + moment.getMinutes() + moment.getSeconds() === 0;
  return day ? moment.toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : moment.toLocaleTimeString("en-GB");
});

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  // series: [{label, color (a CSS variable), dash, value(totals)}]; format: a number with its unit; steps: of the axis
  constructor(name, series, { format, axis = format, stacked = false, log = false, range = null, steps, label }) {
    this.series = series;
    this.format = format;
    this.stacked = stacked;
    this.log = log;
    this.label = label;
    this.box = document.getElementById(`chart-${name}`);
    this.legend = document.getElementById(`legend-${name}`);
    this.times = [];
    this.values = series.map(() => []);
    this.shown = null;
    this.box.setAttribute("role", "img");
    this.plot = new uPlot(this.options(axis, range, steps), this.data(), this.box);
    new ResizeObserver(() => this.plot.setSize({ width: this.width(), height: HEIGHT })).observe(this.box);
    this.write();
  }

  width() {
    return Math.max(120, this.box.clientWidth);
  }

  options(axis, range, steps) {
    const grid = { stroke: () => css("--grid"), width: 1 };
    const common = { stroke: () => css("--quiet"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
    // Stacked areas are drawn from the top of the stack down, so each covers what lies below it.
    const order = this.order();
    return {
      width: this.width(),
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { y: this.log ? { distr: 3 } : { range: range || ((plot, low, high) => [0, high > 0 ? high * 1.08 : 1]) } },
      axes: [
        { ...common, space: 70, values: moments },
        { ...common, size: 74, incrs: steps, values: (plot, marks) => marks.map((v) => (v === null ? "" : axis(v))) },
      ],
      series: [{}, ...order.map((index) => this.line(this.series[index]))],
      hooks: { setCursor: [(plot) => this.point(plot.cursor.idx)] },
    };
  }

  line({ label, color, dash }) {
    const stroke = () => css(color);
    const fill = this.stacked ? () => css(color) : undefined;
    return { label, stroke, fill, width: this.stacked ? 1 : 2, dash, points: { show: false }, spanGaps: false };
  }

  order() {
    const indices = this.series.map((_, index) => index);
    return this.stacked ? indices.reverse() : indices;
  }

  get full() {
    return this.times.length >= KEPT;
  }

  // points: [[time, totals]], oldest first, instead of all that there are
  fill(points) {
    this.times = [];
    this.values = this.series.map(() => []);
    points.forEach(([time, totals]) => this.push(time, totals));
    this.draw();
  }

  add(time, totals) {
    this.push(time, totals);
    this.draw();
  }

  push(time, totals) {
    this.times.push(time);
    this.series.forEach(({ value }, index) => {
      const number = value(totals);
      this.values[index].push(known(number) && (number > 0 || !this.log) ? number : null); // a logarithm has no zero
    });
    if (this.times.length > KEPT) {
      this.times.shift();
      this.values.forEach((row) => row.shift());
    }
  }

  draw() {
    this.plot.setData(this.data());
    this.write();
  }

  data() {
    if (!this.stacked) return [this.times, ...this.values];
    const sums = this.times.map(() => 0);
    const layers = this.values.map((row) => row.map((value, place) => (sums[place] += value || 0)));
    return [this.times, ...layers.reverse()];
  }

  point(index) {
    this.shown = index === null || index === undefined ? null : index;
    this.write();
  }

  write() {
    const place = this.shown !== null && this.shown < this.times.length ? this.shown : this.times.length - 1;
    const sum = this.values.reduce((total, row) => total + (row[place] || 0), 0);
    const text = (value) => (this.stacked && known(value) && sum ? `${this.format(value)}, ${percent(value / sum)}` : this.format(value));
    const texts = this.values.map((row) => text(place < 0 ? null : row[place]));
    if (!this.legend.children.length) {
      this.legend.append(...this.series.map(({ label, color, dash }) => el("div", {},
        el("dt", {}, el("span", { class: dash ? "swatch dashed" : "swatch", "data-color": color }), label), el("dd", {}))));
      this.legend.querySelectorAll(".swatch").forEach((node) => node.style.setProperty("--swatch", `var(${node.dataset.color})`));
    }
    this.legend.querySelectorAll("dd").forEach((node, index) => { node.textContent = texts[index]; });
    const latest = this.series.map(({ label }, index) => `${label} ${this.format(this.values[index].at(-1))}`);
    this.box.setAttribute("aria-label", `${this.label}. Latest: ${latest.join(", ")}`);
  }

  recolour() {
    this.plot.redraw(false, true);
  }
}
