/* Tables and charts. What comes from the network gets onto the page as text only. */
const SVG = "http://www.w3.org/2000/svg";
const KINDS = [/^(Conv|Gemm|MatMul|QLinearConv|QLinearMatMul|MatMulInteger|ConvTranspose|ConvInteger|LSTM|GRU|RNN|.*Attention.*|MatMulNBits|Einsum)$/,
  /^(Relu|LeakyRelu|Clip|Sigmoid|HardSigmoid|HardSwish|Tanh|Gelu|Softmax|LogSoftmax|Erf|PRelu|Elu|Selu|Softplus|Mish|Swish)$/,
  /^(Add|Mul|Sub|Div|Pow|Sqrt|Exp|Log|Neg|Abs|Min|Max|Sum|Where|Equal|Greater|Less|And|Or|Not|Cast|Mod|Floor|Ceil|Round)$/,
  /^(.*Normalization|Reduce.*|.*Pool|ArgMax|ArgMin|TopK|CumSum)$/,
  /^(If|Loop|Scan|Sequence.*|.*Quantize.*|Optional.*)$/,
  /^(Reshape|Transpose|Concat|Split|Slice|Gather.*|Squeeze|Unsqueeze|Flatten|Expand|Pad|Tile|Resize|Shape|Identity|Scatter.*|DepthToSpace|SpaceToDepth)$/];

function kindOf(op) {
  const at = KINDS.findIndex(k => k.test(op));
  return at < 0 ? 6 : at;
}

function formatNs(ns) {
  return ns >= 1e9 ? (ns / 1e9).toFixed(2) + " s" : ns >= 1e6 ? (ns / 1e6).toFixed(2) + " ms" : ns >= 1e3 ? (ns / 1e3).toFixed(1) + " µs" : Math.round(ns) + " ns";
}

function formatBytes(n) {
  for (const unit of ["B", "KB", "MB"]) {
    if (n < 1000) return (unit === "B" || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + unit;
    n /= 1000;
  }
  return n.toFixed(2) + " GB";
}

function formatCount(n) {
  for (const unit of ["", " K", " M", " G"]) {
    if (n < 1000) return (unit === "" || n >= 100 ? Math.round(n) : n.toFixed(1)) + unit;
    n /= 1000;
  }
  return n.toFixed(2) + " T";
}

function element(tag, attributes, ...children) {
  const svg = ["svg", "g", "rect", "circle", "line", "path", "text"].includes(tag);
  const e = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else e.setAttribute(key, value);
  }
  for (const child of children) if (child !== null) e.append(child);
  return e;
}

function tipped(e, text) {
  const tip = document.getElementById("tip");
  e.addEventListener("pointermove", at => {
    tip.textContent = typeof text === "function" ? text() : text;
    tip.hidden = false;
    tip.style.left = Math.min(at.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(at.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
  });
  e.addEventListener("pointerleave", () => { tip.hidden = true; });
  return e;
}

/* A button for what comes after the first 20 rows. */
function addMore(body, list, add) {
  if (list.length <= 20) return;
  const more = element("button", {class: "more"}, "All " + list.length + " rows");
  more.addEventListener("click", () => { add(list.slice(20)); more.remove(); });
  body.append(more);
}

/* ---- kernels ---- */

function drawKernels(body, kernels, total, show) {
  const most = kernels.length ? kernels[0].ns : 1;
  const rows = element("tbody");
  const columns = element("colgroup", {}, ...["auto", "30%", "92px", "68px", "84px", "84px", "76px"].map(w => element("col", {style: "width:" + w})));
  const table = element("table", {}, columns, element("thead", {}, element("tr", {}, ...["Kernel", "", "Time", "Share", "GFLOP/s", "GB/s", "Of limit"].map(t => element("th", {}, t)))), rows);
  const add = list => {
    for (const k of list) {
      const bar = element("i", {style: "width:" + (100 * k.ns / most).toFixed(2) + "%"}, element("b", {style: "width:" + Math.min(100, 100 * k.limit_ns / k.ns).toFixed(1) + "%"}));
      const time = tipped(element("td", {class: "time"}, bar), "Dark: what the machine could do it in, " + formatNs(k.limit_ns) + (k.limited_by === "fma" ? ", limited by arithmetic" : ", limited by memory"));
      rows.append(element("tr", {onclick: () => show(k.node)}, element("td", {title: k.nodes.map(n => `${n.name} (${n.operator})`).join(" + ")}, k.nodes.map(n => n.name).join(" + "), element("span", {class: "op"}, k.operator)), time,
        element("td", {}, formatNs(k.ns)), element("td", {}, (100 * k.ns / total).toFixed(1) + "%"), tipped(element("td", {}, k.flops === null ? "-" : (k.flops / k.ns).toFixed(1)), k.peak === null ? "its peak is not known" : `${Math.round(100 * k.peak)}% of the peak of ${k.arithmetic}`),
        element("td", {}, (k.bytes / k.ns).toFixed(1)), element("td", {}, Math.round(100 * k.limit_ns / k.ns) + "%")));
    }
  };
  add(kernels.slice(0, 20));
  body.append(table);
  addMore(body, kernels, add);
}

/* ---- accuracy ---- */

/* Time over error of what the search of --error knew and tried, and a row for each product; false: there is nothing. Rows: KIND us error, or
   "product us-in-f32 us error TYPE: NAME". */
function drawSearch(body, list, show) {
  const read = kind => list.map(r => r.split(" ")).filter(r => r[0] === kind).map(r => [+r[1], +r[2]]).filter(p => p.every(v => v >= 0 && v < 1e18)).sort((a, b) => a[0] - b[0]);
  const [curve, tried, chosen, bound] = ["frontier", "tried", "chosen", "bound"].map(read), all = [...curve, ...tried, ...chosen], W = 1100, H = 380, L = 62, B = 40, R = 30, T = 16;
  const products = list.map(r => /^product (\S+) (\S+) (\S+) ([a-z0-9 ]+): (.*)$/.exec(r)).filter(r => r).map(r => [r[5], r[4], +r[1], +r[2], +r[3]]).filter(p => p.slice(2).every(Number.isFinite)).sort((a, b) => b[2] - a[2]);
  if (!chosen.length) return false;
  const errors = [...all, ...bound].map(p => p[1]).filter(e => e > 0), e0 = Math.max(-8, Math.floor(Math.log10(Math.min(1, ...errors)))), e1 = Math.max(e0 + 1, Math.ceil(Math.log10(Math.max(1e-8, ...errors))));
  const most = 1.05 * Math.max(1e-3, ...all.map(p => p[0])), X = us => L + us / most * (W - L - R), Y = e => H - B - (Math.log10(Math.max(e, 10 ** e0)) - e0) / (e1 - e0) * (H - B - T);
  const svg = element("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Error over time"}), ns = us => formatNs(1e3 * us);
  for (let e = e0; e <= e1; e++) svg.append(element("line", {class: "axis", x1: L, x2: W - R, y1: Y(10 ** e), y2: Y(10 ** e)}), element("text", {x: L - 8, y: Y(10 ** e) + 4, "text-anchor": "end"}, (e === e0 ? "≤ " : "") + (e < -2 ? `1e${e}` : 100 * 10 ** e + "%")));
  for (let i = 0; i <= 4; i++) svg.append(element("text", {x: X(most * i / 4), y: H - B + 16, "text-anchor": "middle"}, ns(most * i / 4)));
  svg.append(element("text", {x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle"}, "time of the products"));
  for (const [, e] of bound) svg.append(element("path", {class: "roof", "stroke-dasharray": "5 4", d: `M${L} ${Y(e)}H${W - R}`}), element("text", {x: W - R, y: Y(e) - 5, "text-anchor": "end", class: "ink"}, "bound"));
  if (curve.length) svg.append(element("path", {class: "roof", d: "M" + curve.map(p => X(p[0]) + " " + Y(p[1])).join("L")}));
  const dots = (points, r, color, what) => points.forEach(([us, e]) => svg.append(tipped(element("circle", {cx: X(us), cy: Y(e), r, fill: `var(--c${color})`}), `${what}\n${ns(us)}, error ${e}`)));
  dots(curve, 3, 6, "as the sum of what each product adds");
  dots(tried, 5, 2, "tried on samples that the search saw");
  dots(chosen, 7, 1, "chosen");
  const rows = element("tbody"), columns = element("colgroup", {}, ...["auto", "90px", "110px", "110px", "110px"].map(w => element("col", {style: "width:" + w})));
  const add = some => rows.append(...some.map(([name, type, f32, us, e]) => element("tr", {onclick: () => show(name)}, element("td", {title: name}, name), element("td", {}, type), element("td", {}, ns(f32)), element("td", {}, ns(us)), element("td", {}, e.toPrecision(3)))));
  add(products.slice(0, 20));
  body.append(svg, element("table", {}, columns, element("thead", {}, element("tr", {}, ...["Product", "Type", "In f32", "Chosen", "Error alone"].map(t => element("th", {}, t)))), rows));
  addMore(body, products, add);
  return true;
}

/* ---- proof ---- */

/* What is not proved comes first. */
function drawProof(body, proof) {
  const rows = element("tbody"), list = proof.variants.flatMap(v => v.kernels.map(k => [v.variant, k])).sort((a, b) => a[1].proved - b[1].proved);
  const columns = element("colgroup", {}, ...["auto", "140px", "50%"].map(w => element("col", {style: "width:" + w})));
  const words = k => k.proved ? "proved" + (k.axioms.length ? " under " + k.axioms.join(", ") : "") : "not proved, because " + k.why;
  const add = some => rows.append(...some.map(([cpu, k]) => element("tr", {}, element("td", {title: k.kernel}, k.kernel), element("td", {}, cpu), element("td", {title: words(k)}, words(k)))));
  add(list.slice(0, 20));
  body.append(element("table", {}, columns, element("thead", {}, element("tr", {}, ...["Kernel", "CPU", "Certificate"].map(t => element("th", {}, t)))), rows));
  addMore(body, list, add);
}

/* ---- roofline ---- */

function drawRoofline(body, kernels, machine, total, show) {
  const dots = kernels.filter(k => k.flops > 0 && k.bytes > 0 && k.ns > 0), W = 1100, H = 430, L = 56, B = 40, R = 130, T = 12;
  if (!dots.length) return false;
  const roofs = Object.entries(machine.peaks).filter(([name]) => name === "f32" || dots.some(k => k.arithmetic === name)), peak = Math.max(...roofs.map(r => r[1])), intensities = dots.map(k => k.flops / k.bytes), rates = dots.map(k => k.flops / k.ns);
  const x0 = Math.floor(Math.log10(Math.min(0.5, ...intensities))), x1 = Math.ceil(Math.log10(Math.max(100, ...intensities)));
  const y0 = Math.floor(Math.log10(Math.max(1e-3, Math.min(...rates)))), y1 = Math.log10(Math.max(peak, ...rates)) + 0.12;
  const X = v => L + (Math.log10(v) - x0) / (x1 - x0) * (W - L - R), Y = v => H - B - (Math.log10(Math.max(v, 10 ** y0)) - y0) / (y1 - y0) * (H - B - T);
  const svg = element("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Roofline"});
  for (let e = x0; e <= x1; e++) svg.append(element("line", {class: "axis", x1: X(10 ** e), x2: X(10 ** e), y1: T, y2: H - B}), element("text", {x: X(10 ** e), y: H - B + 16, "text-anchor": "middle"}, String(10 ** e)));
  for (let e = y0; e <= y1; e++) svg.append(element("line", {class: "axis", x1: L, x2: W - R, y1: Y(10 ** e), y2: Y(10 ** e)}), element("text", {x: L - 8, y: Y(10 ** e) + 4, "text-anchor": "end"}, String(10 ** e)));
  svg.append(element("text", {x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle"}, "operations per byte"), element("text", {x: L, y: T - 2}, "GFLOP/s"));
  machine.reads.forEach(read => {
    const knee = peak / read.gb_per_s, from = Math.max(10 ** x0, 10 ** y0 / read.gb_per_s);
    svg.append(element("path", {class: "roof", d: `M${X(from)} ${Y(from * read.gb_per_s)}L${X(knee)} ${Y(peak)}`, opacity: .75}));
    svg.append(element("text", {x: X(from) + 6, y: Y(from * read.gb_per_s) - 6, transform: `rotate(${-Math.atan2(Y(from * read.gb_per_s) - Y(peak), X(knee) - X(from)) * 180 / Math.PI} ${X(from)} ${Y(from * read.gb_per_s)})`}, formatBytes(read.bytes).replace(/\.0 /, " ") + ", " + read.gb_per_s.toFixed(0) + " GB/s"));
  });
  for (const [name, rate] of roofs) {
    const knee = rate / Math.max(...machine.reads.map(r => r.gb_per_s));
    svg.append(element("path", {class: "roof", d: `M${X(knee)} ${Y(rate)}H${W - R}`}), element("text", {x: W - R + 8, y: Y(rate) + 4, class: "ink"}, `${name} ${rate.toFixed(0)} GFLOP/s`));
  }
  dots.slice().sort((a, b) => b.ns - a.ns).forEach(k => {
    const dot = element("circle", {class: "on", cx: X(k.flops / k.bytes), cy: Y(k.flops / k.ns), r: Math.max(3, Math.min(26, 46 * Math.sqrt(k.ns / total))), fill: `var(--c${kindOf(k.operator)})`, "fill-opacity": .62, onclick: () => show(k.node)});
    svg.append(tipped(dot, `${k.name} (${k.operator})\n${formatNs(k.ns)}, ${(100 * k.ns / total).toFixed(1)}%\n${(k.flops / k.ns).toFixed(1)} GFLOP/s, ${(k.flops / k.bytes).toFixed(2)} operations per byte\n${Math.round(100 * k.limit_ns / k.ns)}% of the limit, which is ${k.limited_by === "fma" ? "arithmetic" : "memory"}`));
  });
  body.append(svg);
  return true;
}

/* ---- memory ---- */

function drawMemory(body, memory, names) {
  const n = memory.steps.length, live = new Float64Array(n + 1), W = 1000, H = 380, L = 62, B = 26, T = 10;
  for (const [, bytes, , first, last] of memory.buffers)
    for (let i = first; i <= last && i <= n; i++) live[i] += bytes;
  let full = 0;
  for (let i = 0; i < n; i++) if (live[i] > live[full]) full = i;
  const top = memory.bytes || 1, X = s => L + s / n * (W - L), Y = b => H - B - b / top * (H - B - T);
  const svg = element("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Memory over the run"});
  for (let i = 0; i <= 4; i++) svg.append(element("line", {class: "axis", x1: L, x2: W, y1: Y(top * i / 4), y2: Y(top * i / 4)}), element("text", {x: L - 8, y: Y(top * i / 4) + 4, "text-anchor": "end"}, formatBytes(top * i / 4)));
  const boxes = memory.buffers.slice().sort((a, b) => b[1] - a[1]).slice(0, 4000);
  for (const [name, bytes, offset, first, last] of boxes) {
    const on = first <= full && full <= last;
    const rect = element("rect", {class: "on", x: X(first), y: Y(offset + bytes), width: Math.max(1, X(last + 1) - X(first) - .6), height: Math.max(.6, Y(offset) - Y(offset + bytes) - .6), rx: 1.5, fill: on ? "var(--hot)" : "var(--accent)", "fill-opacity": on ? .75 : .42});
    svg.append(tipped(rect, `${name}\n${formatBytes(bytes)} at ${formatBytes(offset)}\nkernels ${first} to ${last} of ${n}`));
  }
  let path = "";
  for (let i = 0; i < n; i++) path += (i ? "L" : "M") + X(i + .5).toFixed(1) + " " + Y(live[i]).toFixed(1);
  svg.append(element("path", {d: path, fill: "none", stroke: "var(--ink)", "stroke-width": 1.4}), element("line", {x1: X(full + .5), x2: X(full + .5), y1: T, y2: H - B, stroke: "var(--hot)", "stroke-dasharray": "4 3"}));
  svg.append(element("text", {x: L, y: H - 6}, "first kernel"), element("text", {x: W, y: H - 6, "text-anchor": "end"}, "last of " + n));
  const list = element("ul", {class: "links"});
  const there = memory.buffers.filter(b => b[3] <= full && full <= b[4]).sort((a, b) => b[1] - a[1]);
  for (const [name, bytes] of there.slice(0, 12)) list.append(element("li", {title: name}, formatBytes(bytes), element("small", {}, name)));
  if (there.length > 12) list.append(element("li", {}, "and " + (there.length - 12) + " smaller ones"));
  body.append(element("div", {class: "two"}, svg, element("div", {}, element("h3", {style: "margin:0 0 8px;font-size:13px;overflow-wrap:anywhere"}, `Fullest: ${formatBytes(live[full])} in kernel ${full}` + (names(memory.steps[full]) ? ", " + names(memory.steps[full]) : "")), list)));
  return {full, bytes: live[full]};
}

/* ---- treemap ---- */

/* Rows of rectangles as near to squares as they get (Bruls, Huizing, van Wijk). */
function squarify(list, x, y, w, h, put) {
  const items = list.filter(i => i.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  let rest = items.reduce((s, i) => s + i.bytes, 0), at = 0;
  while (at < items.length && w > 0.5 && h > 0.5) {
    const side = Math.min(w, h), scale = w * h / rest;
    let row = [], sum = 0, worst = Infinity;
    for (let i = at; i < items.length; i++) {
      const more = sum + items[i].bytes, thick = more * scale / side;
      const ratio = Math.max(thick / (items[row.length ? at : i].bytes * scale / thick), (items[i].bytes * scale / thick) ? thick / (items[i].bytes * scale / thick) : Infinity, (items[at].bytes * scale / thick) / thick);
      if (row.length && ratio > worst) break;
      row.push(items[i]);
      sum = more;
      worst = ratio;
    }
    const thick = sum * scale / side;
    let along = 0;
    for (const item of row) {
      const length = item.bytes * scale / thick;
      if (w >= h) put(item, x, y + along, thick, length);
      else put(item, x + along, y, length, thick);
      along += length;
    }
    if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
    rest -= sum;
    at += row.length;
  }
}

function drawTreemap(body, groups) {
  const W = 1400, H = 420, svg = element("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Bytes of the file"});
  const total = groups.reduce((s, g) => s + g.bytes, 0);
  const label = (name, x, y, w, h) => {
    const room = Math.floor((w - 10) / 6.4);
    if (room < 4 || h < 18) return;
    svg.append(element("text", {x: x + 5, y: y + 14, class: "ink", "pointer-events": "none"}, name.length > room ? name.slice(0, room - 1) + "…" : name));
  };
  squarify(groups, 0, 0, W, H, (group, gx, gy, gw, gh) => {
    squarify(group.items, gx + 1.5, gy + 1.5, Math.max(0, gw - 3), Math.max(0, gh - 3), (item, x, y, w, h) => {
      const rect = element("rect", {class: "on", x, y, width: Math.max(.4, w - 1), height: Math.max(.4, h - 1), rx: 2, fill: `var(--c${group.color})`, "fill-opacity": .38});
      svg.append(tipped(rect, `${group.name}\n${item.name}\n${formatBytes(item.bytes)}, ${(100 * item.bytes / total).toFixed(2)}% of the file${item.more ? "\n" + item.more : ""}`));
      label(item.name.replace(/^onnx::/, ""), x, y, w, h);
    });
  });
  const legend = element("ul", {class: "legend"}, ...groups.filter(g => g.bytes).map(g => element("li", {}, element("i", {style: `background:var(--c${g.color})`}), `${g.name}: ${formatBytes(g.bytes)} (${(100 * g.bytes / total).toFixed(1)}%)`)));
  body.append(svg, legend);
}

/* ---- stages ---- */

function drawStages(body, stages) {
  const rows = stages.filter(s => s[2] >= 0.05), W = 1100, L = 170, R = 90, row = 19, H = rows.length * row + 24;
  const end = Math.max(...stages.map(s => s[1] + s[2])), X = ms => L + ms / end * (W - L - R);
  const svg = element("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Stages of the compilation"});
  rows.forEach(([name, start, ms, heap], i) => {
    const y = i * row;
    svg.append(element("text", {x: L - 12, y: y + 13, "text-anchor": "end", class: "ink"}, name), element("line", {class: "axis", x1: L, x2: W - R, y1: y + row, y2: y + row}));
    svg.append(tipped(element("rect", {class: "on", x: X(start), y: y + 3, width: Math.max(1.5, X(start + ms) - X(start)), height: row - 6, rx: 2, fill: "var(--accent)"}), `${name}\nfrom ${start.toFixed(1)} ms, ${ms.toFixed(2)} ms, ${(100 * ms / end).toFixed(1)}%\n${formatBytes(Math.max(0, heap))} of memory more`));
    svg.append(element("text", {x: X(start + ms) + 7, y: y + 13}, ms.toFixed(ms < 10 ? 1 : 0) + " ms"));
  });
  body.append(svg);
  return end;
}
