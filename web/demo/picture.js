// Draws grids of numbers on canvases: matrices in two hues (negative, positive), errors in one, and the legend of the latter.
// Colours come from custom properties of the style sheet, so that light and dark agree. Computes no error and no statistic of its own.

/** @import { Picture } from "./types.js" */

/** @typedef {[number, number, number]} Colour */

/**
 * @param {HTMLElement} element
 * @param {string} name  a custom property that holds #rrggbb
 * @returns {Colour}
 */
function colour(element, name) {
  const text = getComputedStyle(element).getPropertyValue(name).trim();
  const value = Number.parseInt(text.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/**
 * @param {Colour[]} stops  evenly spaced over 0 to 1
 * @param {number} at
 * @returns {Colour}
 */
function between(stops, at) {
  const place = Math.min(Math.max(at, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  const part = place - low;
  const from = /** @type {Colour} */ (stops[low]);
  const to = /** @type {Colour} */ (stops[low + 1]);
  /** @param {0 | 1 | 2} channel */
  const mix = (channel) => Math.round(from[channel] * (1 - part) + to[channel] * part);
  return [mix(0), mix(1), mix(2)];
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Picture} picture
 * @param {(value: number) => Colour} paint
 */
function draw(canvas, { height, width, values }, paint) {
  canvas.width = width;
  canvas.height = height;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(width, height);
  for (let index = 0; index < values.length; index++) {
    const [red, green, blue] = paint(values[index] ?? 0);
    image.data.set([red, green, blue, 255], index * 4);
  }
  context.putImageData(image, 0, 0);
}

/**
 * A matrix: zero is the ground, the largest magnitude the full hue; infinite and NaN elements stand out.
 * @param {HTMLCanvasElement} canvas
 * @param {Picture} picture
 */
export function drawMatrix(canvas, picture) {
  const negative = [colour(canvas, "--ground"), colour(canvas, "--negative")];
  const positive = [colour(canvas, "--ground"), colour(canvas, "--positive")];
  const odd = colour(canvas, "--alarm");
  const highest = picture.values.reduce((most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most), 0);
  draw(canvas, picture, (value) => {
    if (!Number.isFinite(value)) {
      return odd;
    }
    // The root keeps the many middling values of a random matrix apart from zero.
    const strength = highest ? Math.sqrt(Math.abs(value) / highest) : 0;
    return between(value < 0 ? negative : positive, strength);
  });
}

/**
 * @param {HTMLElement} element
 * @returns {Colour[]}
 */
function errorStops(element) {
  return ["--ground", "--error-1", "--error-2", "--error-3"].map((name) => colour(element, name));
}

/**
 * The error map: the ground is no error, the last stop `highest` and all above it.
 * @param {HTMLCanvasElement} canvas
 * @param {Picture} map
 * @param {number} highest  the largest finite error
 */
export function drawErrors(canvas, map, highest) {
  const stops = errorStops(canvas);
  draw(canvas, map, (value) => between(stops, highest > 0 ? value / highest : value > 0 ? 1 : 0));
}

/** @param {HTMLCanvasElement} canvas  one pixel high, as wide as its number of steps */
export function drawLegend(canvas) {
  const stops = errorStops(canvas);
  const values = Float32Array.from({ length: canvas.width }, (_, index) => index / (canvas.width - 1));
  draw(canvas, { height: 1, width: canvas.width, values }, (value) => between(stops, value));
}
