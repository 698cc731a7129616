// One operand of the product: its inputs (generated, or a file picked or dropped), its picture, and what is wrong with it, in words.
// What is wrong with a size is the page's to say, since A and B share one.
// Asks Python for the matrix on every change, the last change winning; holds no elements of the matrix but those it draws.

/** @import { Engine } from "./engine.js" */
/** @import { Fault, OperandAnswer } from "./types.js" */

import { element, part, setText } from "./elements.js";
import { Stopped } from "./engine.js";
import { count, number, size } from "./format.js";
import { drawMatrix } from "./picture.js";

// A size typed digit by digit asks Python once, when the typing pauses.
const TYPING_PAUSE_MS = 250;
/** @typedef {{ rows: HTMLInputElement, columns: HTMLInputElement }} Sizes */

export class OperandPanel {
  /**
   * @param {"A" | "B"} side
   * @param {Engine} engine
   * @param {Sizes} sizes
   * @param {(panel: OperandPanel) => void} changed
   * @param {() => void} settleSizes  called before the sizes are read: files decide first
   */
  constructor(side, engine, sizes, changed, settleSizes) {
    this.side = side;
    this.engine = engine;
    this.sizes = sizes;
    this.changed = changed;
    this.settleSizes = settleSizes;
    /** Whether Python has yet to answer for what the inputs say. */
    this.pending = false;
    /** @type {OperandAnswer | null} */
    this.summary = null;
    /** @type {File | null} */
    this.file = null;
    this.ownError = "";
    this.pairError = "";
    this.turn = 0;
    this.pause = 0;
    const letter = side.toLowerCase();
    this.panel = element(`operand-${letter}`, HTMLElement);
    this.figure = element(`picture-${letter}`, HTMLElement);
    this.panel.append(element("operand-template", HTMLTemplateElement).content.cloneNode(true));
    this.figure.append(element("picture-template", HTMLTemplateElement).content.cloneNode(true));
    this.sources = [...this.panel.querySelectorAll("input")].filter((input) => input.type === "radio");
    this.picker = part(this.panel, "picker", HTMLInputElement);
    this.type = part(this.panel, "type", HTMLSelectElement);
    this.seed = part(this.panel, "seed", HTMLInputElement);
    this.error = part(this.panel, "error", HTMLElement);
    this.canvas = part(this.figure, "canvas", HTMLCanvasElement);
    this.#label();
    this.#listen();
  }

  /** Whether there is a matrix that can be multiplied. */
  get ok() {
    return this.summary !== null;
  }

  get #fromFile() {
    return this.sources.some((input) => input.checked && input.value === "file");
  }

  /** Whether a file that was read says how large the matrix is. */
  get fixesSizes() {
    return this.#fromFile && this.summary !== null;
  }

  #label() {
    const { side } = this;
    for (const input of this.sources) {
      input.name = `source-${side}`;
    }
    const legend = this.panel.querySelector("legend");
    legend?.replaceChildren(`Source of ${side}`);
    setText(part(this.panel, "file-label", HTMLElement), `File for ${side}: `);
    this.error.id = `error-${side}`;
    part(this.panel, "summary", HTMLElement).id = `summary-${side}`;
    for (const input of [this.picker, this.type, this.seed]) {
      input.setAttribute("aria-describedby", `error-${side} summary-${side}`);
    }
    setText(part(this.figure, "across", HTMLElement), side === "A" ? "k" : "n");
    setText(part(this.figure, "down", HTMLElement), side === "A" ? "m" : "k");
    this.canvas.setAttribute("aria-label", `Picture of ${side}: not there yet`);
  }

  #listen() {
    const refresh = () => void this.refresh();
    for (const input of this.sources) {
      input.addEventListener("change", () => this.#chooseSource());
    }
    // The same file, changed meanwhile, can be chosen again.
    this.picker.addEventListener("click", () => {
      this.picker.value = "";
    });
    this.picker.addEventListener("change", () => this.#take(this.picker.files));
    this.type.addEventListener("change", refresh);
    const distribution = part(this.panel, "distribution", HTMLSelectElement);
    distribution.addEventListener("change", () => {
      const cosines = distribution.value === "cosines";
      setText(part(this.panel, "seed-label", HTMLElement), cosines ? "First frequency" : "Seed");
      refresh();
    });
    for (const input of [this.seed, this.sizes.rows, this.sizes.columns]) {
      input.addEventListener("input", () => {
        clearTimeout(this.pause);
        if (!this.#fromFile) {
          this.pending = true;
          this.changed(this);
          this.pause = setTimeout(refresh, TYPING_PAUSE_MS);
        }
      });
    }
    for (const place of [this.panel, this.figure]) {
      place.addEventListener("dragover", (event) => {
        event.preventDefault();
        this.panel.classList.add("over");
      });
      place.addEventListener("dragleave", () => this.panel.classList.remove("over"));
      place.addEventListener("drop", (event) => {
        event.preventDefault();
        this.panel.classList.remove("over");
        this.#take(event.dataTransfer?.files ?? null);
      });
    }
  }

  #chooseSource() {
    const file = this.#fromFile;
    part(this.panel, "generate", HTMLElement).hidden = file;
    part(this.panel, "file", HTMLElement).hidden = !file;
    const asInFile = /** @type {HTMLOptionElement} */ (this.type.querySelector('option[value="file"]'));
    asInFile.hidden = asInFile.disabled = !file;
    this.type.value = file ? "file" : this.summary?.type ?? "float32";
    void this.refresh();
  }

  /** @param {FileList | null} files */
  #take(files) {
    const [file] = files ?? [];
    if (!file) {
      return;
    }
    this.file = file;
    setText(part(this.panel, "file-name", HTMLElement), file.name);
    for (const input of this.sources) {
      input.checked = input.value === "file";
    }
    this.#chooseSource();
  }

  /** What was known of the matrix is gone, because Python starts anew. */
  forget() {
    this.summary = null;
  }

  /** Asks at once for what would be asked for when the typing pauses. */
  hurry() {
    if (this.pause) {
      void this.refresh();
    }
  }

  /** Asks Python for the matrix that the inputs describe. */
  async refresh() {
    const turn = ++this.turn;
    clearTimeout(this.pause);
    this.pause = 0;
    this.pending = true;
    this.summary = null;
    this.#tell({ own: "" });
    let request;
    try {
      request = await this.#request();
    } catch (error) {
      return this.#fail(turn, `The file could not be read: ${error instanceof Error ? error.message : String(error)}`);
    }
    if (turn !== this.turn) {
      return undefined;
    }
    if ("error" in request) {
      return this.#fail(turn, request.error);
    }
    this.changed(this);
    try {
      /** @type {OperandAnswer | Fault} */
      const answer = await this.engine.call(request.verb, request.args, request.transfer);
      return answer.error === undefined ? this.#show(turn, answer) : this.#fail(turn, answer.error);
    } catch (error) {
      return error instanceof Stopped ? undefined : this.#fail(turn, String(error));
    }
  }

  /**
   * What to ask Python, or why nothing can be asked; the reason is empty where it is a size.
   * @returns {Promise<{ error: string } | { verb: string, args: unknown[], transfer: Transferable[] }>}
   */
  async #request() {
    if (this.#fromFile) {
      if (!this.file) {
        return { error: `Choose a file for ${this.side}, or drop one here.` };
      }
      const data = await this.file.arrayBuffer();
      return { verb: "read", args: [this.side, this.file.name, new Uint8Array(data), this.type.value], transfer: [data] };
    }
    this.settleSizes();
    const { seed, sizes: { rows, columns } } = this;
    if (!rows.checkValidity() || !columns.checkValidity()) {
      return { error: "" };
    }
    if (!seed.checkValidity()) {
      const name = part(this.panel, "seed-label", HTMLElement).textContent;
      return { error: `${name} must be a whole number from ${seed.min} to ${seed.max}.` };
    }
    const distribution = part(this.panel, "distribution", HTMLSelectElement).value;
    return {
      verb: "generate",
      args: [this.side, rows.valueAsNumber, columns.valueAsNumber, this.type.value, seed.valueAsNumber, distribution],
      transfer: [],
    };
  }

  /**
   * @param {number} turn
   * @param {string} words
   */
  #fail(turn, words) {
    if (turn !== this.turn) {
      return;
    }
    this.summary = null;
    this.pending = false;
    setText(part(this.panel, "summary", HTMLElement), "");
    this.figure.classList.remove("drawn");
    this.canvas.width = this.canvas.height = 1;
    this.canvas.setAttribute("aria-label", `Picture of ${this.side}: there is no matrix`);
    this.#tell({ own: words });
    this.changed(this);
  }

  /**
   * @param {number} turn
   * @param {OperandAnswer} answer
   */
  #show(turn, answer) {
    if (turn !== this.turn) {
      return;
    }
    this.summary = answer;
    this.pending = false;
    const { rows, columns, type, lowest, highest } = answer;
    if (this.#fromFile) {
      this.showSizes();
    }
    const between = lowest === undefined || highest === undefined ? "" : ` · ${number(lowest)} to ${number(highest)}`;
    const unfinite = answer.unfinite ? ` · ${count(answer.unfinite)} infinite or NaN` : "";
    const text = `${count(rows)} × ${count(columns)} ${type} · ${size(answer.bytes)}${between}${unfinite}`;
    setText(part(this.panel, "summary", HTMLElement), answer.note ? `${text}. ${answer.note}` : text);
    this.figure.classList.add("drawn");
    this.canvas.setAttribute("aria-label", `Picture of ${this.side}: ${text}`);
    this.redraw();
    this.changed(this);
  }

  /** Writes the sizes of the file; the other operand, if generated, follows. */
  showSizes() {
    const { rows = 0, columns = 0 } = this.summary ?? {};
    for (const [input, value] of /** @type {const} */ ([[this.sizes.rows, rows], [this.sizes.columns, columns]])) {
      if (input.valueAsNumber !== value) {
        input.value = String(value);
        input.dispatchEvent(new Event("input"));
      }
    }
  }

  /**
   * Says that the two operands do not fit, beside this one.
   * @param {string} words
   */
  setPairError(words) {
    this.#tell({ pair: words });
  }

  /** @param {{ own?: string, pair?: string }} errors */
  #tell({ own = this.ownError, pair = this.pairError }) {
    this.ownError = own;
    this.pairError = pair;
    setText(this.error, own || pair);
    this.seed.setAttribute("aria-invalid", String(!this.seed.checkValidity()));
  }

  redraw() {
    if (this.summary) {
      drawMatrix(this.canvas, this.summary.picture);
    }
  }
}
