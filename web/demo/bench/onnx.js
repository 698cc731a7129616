// The smallest ONNX model there is: one product D = A · B, as the bytes of its protocol buffer. Source of the field numbers:
// onnx/onnx.proto (ModelProto, GraphProto, NodeProto, ValueInfoProto), IR version 9, operator set 17.

/** @import { Product } from "./peers.js" */

/**
 * @param {number} value  not negative
 * @returns {number[]}
 */
function varint(value) {
  return value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))];
}

/**
 * @param {number} field
 * @param {number} value
 */
function number(field, value) {
  return [...varint(field * 8), ...varint(value)];
}

/**
 * @param {number} field
 * @param {number[] | string} content  bytes or text
 */
function bytes(field, content) {
  const data = typeof content === "string" ? [...new TextEncoder().encode(content)] : content;
  return [...varint(field * 8 + 2), ...varint(data.length), ...data];
}

/**
 * @param {string} name
 * @param {number} code  TensorProto.DataType
 * @param {number[]} shape
 */
function value(name, code, shape) {
  const dimensions = shape.flatMap((size) => bytes(1, number(1, size)));
  const tensor = [...number(1, code), ...bytes(2, dimensions)];
  return [...bytes(1, name), ...bytes(2, bytes(1, tensor))];
}

const INT32 = 6;

/**
 * A model with inputs a and b and output d: Gemm where B is transposed, MatMulInteger for integers, else MatMul.
 * @param {Product} product
 * @param {{ a: number, b: number }} codes  TensorProto.DataType of the operands
 */
export function matMulModel({ m, k, n, a, transposed }, codes) {
  const isInteger = a.endsWith("int8");
  const operator = isInteger ? "MatMulInteger" : transposed ? "Gemm" : "MatMul";
  const transpose = [...bytes(1, "transB"), ...number(3, 1), ...number(20, 2)];
  const node = [...bytes(1, "a"), ...bytes(1, "b"), ...bytes(2, "d"), ...bytes(4, operator), ...(transposed ? bytes(5, transpose) : [])];
  const graph = [
    ...bytes(1, node),
    ...bytes(2, "product"),
    ...bytes(11, value("a", codes.a, [m, k])),
    ...bytes(11, value("b", codes.b, transposed ? [n, k] : [k, n])),
    ...bytes(12, value("d", isInteger ? INT32 : codes.a, [m, n])),
  ];
  const operators = [...bytes(1, ""), ...number(2, 17)];
  return new Uint8Array([...number(1, 9), ...bytes(7, graph), ...bytes(8, operators)]);
}
