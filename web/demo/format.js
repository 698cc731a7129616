// Numbers and quantities as the page writes them. Pure; touches no page.

const SUPERSCRIPTS = /** @type {Record<string, string>} */ ({
  "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹",
});

/** Half the distance from 1 to the next number: the largest relative error of one rounding. */
export const UNIT_ROUNDOFF = /** @type {Record<string, { value: number, power: number }>} */ ({
  float32: { value: 2 ** -24, power: -24 },
  float16: { value: 2 ** -11, power: -11 },
  bfloat16: { value: 2 ** -8, power: -8 },
  float64: { value: 2 ** -53, power: -53 },
});

/** @param {number} exponent */
export function superscript(exponent) {
  return [...String(exponent)].map((digit) => SUPERSCRIPTS[digit] ?? digit).join("");
}

/**
 * A number with so many digits that count, as a power of ten where it is far from 1.
 * @param {number} value
 * @param {number} [digits]
 */
export function number(value, digits = 3) {
  if (value === 0 || !Number.isFinite(value)) {
    return value === 0 ? "0" : Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  }
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    const [mantissa = "", exponent = "0"] = value.toExponential(digits - 1).split("e");
    return `${mantissa.replace("-", "−")} × 10${superscript(Number(exponent))}`;
  }
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

/** @param {number} value  a count */
export function count(value) {
  return value.toLocaleString("en");
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 1e-3) {
    return `${number(seconds * 1e6)} µs`;
  }
  return seconds < 1 ? `${number(seconds * 1e3)} ms` : `${number(seconds)} s`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1e3) {
    return `${bytes} bytes`;
  }
  return bytes < 1e6 ? `${number(bytes / 1e3)} kB` : `${number(bytes / 1e6)} MB`;
}

/**
 * One number, or the first and last of several.
 * @param {number} first
 * @param {number} last
 */
export function range(first, last) {
  return first === last ? count(first) : `${count(first)}–${count(last)}`;
}
