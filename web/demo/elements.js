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

/**
 * Changes a text only where it differs, so that screen readers hear it once.
 * @param {HTMLElement} target
 * @param {string} text
 */
export function setText(target, text) {
  if (target.textContent !== text) {
    target.textContent = text;
  }
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
    cell.append(content);
    row.append(cell);
  }
  return row;
}
