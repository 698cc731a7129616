// The shapes of what travels between the page and its Python worker. Types only; nothing runs here.

/**
 * A grid of numbers to draw, row by row.
 * @typedef {object} Picture
 * @property {number} height
 * @property {number} width
 * @property {Float32Array} values
 */

/**
 * @typedef {object} Summary
 * @property {number} rows
 * @property {number} columns
 * @property {string} type
 * @property {number} bytes
 * @property {number | undefined} lowest  undefined where no element is finite
 * @property {number | undefined} highest
 * @property {number} unfinite  how many elements are infinite or NaN
 * @property {string} note
 */

/** @typedef {Summary & { picture: Picture, error?: undefined }} OperandAnswer */
/** @typedef {{ error: string }} Fault */

/**
 * One row of the comparison. `seconds`, `gflops` and what follows exist once the state is "done".
 * @typedef {object} Lane
 * @property {"gpu" | "cpu" | "numpy"} lane
 * @property {"measuring" | "done" | "absent" | "skipped" | "failed"} state
 * @property {string} [reason]
 * @property {string} [adapter]
 * @property {string} [variant]
 * @property {number} [estimate]  seconds
 * @property {number} [first]  seconds of the first call
 * @property {number} [seconds]  median of the following calls
 * @property {number} [samples]
 * @property {number} [gflops]
 * @property {number} [gpu_seconds]  seconds on the device alone
 * @property {number} [error]  scaled: max|d| / max|reference|
 * @property {number} [row]
 * @property {number} [column]
 */

/**
 * @typedef {object} Errors
 * @property {number} error
 * @property {number} row
 * @property {number} column
 * @property {number | undefined} median
 * @property {number | undefined} most  the 99th percentile
 * @property {number} exact  how many elements have no error
 * @property {number} count
 * @property {number} unfinite
 * @property {number | undefined} differing  how many are not the reference rounded once; undefined where the reference cannot tell
 * @property {number} scale  max|reference|
 * @property {string} method
 * @property {number} rows_checked
 * @property {number} rows
 * @property {number} columns
 * @property {string} type
 * @property {{ row: number, column: number, error: number, got: string, expected: string }[]} worst
 * @property {Picture} map
 */

/**
 * @typedef {object} RunAnswer
 * @property {"gpu" | "cpu"} chosen
 * @property {"best" | "gpu" | "cpu"} asked
 * @property {string} mode
 * @property {Lane[]} lanes
 * @property {Summary} summary
 * @property {Picture} picture
 * @property {{ cells: string[][], rows: number, columns: number }} corner
 * @property {Errors} errors
 * @property {undefined} [error]
 */

/** @typedef {{ error: string, at: "sizes" | "device" | "run", lanes?: Lane[] }} RunFault */

/**
 * What the worker knows once Python is up.
 * @typedef {object} Ready
 * @property {string} python
 * @property {string} numpy
 * @property {string} py_gemm
 * @property {boolean} gpu
 * @property {string} no_gpu  why there is no GPU
 * @property {string} adapter
 * @property {string} description
 * @property {string} info
 * @property {string} pyodide
 * @property {SharedArrayBuffer | null} interrupt  two Int32: 2 in the first interrupts Python, 1 in the second asks a run to end; null where memory cannot be shared
 */

/**
 * How far loading has come.
 * @typedef {object} Progress
 * @property {string} text
 * @property {number} loaded  bytes
 * @property {number} total  bytes
 */

/** @typedef {{ id: number, verb: string, args: unknown[] }} Request */
/** @typedef {{ id: number, value?: any, fault?: string }} Reply */
/** @typedef {{ event: string, data: any }} Happening */

export {};
