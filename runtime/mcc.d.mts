/** Runs networks that mcc compiled for wasm32, in browsers, Node.js and workers.
 *
 *     import {load} from './mcc.mjs';
 *     const net = await load('net.wasm');
 *     const {y} = net.run({x: new Float32Array(6)}, {n: 3});    // y.shape
 *
 * Every failure is an Error whose message begins with "mcc: ". A run is synchronous; one that fails leaves the network
 * usable. A network takes memory as its runs need it and gives none back.
 */
export type Tensor = Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array | Uint8Array |
  Uint16Array | Uint32Array | BigUint64Array;

export interface Port {
  readonly name: string;
  /** As mcc prints it: "f32", "i64", "bool", "f16". */
  readonly type: string;
  /** Of the typed array that holds its elements; f16, bf16 and 8-bit floats are bits, bool is 0 or 1. */
  readonly array: string;
  /** Of an element. */
  readonly bytes: number;
  /** A number, the name of a symbol, or an expression of such. */
  readonly dims: readonly (number | string)[];
}

/** An extent that a run decides: min to max, a multiple of step. */
export interface Symbol {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  readonly step: number;
}

export interface Network {
  readonly name: string;
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly symbols: readonly Symbol[];
  /** Row-major tensors by name, copied in and out. sizes: extents by the names that dims have; one that is left out
   * follows from the number of elements where an input leaves nothing else open. */
  run(inputs: Record<string, Tensor>, sizes?: Record<string, number>): Record<string, Tensor & {shape: number[]}>;
}

/** A module by its URL, its path (Node.js), or its bytes, which are checked to be whole. */
export function load(source: string | URL | ArrayBuffer | ArrayBufferView): Promise<Network>;
