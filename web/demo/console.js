// The Python console: an entry of one or more lines, a history, and a log that screen readers follow.
// Sends what was typed to Python and prints what comes back; understands no Python itself.

/** @import { Engine } from "./engine.js" */

import { element, setText } from "./elements.js";
import { Stopped } from "./engine.js";

// Code that has run this long is told of, and its button stops it; sooner, a double click on Run would stop what it started.
const LASTING_MS = 500;
// Older output goes when the log holds this many pieces.
const MOST_PIECES = 2000;

export class ConsolePanel {
  /**
   * @param {Engine} engine
   * @param {{ busyWith: (what: string) => void, lasts: () => void, stop: () => void }} page  what the page does when code runs,
   *   when it runs on, and when it shall stop
   */
  constructor(engine, page) {
    this.engine = engine;
    this.page = page;
    this.log = element("log", HTMLElement);
    this.code = element("code", HTMLTextAreaElement);
    this.button = element("execute", HTMLButtonElement);
    /** @type {string[]} */
    this.history = [];
    this.place = 0;
    this.draft = "";
    this.allowed = false;
    /** Whether code has run for so long that the button stops it. */
    this.lasting = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.lasts = undefined;
    this.button.addEventListener("click", () => (this.lasting ? this.page.stop() : void this.execute(true)));
    this.code.addEventListener("keydown", (event) => this.#key(event));
    this.code.addEventListener("input", () => this.#fit());
    for (const example of document.querySelectorAll("button.example")) {
      example.addEventListener("click", () => {
        this.#write(example.textContent ?? "");
        this.code.focus();
      });
    }
    this.allow(false);
  }

  /** @param {boolean} allowed  whether Python takes code now */
  allow(allowed) {
    this.allowed = allowed;
    // Not `disabled`: focus stays, and the next lines can be typed while these run.
    this.button.setAttribute("aria-disabled", String(!allowed && !this.lasting));
  }

  /** @param {boolean} lasting */
  #last(lasting) {
    this.lasting = lasting;
    this.button.textContent = lasting ? "Stop" : "Run";
    this.allow(this.allowed);
    this.say(lasting ? `Running…${this.engine.interrupt ? "" : " Stop starts Python anew, without your variables."}` : "");
    if (lasting) {
      this.page.lasts();
    }
  }

  /**
   * Says below the entry how running code stands.
   * @param {string} text
   */
  say(text) {
    setText(element("console-status", HTMLElement), text);
  }

  /**
   * @param {string} kind  "in", "out", "err" or "value"
   * @param {string} text
   */
  print(kind, text) {
    this.log.tabIndex = 0;
    const last = this.log.lastElementChild;
    if (last instanceof HTMLElement && last.dataset["kind"] === kind && (kind === "out" || kind === "err")) {
      last.append(text);
    } else {
      const piece = document.createElement("div");
      piece.dataset["kind"] = kind;
      piece.textContent = text;
      this.log.append(piece);
    }
    while (this.log.childElementCount > MOST_PIECES) {
      this.log.firstElementChild?.remove();
    }
    this.log.scrollTop = this.log.scrollHeight;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { code } = this;
    if (event.isComposing) {
      return;
    }
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      void this.execute(false);
      return;
    }
    const before = code.value.slice(0, code.selectionStart);
    const after = code.value.slice(code.selectionEnd);
    if (event.key === "ArrowUp" && !before.includes("\n")) {
      event.preventDefault();
      this.#recall(-1);
    } else if (event.key === "ArrowDown" && !after.includes("\n")) {
      event.preventDefault();
      this.#recall(1);
    }
  }

  /** @param {-1 | 1} step */
  #recall(step) {
    const place = this.place + step;
    if (place < 0 || place > this.history.length) {
      return;
    }
    if (this.place === this.history.length) {
      this.draft = this.code.value;
    }
    this.place = place;
    this.#write(this.history[place] ?? this.draft);
  }

  /** @param {string} text */
  #write(text) {
    this.code.value = text;
    this.code.setSelectionRange(text.length, text.length);
    this.#fit();
  }

  #fit() {
    this.code.rows = Math.min(this.code.value.split("\n").length, 16);
  }

  /**
   * Runs the entry if it is complete; else it goes on on the next line.
   * @param {boolean} asItIs  run it even where it seems to want more
   */
  async execute(asItIs) {
    const text = this.code.value;
    if (!this.allowed || !text.trim()) {
      return;
    }
    const source = asItIs ? `${text}\n` : text;
    this.page.busyWith("console");
    // Taken out before the answer, so that the next lines can be typed at once.
    this.#write("");
    try {
      const { more } = await this.engine.call("execute", [source, asItIs]);
      if (more) {
        this.#write(continued(text) + this.code.value);
      }
    } catch (error) {
      this.print("err", error instanceof Stopped ? "Python was stopped; it starts anew, without your variables." : String(error));
    } finally {
      clearTimeout(this.lasts);
      this.#last(false);
      this.page.busyWith("");
    }
  }

  /**
   * Python has begun to run this text. An interrupt finds the code only from here on: sooner, it would hit what brings it there.
   * @param {string} text
   */
  began(text) {
    clearTimeout(this.lasts);
    this.lasts = setTimeout(() => this.#last(true), LASTING_MS);
    const clean = text.replace(/\s+$/u, "");
    if (this.history.at(-1) !== clean) {
      this.history.push(clean);
    }
    this.place = this.history.length;
    this.draft = "";
    this.print("in", clean);
  }
}

/**
 * The text with a new line, indented as Python would have it.
 * @param {string} text
 */
function continued(text) {
  const last = text.slice(text.lastIndexOf("\n") + 1);
  const indent = /^[ \t]*/u.exec(last)?.[0] ?? "";
  return `${text}\n${indent}${last.trimEnd().endsWith(":") ? "    " : ""}`;
}
