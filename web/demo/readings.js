// What a run showed: the bars of the devices, the largest error as number, map and list, the corner of the result and its download.
// Draws what Python measured; measures nothing itself.

/** @import { Engine } from "./engine.js" */
/** @import { Errors, Lane, Picture, RunAnswer } from "./types.js" */

import { dataOf, element, factOf, setText, tableRow } from "./elements.js";
import { count, duration, number, range, superscript, UNIT_ROUNDOFF } from "./format.js";
import { drawErrors, drawLegend, drawMatrix } from "./picture.js";

const NAMES = { gpu: "GPU", cpu: "CPU", numpy: "NumPy" };
const ORDER = /** @type {const} */ (["gpu", "cpu", "numpy"]);

export class Readings {
  /** @param {Engine} engine */
  constructor(engine) {
    this.engine = engine;
    this.section = element("readings", HTMLElement);
    this.link = element("to-readings", HTMLAnchorElement);
    this.map = element("error-map", HTMLCanvasElement);
    this.figure = element("picture-d", HTMLElement);
    this.figure.prepend(element("picture-template", HTMLTemplateElement).content.cloneNode(true));
    this.canvas = /** @type {HTMLCanvasElement} */ (this.figure.querySelector("canvas"));
    /** @type {Map<Lane["lane"], Lane>} */
    this.lanes = new Map();
    /** @type {Picture | null} */
    this.picture = null;
    /** @type {Errors | null} */
    this.errors = null;
    element("download", HTMLButtonElement).addEventListener("click", () => void this.download());
    this.map.addEventListener("pointermove", (event) => this.#point(event));
    this.map.addEventListener("pointerleave", () => setText(element("map-readout", HTMLElement), ""));
    this.clear();
  }

  /** Forgets the last run: its inputs are no longer what the page shows. */
  clear() {
    this.section.hidden = true;
    this.link.hidden = true;
    this.section.classList.remove("complete");
    this.figure.classList.remove("drawn");
    this.picture = this.errors = null;
    this.canvas.setAttribute("aria-label", "Picture of D: not there yet");
  }

  /** A run begins: the bars appear one by one. */
  begin() {
    this.clear();
    this.lanes.clear();
    this.section.hidden = false;
    setText(element("ran", HTMLElement), "");
    setText(element("speed-note", HTMLElement), "");
    this.#drawLanes();
  }

  /** The run gave no product; what was measured stays. */
  fail() {
    this.section.hidden = ![...this.lanes.values()].some((lane) => lane.state === "done");
    this.#drawLanes(undefined, "–");
  }

  /** @param {Lane} lane */
  showLane(lane) {
    this.lanes.set(lane.lane, lane);
    this.#drawLanes();
  }

  /** @param {RunAnswer} answer */
  show(answer) {
    for (const lane of answer.lanes) {
      this.lanes.set(lane.lane, lane);
    }
    this.#drawLanes(answer.chosen);
    this.#sayWhatRan(answer);
    const { rows, columns, type, note } = answer.summary;
    this.picture = answer.picture;
    this.figure.classList.add("drawn");
    this.section.classList.add("complete");
    this.link.hidden = false;
    const text = `${count(rows)} × ${count(columns)} ${type}`;
    this.canvas.setAttribute("aria-label", `Picture of D: ${text}`);
    setText(element("result-summary", HTMLElement), `D is ${text}${note ? `. ${note}` : ""}`);
    setText(element("download-note", HTMLElement), type === "bfloat16" ? "Saved as float32, which holds every bfloat16: .npy has no name for bfloat16." : "");
    this.#drawCorner(answer.corner);
    this.showErrors(answer.errors, "D");
    drawMatrix(this.canvas, answer.picture);
  }

  /** @param {RunAnswer} answer */
  #sayWhatRan({ chosen, asked, mode, lanes, summary }) {
    const lane = lanes.find((each) => each.lane === chosen);
    const why = asked === "best" ? ", py_gemm’s choice for this size" : "";
    const what = [lane?.adapter, lane?.variant && `variant ${lane.variant}`, `${mode} mode`].filter(Boolean).join(", ");
    const rounded = mode === "exact" ? ` Every element is correctly rounded: the exact value, rounded once to ${summary.type}.` : "";
    setText(element("ran", HTMLElement), `D comes from the ${NAMES[chosen]}${why}: ${what}.${rounded}`);
    const notes = ["GPU times include upload and read-back."];
    const gpu = lanes.find((each) => each.lane === "gpu");
    if (gpu?.gpu_seconds) {
      notes.push(`On the device alone the product took ${duration(gpu.gpu_seconds)}.`);
    }
    if (gpu?.first && gpu.seconds && gpu.first > 2 * gpu.seconds) {
      notes.push(`The GPU's first call, which compiles the kernel, took ${duration(gpu.first)}.`);
    }
    const samples = Math.max(...lanes.map((each) => each.samples ?? 0));
    notes.push(samples > 1 ? `Medians of up to ${samples} samples.` : "One sample each.");
    setText(element("speed-note", HTMLElement), notes.join(" "));
  }

  /**
   * @param {"gpu" | "cpu"} [chosen]  the device that D is from
   * @param {string} [unmeasured]  what stands for an error that is not known
   */
  #drawLanes(chosen, unmeasured = "…") {
    const fastest = Math.max(...[...this.lanes.values()].map((lane) => lane.gflops ?? 0));
    const rows = ORDER.map((name) => laneRow(name, this.lanes.get(name), fastest, name === chosen, unmeasured));
    element("lanes", HTMLTableSectionElement).replaceChildren(...rows);
  }

  /** @param {RunAnswer["corner"]} corner */
  #drawCorner({ cells, rows, columns }) {
    const wider = columns > (cells[0]?.length ?? 0);
    const drawn = cells.map((row) => tableRow(wider ? [...row, "…"] : row));
    if (rows > cells.length) {
      drawn.push(tableRow((cells[0] ?? []).map(() => "⋮").concat(wider ? ["⋱"] : [])));
    }
    element("corner", HTMLTableSectionElement).replaceChildren(...drawn);
  }

  /**
   * @param {Errors} errors
   * @param {string} name  of the matrix whose errors these are
   */
  showErrors(errors, name) {
    this.errors = errors;
    const { error, differing, method, type } = errors;
    const share = differing === undefined ? undefined : differing / errors.count;
    setText(element("title-errors", HTMLElement), share === undefined ? "Largest error" : "Wrongly rounded");
    element("error-figure", HTMLElement).replaceChildren(
      share === undefined ? dataOf(error, number(error, 2)) : dataOf(share, `${number(share * 100, 2)} %`),
    );
    const measure = share === undefined ? `max |${name} − R| / max |R|` : `The share of the elements of ${name} that are not R rounded once to ${type}`;
    setText(element("error-measure", HTMLElement), `${measure}, where R is ${method}.`);
    element("error-facts", HTMLElement).replaceChildren(...errorFacts(errors).map(([term, detail]) => factOf(term, detail)));
    this.#describeMap(errors, name);
    element("worst", HTMLTableSectionElement).replaceChildren(
      ...errors.worst.map((each) => tableRow([count(each.row), count(each.column), each.got, each.expected, number(each.error)])),
    );
    this.#drawMap(errors);
  }

  /**
   * @param {Errors} errors
   * @param {string} name
   */
  #describeMap({ error, row, column, median, most, map, rows, columns }, name) {
    const whole = map.height === rows && map.width === columns;
    const cells = whole ? "one cell an element" : `each cell the largest error of about ${number(Math.ceil(rows / map.height), 2)} × ${number(Math.ceil(columns / map.width), 2)} elements`;
    const spread = median === undefined || most === undefined ? "" : ` Half of the errors are at most ${number(median)}, 99 % at most ${number(most)}.`;
    const peak = error > 0 ? ` The largest, ${number(error)}, lies at row ${row}, column ${column}.` : " There is no error.";
    this.map.setAttribute("aria-label", `Map of the errors of ${name}, ${cells}.${peak}${spread}`);
    setText(element("map-readout", HTMLElement), "");
  }

  /** @param {Errors} errors */
  #drawMap({ error, row, column, median, map, rows, columns }) {
    const finite = map.values.reduce((most, value) => (Number.isFinite(value) ? Math.max(most, value) : most), 0);
    drawErrors(this.map, map, finite);
    drawLegend(element("legend", HTMLCanvasElement));
    setText(element("legend-high", HTMLElement), number(finite || error, 2));
    const figure = element("error-map-figure", HTMLElement);
    figure.style.setProperty("--row", String((row + 0.5) / rows));
    figure.style.setProperty("--column", String((column + 0.5) / columns));
    figure.style.setProperty("--across", String(Math.min(Math.max(columns / rows, 0.25), 4)));
    figure.classList.toggle("peak", error > 0 && median !== undefined);
  }

  /** @param {PointerEvent} event */
  #point(event) {
    if (!this.errors) {
      return;
    }
    const { map, rows, columns } = this.errors;
    const box = this.map.getBoundingClientRect();
    const y = Math.min(Math.max(Math.floor(((event.clientY - box.top) / box.height) * map.height), 0), map.height - 1);
    const x = Math.min(Math.max(Math.floor(((event.clientX - box.left) / box.width) * map.width), 0), map.width - 1);
    /** @type {(cell: number, cells: number, all: number) => string} */
    const span = (cell, cells, all) => range(Math.floor((cell * all) / cells), Math.max(Math.floor(((cell + 1) * all) / cells) - 1, 0));
    const value = map.values[y * map.width + x] ?? 0;
    setText(element("map-readout", HTMLElement), `row ${span(y, map.height, rows)}, column ${span(x, map.width, columns)}: ${number(value)}`);
  }

  /** Hands the result to the browser's downloads. */
  async download() {
    const saved = await this.engine.call("save", []);
    if (!(saved instanceof Uint8Array)) {
      setText(element("download-note", HTMLElement), saved.error);
      return;
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([/** @type {Uint8Array<ArrayBuffer>} */ (saved)], { type: "application/octet-stream" }));
    link.download = "D.npy";
    link.click();
    // The download has its own hold on the data once the click was handled.
    setTimeout(() => URL.revokeObjectURL(link.href), 0);
  }

  redraw() {
    if (this.picture) {
      drawMatrix(this.canvas, this.picture);
    }
    if (this.errors) {
      this.#drawMap(this.errors);
    }
  }
}

/**
 * @param {Lane["lane"]} name
 * @param {Lane | undefined} lane
 * @param {number} fastest  GFLOP/s of the longest bar
 * @param {boolean} chosen
 * @param {string} unmeasured
 */
function laneRow(name, lane, fastest, chosen, unmeasured) {
  const bar = document.createElement("span");
  bar.className = "bar";
  bar.style.setProperty("--length", String(lane?.gflops ? Math.max(lane.gflops / fastest, 0.004) : 0));
  const done = lane?.state === "done";
  const cells = done
    ? [
        NAMES[name],
        bar,
        dataOf(lane.gflops ?? 0, number(lane.gflops ?? 0)),
        dataOf(lane.seconds ?? 0, duration(lane.seconds ?? 0)),
        lane.error === undefined ? unmeasured : dataOf(lane.error, number(lane.error, 2)),
      ]
    : [NAMES[name], stateOf(lane)];
  const row = tableRow(cells, true);
  row.dataset["lane"] = name;
  row.classList.toggle("chosen", chosen);
  row.classList.toggle("measuring", lane?.state === "measuring");
  if (!done) {
    row.cells[1]?.setAttribute("colspan", "4");
    row.cells[1]?.classList.add("words");
  }
  if (done && lane.variant) {
    const detail = document.createElement("small");
    detail.textContent = [lane.adapter, lane.variant].filter(Boolean).join(" · ");
    row.cells[1]?.append(detail);
  }
  return row;
}

/** @param {Lane | undefined} lane */
function stateOf(lane) {
  if (!lane) {
    return "waits";
  }
  if (lane.state === "measuring") {
    return lane.estimate && lane.estimate > 1 ? `measuring, about ${duration(lane.estimate)}…` : "measuring…";
  }
  const advice = lane.estimate ? " Choose “always” beside “Compare with NumPy” to wait for it." : "";
  return `${lane.reason ?? ""}${advice}`;
}

/**
 * What there is to say of the errors, as terms and details.
 * @param {Errors} errors
 * @returns {[string, string][]}
 */
function errorFacts({ error, differing, row, column, type, exact, count: all, median, most, unfinite, rows, rows_checked: checked }) {
  /** @type {[string, string][]} */
  const facts = [];
  const unit = UNIT_ROUNDOFF[type];
  if (differing !== undefined) {
    facts.push(["Wrong", `${count(differing)} of ${count(all)} elements`]);
    facts.push(["Largest error", `${number(error, 2)} of max |R|`]);
  }
  if (error > 0) {
    facts.push(["Lies at", `row ${count(row)}, column ${count(column)} (counted from 0)`]);
  }
  if (unit && error > 0 && Number.isFinite(error)) {
    facts.push(["In roundings", `${number(error / unit.value, 2)} × 2${superscript(unit.power)}, one rounding of ${type}`]);
  }
  if (median !== undefined && most !== undefined && error > 0) {
    facts.push(["Spread", `half at most ${number(median, 2)}, 99 % at most ${number(most, 2)}`]);
  }
  facts.push(["Exact", exact === all ? `all ${count(all)} elements` : `${count(exact)} of ${count(all)} elements`]);
  if (unfinite) {
    facts.push(["Lost", `${count(unfinite)} infinite or NaN, where R is finite`]);
  }
  if (checked < rows) {
    facts.push(["Checked", `${count(checked)} of ${count(rows)} rows, evenly spaced`]);
  }
  return facts;
}
