// The benchmark page's entry: starts the Python worker, asks it to measure, and draws each product's chart when its row arrives.
// Measures nothing itself; every number comes from Python.

/** @import { Progress } from "../types.js" */

import { element, factOf, part, setText, tableRow } from "../elements.js";
import { Engine, Stopped } from "../engine.js";
import { duration, number, size } from "../format.js";

/**
 * @typedef {object} Entry
 * @property {string} name
 * @property {"ours" | "peer" | "loop"} kind
 * @property {string} note  which kernel ran
 * @property {number} seconds
 * @property {number} rate
 * @property {number} [error]
 * @property {number} [gpu_seconds]
 * @property {string} [failure]
 *
 * @typedef {{ road: "gpu" | "cpu", label: string, entries: Entry[], lead?: [number, string] }} Row  lead: how many times as fast as whom
 * @typedef {{ py_gemm: string, numpy: string, python: string, pyodide: string, adapter: string, no_gpu: string, peers: boolean, info: string }} Facts
 */

const engine = new Engine("bench");
const status = element("status", HTMLElement);
const runButton = element("run", HTMLButtonElement);
const stopButton = element("stop", HTMLButtonElement);
const ROADS = /** @type {const} */ (["gpu", "cpu"]);
/** @type {Map<string, HTMLElement>} by road and label */
const charts = new Map();
let ready = false;
let busy = false;

function allow() {
  // Not `disabled`: who pressed it by keyboard stays there while it runs.
  runButton.setAttribute("aria-disabled", String(!ready || busy));
  runButton.textContent = busy ? "Measuring…" : "Measure";
  if (!busy && document.activeElement === stopButton) {
    runButton.focus();
  }
  stopButton.hidden = !busy;
}

/** @param {string} name */
function chosen(name) {
  const input = document.querySelector(`input[name="${name}"]:checked`);
  return input instanceof HTMLInputElement ? input.value : "";
}

/** @param {string} text  empty: none */
function complain(text) {
  const notice = element("notice", HTMLElement);
  notice.hidden = !text;
  setText(notice, text);
}

/** Shows the charts to come. */
async function lay() {
  charts.clear();
  for (const road of ROADS) {
    const section = element(`road-${road}`, HTMLElement);
    /** @type {string[]} */
    const labels = chosen("roads").includes(road) ? await engine.call("products", [road, chosen("extent")]) : [];
    section.hidden = labels.length === 0;
    part(section, "charts", HTMLElement).replaceChildren(...labels.map((label) => emptyChart(road, label)));
  }
}

/**
 * @param {string} road
 * @param {string} label
 */
function emptyChart(road, label) {
  const copy = element("chart-template", HTMLTemplateElement).content.cloneNode(true);
  const chart = /** @type {DocumentFragment} */ (copy).querySelector("section");
  if (!chart) {
    throw new Error("index.html has no chart");
  }
  chart.classList.add("waiting");
  setText(part(chart, "label", HTMLElement), label);
  charts.set(`${road} ${label}`, chart);
  return chart;
}

/** @param {Row} row */
function draw(row) {
  const chart = charts.get(`${row.road} ${row.label}`);
  if (!chart) {
    return;
  }
  chart.classList.remove("waiting", "current");
  const there = row.entries.filter((entry) => entry.failure === undefined);
  const bars = there.filter((entry) => entry.kind !== "loop").sort((a, b) => b.rate - a.rate);
  const ceiling = there.find((entry) => entry.kind === "loop");
  const longest = Math.max(...there.map((entry) => entry.rate));
  setText(part(chart, "caption", HTMLElement), `Speed and error of ${row.label}, the fastest first`);
  part(chart, "body", HTMLElement).replaceChildren(...bars.map((entry) => bar(entry, longest)));
  const table = chart.querySelector("table");
  table?.classList.toggle("ceiled", ceiling !== undefined);
  table?.style.setProperty("--ceiling", String((ceiling?.rate ?? 0) / longest));
  const ours = bars.find((entry) => entry.kind === "ours");
  const lead = part(chart, "lead", HTMLElement);
  if (row.lead) {
    const [times, other] = row.lead;
    const ratio = document.createElement("b");
    ratio.textContent = `${number(times)} ×`;
    lead.replaceChildren(ratio, ` ${other}`);
  }
  const missing = row.entries.filter((entry) => entry.failure !== undefined).map((entry) => `${entry.name}: ${entry.failure}.`);
  setText(part(chart, "missing", HTMLElement), [ours?.note && `Kernel ${ours.note}.`, ...missing].filter(Boolean).join(" "));
}

/**
 * @param {Entry} entry
 * @param {number} longest
 */
function bar(entry, longest) {
  const shape = document.createElement("span");
  shape.className = "bar";
  shape.style.setProperty("--length", String(entry.rate / longest));
  const error = entry.error === undefined ? "" : entry.error === 0 ? "exact" : number(entry.error, 2);
  const row = tableRow([entry.name, shape, number(entry.rate), error], true);
  row.classList.toggle("ours", entry.kind === "ours");
  row.title = `${duration(entry.seconds)}${entry.gpu_seconds === undefined ? "" : `, ${duration(entry.gpu_seconds)} by the GPU’s clock`}`;
  return row;
}

async function run() {
  if (runButton.getAttribute("aria-disabled") === "true") {
    return;
  }
  busy = true;
  allow();
  complain("");
  try {
    await lay();
    element("keep", HTMLElement).hidden = true;
    setText(element("kept", HTMLElement), "");
    const { stopped } = await engine.call("run", [chosen("roads").split(" "), chosen("extent")]);
    setText(status, stopped ? "Stopped." : "Done.");
    element("keep", HTMLElement).hidden = document.querySelector(".chart:not(.waiting)") === null;
  } catch (error) {
    setText(status, error instanceof Stopped ? "Stopped. Python starts anew." : "");
    if (!(error instanceof Stopped)) {
      complain(`Measuring failed: ${error instanceof Error ? error.message : error}`);
    }
  } finally {
    busy = false;
    for (const chart of charts.values()) {
      chart.classList.remove("current");
    }
    allow();
  }
}

/** @param {{ road: string, label: string, name: string }} what  the contender whose turn it is */
function stage({ road, label, name }) {
  setText(status, `${label}, ${name}…`);
  for (const [key, chart] of charts) {
    chart.classList.toggle("current", key === `${road} ${label}`);
  }
}

/**
 * @param {string} form
 * @param {string} name
 * @param {string} type
 */
async function save(form, name, type) {
  const text = await engine.call("report", [form]);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
  setText(element("kept", HTMLElement), `Saved as ${name}.`);
}

async function copy() {
  await navigator.clipboard.writeText(await engine.call("report", ["markdown"]));
  setText(element("kept", HTMLElement), "Copied.");
}

/** @param {() => Promise<void>} work */
function keep(work) {
  work().catch((error) => setText(element("kept", HTMLElement), `That did not work: ${error.message}`));
}

engine.on("progress", (/** @type {Progress} */ { text, loaded, total }) => {
  const bytes = `${size(loaded)} of ${size(total)}`;
  setText(element("progress-text", HTMLElement), `${text} (${bytes})`);
  element("progress", HTMLProgressElement).value = loaded / total;
});
engine.on("ready", async (/** @type {Facts} */ facts) => {
  ready = true;
  element("loading", HTMLElement).hidden = true;
  setText(element("version", HTMLElement), facts.py_gemm);
  const list = element("facts", HTMLElement);
  list.hidden = false;
  list.replaceChildren(factOf("GPU", facts.adapter || "none"), factOf("Pyodide", facts.pyodide), factOf("NumPy", facts.numpy));
  setText(element("about-gpu", HTMLElement), facts.adapter);
  setText(
    element("peers-note", HTMLElement),
    facts.peers
      ? "Next to onnxruntime-web, TensorFlow.js and jax-js, served from this machine."
      : "Next to NumPy. Other libraries join in once `npm run bench` has installed them.",
  );
  element("environment", HTMLElement).hidden = false;
  setText(element("info", HTMLElement), facts.info);
  setText(status, facts.no_gpu ? `No GPU here: ${facts.no_gpu}` : "Ready.");
  await lay();
  allow();
});
engine.on("failed", (/** @type {string} */ text) => {
  element("loading", HTMLElement).hidden = true;
  complain(`Python could not be started: ${text}`);
  setText(status, "");
});
engine.on("stage", stage);
engine.on("row", draw);

element("ask", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  void run();
});
element("ask", HTMLFormElement).addEventListener("change", () => {
  if (ready && !busy) {
    void lay();
  }
});
stopButton.addEventListener("click", () => {
  ready = !engine.stop("run");
  setText(status, "Stopping…");
});
element("copy", HTMLButtonElement).addEventListener("click", () => keep(copy));
element("save-picture", HTMLButtonElement).addEventListener("click", () => keep(() => save("svg", "py_gemm-benchmark.svg", "image/svg+xml")));
element("save-figures", HTMLButtonElement).addEventListener("click", () => keep(() => save("json", "py_gemm-benchmark.json", "application/json")));

allow();
engine.start();
