// Runs networks that mcc compiled for wasm32: mcc.d.mts
const fail = why => { throw new Error(`mcc: ${why}`); };
const up = n => Math.ceil(n / 64) * 64;
const product = list => list.reduce((a, b) => a * b, 1);

async function read(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return new Uint8Array(source);
  if (globalThis.process?.versions?.node && !/^(https?|data|blob):/.test(source))
    return (await import('node:fs/promises')).readFile(source);
  const answer = await fetch(source);
  return answer.ok ? new Uint8Array(await answer.arrayBuffer()) : fail(`${source}: status ${answer.status}`);
}

export async function load(source, start) {
  const bytes = await read(source);
  const module = await WebAssembly.compile(bytes).catch(e => fail(`no module for this engine: ${e.message}`));
  const [section] = WebAssembly.Module.customSections(module, 'mcc');
  const text = section ? new TextDecoder().decode(section) : fail('no module of mcc');
  let sum = 0x811c9dc5;
  for (let i = 26; i < bytes.length; i++) sum = Math.imul(sum ^ bytes[i], 0x1000193);
  if (parseInt(text.slice(0, 8), 16) !== sum >>> 0) fail('the module is damaged');
  const about = JSON.parse(text.slice(8)), {name, inputs, outputs, symbols, entry, plan, scratch, plan_symbols} = about;
  start ??= about.stack ? fail('mcc_threads.mjs loads it') : WebAssembly.instantiate;
  const code = (await start(module, about)).exports, {memory} = code;

  // Addresses, and the end.
  function place(sizes) {
    const at = [up(code.__heap_base.value)];
    for (const n of sizes) at.push(at.at(-1) + up(n));
    const more = Math.ceil((at.at(-1) - memory.buffer.byteLength) / 65536);
    try {
      if (more > 0) memory.grow(more);
    } catch {
      fail(`no memory for ${at.at(-1)} bytes`);
    }
    return at;
  }

  // One extent may be missing.
  function extents({name, dims, array}, data, sizes) {
    if (data?.[Symbol.toStringTag] !== array) fail(`input '${name}' takes a ${array}`);
    const open = dims.filter(d => typeof d === 'string' && !(d in sizes));
    if (open.length === 1) sizes[open[0]] = data.length / product(dims.map(d => d === open[0] ? 1 : sizes[d] ?? d));
    const shape = dims.map(d => sizes[d] ?? d);
    const fits = data.length === product(shape) && shape.every(Number.isInteger);
    return fits ? shape : fail(`input '${name}' has ${data.length} elements, not [${shape}]`);
  }

  function run(given, known) {
    const sizes = {__proto__: null, ...known}, shapes = inputs.map(p => extents(p, given[p.name], sizes)), flat = shapes.flat();
    for (const {name, min, max, step} of symbols)
      if (!(sizes[name] >= min && sizes[name] <= max && sizes[name] % step === 0))
        fail(`'${name}' is ${sizes[name]}, not ${min}..${max} by ${step}`);
    const n = plan_symbols + 1 + outputs.flatMap(p => p.dims).length;
    let at = place([16, 64, 8 * flat.length, 8 * n, scratch]);
    const words = (i, count) => new BigInt64Array(memory.buffer, at[i], count);
    words(0, 2).set([BigInt(at[2]), BigInt(at[3])]);
    words(1, 8).fill(0n);
    words(2, flat.length).set(flat.map(BigInt));
    code[plan](at[0], 0n, 0n, at[4], at[1]);
    if (words(1, 1)[0]) fail(`shapes that do not fit: [${shapes.join('], [')}]`);
    const [arena, ...found] = [...words(3, n)].slice(plan_symbols).map(Number);
    for (const p of outputs) shapes.push(found.splice(0, p.dims.length));

    const ports = [...inputs, ...outputs];
    at = place([...ports.map((p, i) => product(shapes[i]) * p.bytes), up(scratch) + arena]);
    const view = i => new globalThis[ports[i].array](memory.buffer, at[i], product(shapes[i]));
    inputs.forEach((p, i) => view(i).set(given[p.name]));
    const error = code[entry](...symbols.map(s => BigInt(sizes[s.name])), ...at.slice(0, -1));
    if (error) fail(`error ${error} of the run: a size or a value`);
    const result = i => Object.assign(view(i).slice(), {shape: shapes[i]});
    return Object.fromEntries(outputs.map((p, i) => [p.name, result(inputs.length + i)]));
  }
  return {name, inputs, outputs, symbols, run};
}
