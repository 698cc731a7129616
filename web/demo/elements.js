// Finds the page's elements with their types, and writes to them. Throws where index.html and the scripts have come apart.

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new (...args: any[]) => T} type
 * @returns {T}
 */
export function element(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) {
    throw new Error(`index.html has no ${type.name} #${id}`);
  }
  return found;
}

/** @param {string} id */
export function field(id) {
  return element(id, HTMLInputElement);
}

/**
 * The one element below `parent` that a script knows by this name.
 * @template {HTMLElement} T
 * @param {ParentNode} parent
 * @param {string} name
 * @param {new (...args: any[]) => T} type
 * @returns {T}
 */
export function part(parent, name, type) {
  const found = parent.querySelector(`[data-part="${name}"]`);
  if (!(found instanceof type)) {
    throw new Error(`index.html has no ${type.name} for ${name}`);
  }
  return found;
}

/** What each element was last told; its own text differs where powers stand in superscript elements. */
const told = /** @type {WeakMap<HTMLElement, string>} */ (new WeakMap());

/**
 * Changes a text only where it differs, so that screen readers hear it once.
 * @param {HTMLElement} target
 * @param {string} text
 */
export function setText(target, text) {
  if (told.get(target) !== text) {
    told.set(target, text);
    target.replaceChildren(...typeset(text));
  }
}

/**
 * The text with its Unicode superscripts as superscript elements: few fonts draw all of those characters alike.
 * @param {string} text
 * @returns {(string | HTMLElement)[]}
 */
export function typeset(text) {
  return text.split(/([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)/u).map((piece, index) => {
    if (index % 2 === 0) {
      return piece;
    }
    const raised = document.createElement("sup");
    raised.textContent = [...piece].map((mark) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(mark)).map((place) => (place === 0 ? "−" : String(place - 1))).join("");
    return raised;
  });
}

/**
 * A number as people read it, with the number itself for programs.
 * @param {number} value
 * @param {string} text
 */
export function dataOf(value, text) {
  const data = document.createElement("data");
  data.value = String(value);
  data.append(...typeset(text));
  return data;
}

/**
 * A row of a table.
 * @param {(string | HTMLElement)[]} cells
 * @param {boolean} [headed]  whether the first cell heads the row
 */
export function tableRow(cells, headed = false) {
  const row = document.createElement("tr");
  for (const [index, content] of cells.entries()) {
    const cell = document.createElement(headed && index === 0 ? "th" : "td");
    if (headed && index === 0) {
      cell.setAttribute("scope", "row");
    }
    cell.append(...(typeof content === "string" ? typeset(content) : [content]));
    row.append(cell);
  }
  return row;
}

/**
 * A term and its detail, for a description list.
 * @param {string} term
 * @param {string} detail
 */
export function factOf(term, detail) {
  const pair = document.createElement("div");
  const name = document.createElement("dt");
  const value = document.createElement("dd");
  name.textContent = term;
  value.append(...typeset(detail));
  pair.append(name, value);
  return pair;
}
