/** mcc.mjs with threads: networks compiled by --target=wasm32 -mattr=+atomics, in Node.js and on cross-origin isolated pages.
 *
 *     import {load} from './mcc_threads.mjs';
 *     const net = await load('net.wasm', {threads: 4});
 *
 * Results are those of one thread. A page's own thread is busy while it waits for the others, as it is while it computes.
 */
import type {Network} from './mcc.mjs';

export interface ThreadedNetwork extends Network {
  readonly threads: number;
  /** Ends the workers; what runs later runs in the caller's thread. Those of Node.js keep no process alive. */
  close(): void;
}

/** threads: this one and workers; as many as the machine has, unless it is given. */
export function load(source: string | URL | ArrayBuffer | ArrayBufferView, options?: {threads?: number}): Promise<ThreadedNetwork>;
