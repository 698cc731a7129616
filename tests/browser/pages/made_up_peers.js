// Stands in for web/demo/bench/peers.js in tests: one library that multiplies, one that cannot. Nothing is loaded.

/** @import { Job, Product } from "../../../web/demo/bench/peers.js" */

/** @returns {string[]} */
export function names() {
  return ["honest", "broken"];
}

/**
 * @param {string} _root
 * @param {string} _road
 * @param {string} name
 * @param {Product} product
 * @param {Uint8Array} a
 * @param {Uint8Array} b
 * @returns {Promise<Job>}
 */
export async function prepare(_root, _road, name, product, a, b) {
  if (name !== "honest" || product.a !== "float32") {
    throw new Error("no such luck");
  }
  const left = new Float32Array(a.slice().buffer);
  const right = new Float32Array(b.slice().buffer);
  const made = new Float32Array(product.m * product.n);
  return {
    async run(count) {
      const started = performance.now();
      for (let turn = 0; turn < count; turn += 1) {
        multiply(product, left, right, made);
      }
      return (performance.now() - started) / 1000 / count;
    },
    result: () => made,
    close: () => {},
  };
}

/**
 * @param {Product} product
 * @param {Float32Array} a
 * @param {Float32Array} b
 * @param {Float32Array} d
 */
function multiply({ m, k, n, transposed }, a, b, d) {
  for (let row = 0; row < m; row += 1) {
    for (let column = 0; column < n; column += 1) {
      let sum = 0;
      for (let term = 0; term < k; term += 1) {
        sum += /** @type {number} */ (a[row * k + term]) * /** @type {number} */ (transposed ? b[column * k + term] : b[term * n + column]);
      }
      d[row * n + column] = sum;
    }
  }
}
