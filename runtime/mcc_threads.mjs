// mcc.mjs with threads, for modules made with -mattr=+atomics: mcc_threads.d.mts
import {load as open} from './mcc.mjs';
const node = globalThis.process?.versions?.node;
const {Worker: Thread = globalThis.Worker, workerData} = node ? await import('node:worker_threads') : {};
const CPUS = node ? (await import('node:os')).availableParallelism() : globalThis.navigator?.hardwareConcurrency ?? 1;
const fail = why => { throw new Error(`mcc: ${why}`); };
const up = n => Math.ceil(n / 64) * 64;

// Words of the control block: the number of the launch, threads that are not done with it, the launch: kernel,
// arguments, and from the eighth byte of what follows on the count.
const GO = 0, LEFT = 1, KERNEL = 2, ARGS = 3, COUNT = 2;
const ENOUGH_NS = 2e4, RUN_BYTES = 64;

// This thread's indices; what fails, or has run, is in the three words of its run.
function part(code, control, {number, of, scratch, run}) {
  const count = new Float64Array(control.buffer)[COUNT], at = i => BigInt(Math.floor(count * i / of));
  if (at(number) < at(number + 1))
    code.__indirect_function_table.get(control[KERNEL])(control[ARGS], at(number), at(number + 1), scratch, run);
}

async function work({module, memory, control, thread}, ready) {
  const {exports: code} = await WebAssembly.instantiate(module, {env: {memory, mcc_launch() {}}});
  code.__stack_pointer.value = thread.stack;
  ready();
  for (let seen = 0; ; Atomics.sub(control, LEFT, 1)) {
    Atomics.wait(control, GO, seen);
    seen = Atomics.load(control, GO);
    const run = new BigInt64Array(memory.buffer, thread.run, 3).fill(0n);
    try { part(code, control, thread); } catch { run[0] = -1n; }
  }
}

if (workerData?.mcc) work(workerData.mcc, () => workerData.mcc.port.postMessage(0));
else if (!node && globalThis.name === 'mcc') onmessage = ({data}) => work(data, () => postMessage(0));

function start(given) {
  return new Promise((done, failed) => {
    if (node) {
      const {port1, port2} = new MessageChannel();
      const thread = new Thread(new URL(import.meta.url), {workerData: {mcc: {...given, port: port2}}, transferList: [port2]});
      thread.once('error', failed);
      port1.onmessage = () => { port1.close(); thread.unref(); done(thread); };
    } else {
      const thread = new Thread(import.meta.url, {type: 'module', name: 'mcc'});
      thread.onerror = e => failed(new Error(`mcc: a worker: ${e.message}`));
      thread.onmessage = () => done(thread);
      thread.postMessage(given);
    }
  });
}

export async function load(source, {threads = CPUS} = {}) {
  if (!(threads >= 1 && Number.isInteger(threads))) fail(`${threads} threads`);
  const workers = [], runs = [];
  const attach = async (module, {stack, scratch}) => {
    const [pages] = WebAssembly.Module.customSections(module, 'mcc.pages');
    if (!pages) fail('a module without threads: it is made with -mattr=+atomics');
    if (!globalThis.SharedArrayBuffer) fail('the page is not isolated: it has no SharedArrayBuffer');
    const memory = new WebAssembly.Memory({initial: +new TextDecoder().decode(pages), maximum: 65536, shared: true});
    const control = new Int32Array(new SharedArrayBuffer(64));
    let code;

    function launch(kernel, args, count, ns, scratch, run) {
      if (count < 2 || !runs.length || count * ns < ENOUGH_NS)
        return code.__indirect_function_table.get(kernel)(args, 0n, BigInt(count), scratch, run);
      control[KERNEL] = kernel;
      control[ARGS] = args;
      new Float64Array(control.buffer)[COUNT] = count;
      control[LEFT] = runs.length;
      Atomics.add(control, GO, 1);
      Atomics.notify(control, GO);
      part(code, control, {number: 0, of: threads, scratch, run});
      while (Atomics.load(control, LEFT)); // a page's own thread may not wait
      const result = at => new BigInt64Array(memory.buffer, at, 1);
      const failed = [run, ...runs].find(at => result(at)[0]);
      if (failed) result(run)[0] = result(failed)[0];
    }

    code = (await WebAssembly.instantiate(module, {env: {memory, mcc_launch: launch}})).exports;
    const first = up(code.__heap_base.value), each = RUN_BYTES + up(scratch) + up(stack), value = first + (threads - 1) * each;
    const more = Math.ceil((value - memory.buffer.byteLength) / 65536);
    if (more > 0) memory.grow(more);
    for (let i = 1; i < threads; i++) {
      const run = first + (i - 1) * each, thread = {number: i, of: threads, run, scratch: run + RUN_BYTES, stack: run + each};
      workers.push(await start({module, memory, control, thread}));
      runs.push(run);
    }
    return {exports: {...code, __heap_base: {value}}};
  };
  const net = await open(source, attach);
  // What runs later runs in this thread.
  const close = () => { runs.length = 0; workers.splice(0).forEach(w => w.terminate()); };
  return {...net, threads, close};
}
