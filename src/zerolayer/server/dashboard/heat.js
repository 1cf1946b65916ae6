// The heat map of a session's device memory: one pixel a cell, a power of ten of heat between two shades.

import { bytes, count, digits } from "./format.js";

const DECADES = 4;
// From cold to hot; lightness rises steadily, so it reads without colour too (as matplotlib's inferno).
const STOPS = [[12, 8, 38], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]];
const EMPTY = [0, 0, 0, 0];

const shade = (share) => {
  const place = Math.min(0.9999, Math.max(0, share)) * (STOPS.length - 1);
  const low = STOPS[Math.floor(place)];
  const high = STOPS[Math.floor(place) + 1];
  return [...low.map((value, index) => Math.round(value + (high[index] - value) * (place % 1))), 255];
};

const level = (value, hottest) => 1 + Math.log10(value / hottest) / DECADES;

export class Heat {
  constructor() {
    this.canvas = document.getElementById("heat-map");
    this.about = document.getElementById("heat-about");
    this.note = document.getElementById("heat-note");
    this.view = null;
    const scale = document.getElementById("heat-scale");
    const pen = scale.getContext("2d");
    for (let x = 0; x < scale.width; x += 1) {
      pen.fillStyle = `rgb(${shade(x / scale.width).slice(0, 3).join(" ")})`;
      pen.fillRect(x, 0, 1, scale.height);
    }
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.rest());
  }

  show(view, title) {
    this.view = view;
    this.canvas.hidden = !view;
    if (!view) {
      this.about.textContent = title ? `${title} has no heat yet: it gets some with its next answer` : "No session yet";
      this.note.textContent = "";
      return;
    }
    const { side, cells, hottest } = view;
    this.canvas.width = side;
    this.canvas.height = side;
    const pen = this.canvas.getContext("2d");
    const image = pen.createImageData(side, side);
    cells.forEach((row, y) => row.forEach((value, x) => {
      image.data.set(value > 0 && hottest > 0 ? shade(level(value, hottest)) : EMPTY, 4 * (y * side + x));
    }));
    pen.putImageData(image, 0, 0);
    this.about.textContent = `${title}: ${bytes(view.nbytes)} in ${side} × ${side} cells, turn ${count(view.turn)}`;
    this.canvas.setAttribute("aria-label",
      `Heat map of ${title}: ${bytes(view.nbytes)} of device memory, hottest cell ${digits(hottest)} accesses`);
    this.rest();
  }

  rest() {
    this.note.textContent = this.view ? `Addresses rise along the rows. Hottest cell: ${digits(this.view.hottest)} accesses` : "";
  }

  point(event) {
    if (!this.view) return;
    const { side, cells, nbytes } = this.view;
    const box = this.canvas.getBoundingClientRect();
    const x = Math.min(side - 1, Math.max(0, Math.floor((side * (event.clientX - box.left)) / box.width)));
    const y = Math.min(side - 1, Math.max(0, Math.floor((side * (event.clientY - box.top)) / box.height)));
    const address = Math.floor(((y * side + x) * nbytes) / (side * side));
    this.note.textContent = `Address 0x${address.toString(16)}: ${digits(cells[y][x])} accesses`;
  }
}
