// Runs modules through runtime/mcc.mjs, those with a number of threads through mcc_threads.mjs: a line of JSON in,
// {path, threads, inputs: [{data (base64), shape}]}, a line out,
// {outputs: [{type, data, shape}]} or {error}. Engines other than Node.js call answer() themselves.
import {createInterface} from 'node:readline';
import {load} from '../../runtime/mcc.mjs';
import {load as threaded} from '../../runtime/mcc_threads.mjs';

const nets = new Map();

async function answer({path, threads, inputs}) {
  const key = `${threads} ${path}`, given = {}, sizes = {};
  const net = nets.get(key) ?? await (threads ? threaded(path, {threads}) : load(path));
  if (!nets.has(key)) nets.forEach(n => n.close?.());
  nets.clear();
  nets.set(key, net);
  if (inputs.length !== net.inputs.length) throw new Error(`${inputs.length} inputs for ${net.inputs.length}`);
  net.inputs.forEach((port, i) => {
    const {data, shape} = inputs[i], bytes = Uint8Array.from(Buffer.from(data, 'base64'));
    if (shape.length !== port.dims.length) throw new Error(`'${port.name}' has rank ${port.dims.length}`);
    port.dims.forEach((d, k) => { if (typeof d === 'string') sizes[d] = shape[k]; });
    given[port.name] = new globalThis[port.array](bytes.buffer);
  });
  const results = net.run(given, sizes);
  return {outputs: net.outputs.map(({name, type}) => {
    const y = results[name];
    return {type, shape: y.shape, data: Buffer.from(y.buffer).toString('base64')};
  })};
}

for await (const line of createInterface({input: process.stdin})) {
  const result = await answer(JSON.parse(line)).catch(e => ({error: e.message}));
  process.stdout.write(JSON.stringify(result) + '\n');
}
