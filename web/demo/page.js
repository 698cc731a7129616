// The demo page's entry: starts the Python worker, connects inputs, run, readings and console, and keeps what people are told up to date.
// Decides only what may be pressed when; every number comes from Python.

/** @import { Lane, Progress, Ready, RunAnswer, RunFault, Errors } from "./types.js" */

import { ConsolePanel } from "./console.js";
import { element, factOf, field, setText } from "./elements.js";
import { Engine, Stopped } from "./engine.js";
import { duration, size } from "./format.js";
import { OperandPanel } from "./operand.js";
import { Readings } from "./readings.js";

const engine = new Engine();
const readings = new Readings(engine);
const pythonConsole = new ConsolePanel(engine, { busyWith, lasts: consoleLasts, stop });
const status = element("status", HTMLElement);
const runButton = element("run", HTMLButtonElement);
const stopButton = element("stop", HTMLButtonElement);
const sizes = { m: field("size-m"), k: field("size-k"), n: field("size-n") };
const a = new OperandPanel("A", engine, { rows: sizes.m, columns: sizes.k }, changed, settleSizes);
const b = new OperandPanel("B", engine, { rows: sizes.k, columns: sizes.n }, changed, settleSizes);
let ready = false;
/** Whether "Multiply" was pressed while a matrix was still being made. */
let wanted = false;
/** What Python is busy with, if anything. */
let busy = "";
/** Whether the status says that the console's code runs. */
let consoleTold = false;

/** @param {string} what  empty: idle */
function busyWith(what) {
  busy = what;
  // What the console runs is stopped by the console's own button.
  const hide = !(ready && busy === "product");
  if (hide && document.activeElement === stopButton) {
    runButton.focus();
  }
  stopButton.hidden = hide;
  allow();
  if (consoleTold && !busy) {
    consoleTold = false;
    announce();
  }
}

/** The console's code takes long enough to be told of. */
function consoleLasts() {
  consoleTold = true;
  setText(status, "Running the console's code…");
}

function allow() {
  const usable = [a, b].every((panel) => panel.ok || panel.pending);
  // Not `disabled`: who pressed it by keyboard stays there while it runs.
  runButton.setAttribute("aria-disabled", String(!(ready && !busy && usable && !mismatch())));
  runButton.textContent = busy === "product" ? "Multiplying…" : "Multiply";
  pythonConsole.allow(ready && !busy);
}

function runnable() {
  return runButton.getAttribute("aria-disabled") === "false";
}

/** Why A and B do not fit, or nothing. */
function mismatch() {
  if (!a.summary || !b.summary || a.summary.columns === b.summary.rows) {
    return "";
  }
  return (
    `A has ${a.summary.columns} columns and B has ${b.summary.rows} rows; ` +
    "for A · B the two must be equal. Choose another file, or generate one of the two."
  );
}

/**
 * An operand is about to change, or has changed.
 * @param {OperandPanel} panel
 */
function changed(panel) {
  readings.clear();
  const other = panel === a ? b : a;
  lockSizes();
  checkSizes(panel.pending);
  proportion();
  other.setPairError("");
  panel.setPairError(mismatch());
  allow();
  announce();
}

/** Runs what was asked for before the matrices were there, or says how things stand. */
function announce() {
  if (!ready || busy) {
    return;
  }
  const made = [a, b].every((panel) => panel.ok && !panel.pending);
  if (made && !mismatch() && wanted) {
    void run();
  } else {
    wanted &&= runnable();
    setText(status, made && !mismatch() ? "Ready." : wanted ? "Making the matrices…" : "");
  }
}

/** Files say what sizes there are; a generated matrix takes them over. */
function settleSizes() {
  for (const panel of [a, b]) {
    if (panel.fixesSizes) {
      panel.showSizes();
    }
  }
}

/** Draws the three rectangles to one scale: lengths go by the root, so that a long thin matrix still has a face. */
function proportion() {
  const lengths = { m: sizes.m.valueAsNumber, k: sizes.k.valueAsNumber, n: sizes.n.valueAsNumber };
  const longest = Math.max(...Object.values(lengths).filter((length) => length > 0), 1);
  for (const [name, length] of Object.entries(lengths)) {
    const part = length > 0 ? Math.max(Math.sqrt(length / longest), 0.2) : 1;
    element("scheme", HTMLElement).style.setProperty(`--${name}`, part.toFixed(3));
  }
}

/**
 * Says beside the sizes what is wrong with them; of one that is still being typed, only that nothing is wrong any more.
 * @param {boolean} typing
 */
function checkSizes(typing) {
  const wrong = Object.entries(sizes).filter(([, input]) => !input.checkValidity());
  if (typing && wrong.length) {
    return;
  }
  for (const input of Object.values(sizes)) {
    input.setAttribute("aria-invalid", String(!input.checkValidity()));
  }
  const names = wrong.map(([name]) => name).join(" and ");
  const { min, max } = sizes.m;
  const words = `must be ${wrong.length > 1 ? "whole numbers" : "a whole number"} from ${min} to ${max}.`;
  setText(element("sizes-error", HTMLElement), wrong.length ? `${names} ${words}` : "");
}

/** Sizes that a file gives cannot be typed. */
function lockSizes() {
  const byFile = [a, b].filter((panel) => panel.fixesSizes);
  const fixed = new Set(byFile.flatMap((panel) => [panel.sizes.rows, panel.sizes.columns]));
  for (const input of Object.values(sizes)) {
    input.readOnly = fixed.has(input);
    input.title = input.readOnly ? "Given by the file" : "";
  }
}

/** @param {Event} event */
function submit(event) {
  event.preventDefault();
  if (!runnable()) {
    return;
  }
  if (a.pending || b.pending) {
    wanted = true;
    setText(status, "Making the matrices…");
    a.hurry();
    b.hurry();
  } else {
    void run();
  }
}

async function run() {
  wanted = false;
  const chosen = new FormData(element("scheme", HTMLFormElement));
  setText(element("device-error", HTMLElement), "");
  setText(element("sizes-error", HTMLElement), "");
  busyWith("product");
  setText(status, "Multiplying…");
  readings.begin();
  try {
    /** @type {RunAnswer | RunFault} */
    const answer = await engine.call("run", [chosen.get("device"), chosen.get("mode"), element("numpy", HTMLSelectElement).value]);
    if (answer.error !== undefined) {
      setText(status, answer.at === "run" ? answer.error : "No product.");
      if (answer.at !== "run") {
        setText(element(`${answer.at}-error`, HTMLElement), answer.error);
      }
      readings.fail();
    } else {
      readings.show(answer);
      const lane = answer.lanes.find((each) => each.lane === answer.chosen);
      setText(status, `Done on the ${answer.chosen === "gpu" ? "GPU" : "CPU"}${lane?.seconds ? ` in ${duration(lane.seconds)}` : ""}.`);
    }
  } catch (error) {
    readings.fail();
    setText(status, error instanceof Stopped ? "Stopped; Python starts anew." : `Python failed: ${String(error)}`);
  } finally {
    busyWith("");
    a.hurry();
    b.hurry();
  }
}

function stop() {
  const code = busy === "console";
  if (engine.stop(code ? "code" : "run")) {
    begin();
    return;
  }
  const words = "Stopping… Press again to start Python anew.";
  setText(status, words);
  if (code) {
    pythonConsole.say(words);
  }
}

/** What the page shows while Python (again) is on its way. */
function begin() {
  ready = false;
  busyWith("");
  readings.clear();
  element("loading", HTMLElement).hidden = false;
  element("facts", HTMLElement).hidden = true;
  a.forget();
  b.forget();
  setText(status, "Waiting for Python; the inputs can be set meanwhile.");
  void Promise.all([a.refresh(), b.refresh()]);
}

/** @param {Progress} progress */
function showProgress({ text, loaded, total }) {
  element("progress", HTMLProgressElement).value = total ? loaded / total : 0;
  setText(element("progress-text", HTMLElement), `${text} · ${size(loaded)} of ${size(total)}`);
}

/** @param {Ready} facts */
function showReady(facts) {
  ready = true;
  element("loading", HTMLElement).hidden = true;
  setText(element("version", HTMLElement), facts.py_gemm);
  const list = element("facts", HTMLElement);
  list.replaceChildren(
    factOf("Python", facts.python),
    factOf("NumPy", facts.numpy),
    factOf("GPU", facts.gpu ? facts.adapter || facts.description || "WebGPU" : "none"),
  );
  list.hidden = false;
  element("environment", HTMLElement).hidden = false;
  element("info", HTMLElement).textContent = facts.info;
  const gpuChoice = /** @type {HTMLInputElement} */ (document.querySelector('input[name="device"][value="gpu"]'));
  gpuChoice.disabled = !facts.gpu;
  if (!facts.gpu) {
    if (gpuChoice.checked) {
      /** @type {HTMLInputElement} */ (document.querySelector('input[name="device"][value="best"]')).checked = true;
    }
    const notice = element("notice", HTMLElement);
    notice.hidden = false;
    setText(notice, `No GPU here, so products run on the CPU, with WebAssembly SIMD. The reason: ${facts.no_gpu}.`);
  }
  allow();
  announce();
}

/** @param {string} reason */
function showFailure(reason) {
  element("loading", HTMLElement).hidden = true;
  const notice = element("notice", HTMLElement);
  notice.hidden = false;
  notice.classList.add("fault");
  setText(notice, `Python could not be started: ${reason}`);
  setText(status, "Python could not be started.");
}

engine.on("progress", showProgress);
engine.on("ready", showReady);
engine.on("failed", showFailure);
engine.on("lane", (/** @type {Lane} */ lane) => {
  readings.showLane(lane);
  if (lane.state === "measuring") {
    const name = { gpu: "the GPU", cpu: "the CPU", numpy: "NumPy" }[lane.lane];
    setText(status, `Timing ${name}${lane.estimate && lane.estimate > 1 ? `, about ${duration(lane.estimate)}` : ""}…`);
  }
});
engine.on("stage", (/** @type {string} */ text) => setText(status, `${text}…`));
engine.on("check", (/** @type {Errors} */ errors) => readings.showErrors(errors, "X"));
engine.on("began", (/** @type {string} */ code) => pythonConsole.began(code));
engine.on("output", (/** @type {{ kind: string, text: string }} */ { kind, text }) => pythonConsole.print(kind, text));

element("scheme", HTMLFormElement).addEventListener("submit", submit);
stopButton.addEventListener("click", stop);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  a.redraw();
  b.redraw();
  readings.redraw();
});

// A file dropped beside its place must not replace the page.
for (const kind of ["dragover", "drop"]) {
  document.addEventListener(kind, (event) => event.preventDefault());
}

engine.start();
begin();
