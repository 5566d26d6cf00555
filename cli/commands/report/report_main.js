/* The page from its data. */
(function () {
  const data = JSON.parse(document.getElementById("data").textContent), art = data.artifact, bench = data.bench || null;
  const get = id => document.getElementById(id);
  const kernels = bench ? bench.kernels : [], total = kernels.reduce((s, k) => s + k.ns, 0);
  const sources = new Map(art.kernels.flatMap(k => k.nodes.map((n, j) => [j ? k.also[j - 1] : k.node, n.source])).filter(([, source]) => source));

  /* What is asked of a node: its kernel's leading row, that one's name, the rows with it, the time. */
  function makeNet() {
    const nodes = data.graph.nodes, leadOf = new Map(), nsOf = new Map(kernels.map(k => [k.node, k.ns]));
    const net = {nodes, edges: data.graph.edges || [], lead: [], ns: [], rowName: new Map(), rowNode: new Map(), members: new Map(), bodies: new Set()};
    for (const k of art.kernels) {
      net.rowName.set(k.node, k.name);
      for (const row of [k.node, ...k.also]) leadOf.set(row, k.node);
    }
    nodes.forEach(([name, , src, parent], i) => {
      const lead = src ? leadOf.get(src) || 0 : 0;
      net.lead[i] = lead;
      if (lead) {
        if (!net.members.has(lead)) net.members.set(lead, []);
        net.members.get(lead).push(i);
      }
      if (src && !net.rowNode.has(src)) net.rowNode.set(src, i);
      if (src && src === lead && net.rowNode.get(src) === i) net.ns[i] = nsOf.get(src) || 0;
      if (parent >= 0) net.bodies.add(parent);
    });
    const slashes = nodes.filter(n => n[0].includes("/")).length, dots = nodes.filter(n => n[0].includes(".")).length;
    net.separator = slashes * 2 >= dots ? "/" : ".";
    return net;
  }

  function tiles() {
    const list = [];
    if (bench) {
      list.push([formatNs(bench.median_ns), `median of ${bench.runs} runs, ${bench.machine.threads} thread${bench.machine.threads > 1 ? "s" : ""}`]);
      if (bench.flops) {
        const rate = bench.flops / bench.median_ns, peak = bench.kernels.reduce((s, k) => s + k.peak * k.ns, 0) / bench.median_ns;
        list.push([rate.toFixed(rate < 100 ? 1 : 0) + " GFLOP/s", peak ? `${Math.round(100 * peak)}% of what this machine reaches` : "of multiply-adds"]);
      }
    }
    list.push([formatBytes(art.bytes.file), "file" + (art.bytes.sidecar ? " + " + formatBytes(art.bytes.sidecar) + " of weights" : ", weights and code")]);
    if (art.workspace) list.push([formatBytes(art.workspace.bytes), "memory of a run" + (art.workspace.at.length ? ", " + art.workspace.at.slice(0, 2).map(s => `${s.name}=${s.value}`).join(", ") + (art.workspace.at.length > 2 ? ", …" : "") : "")]);
    list.push([String(data.graph.nodes.filter(n => n[4] === 0).length), "nodes" + (data.graph.hidden ? `; ${data.graph.hidden} constant ones left out` : "")]);
    const count = art.kernels.reduce((s, k) => s + k.kernels, 0);
    list.push([String(count), `kernels for ${art.bytes.variants.length} CPU level${art.bytes.variants.length > 1 ? "s" : ""}`]);
    if (data.stages) list.push([formatNs(1e6 * Math.max(...data.stages.map(s => s[1] + s[2]))), "to compile"]);
    get("tiles").append(...list.map(([big, small]) => element("div", {class: "tile"}, element("b", {}, big), element("span", {}, small))));
  }

  function links(title, list, graph) {
    if (!list.length) return [];
    const items = list.slice(0, 30).map(([node, note]) => element("li", {}, element("a", {onclick: () => graph.show(node)}, net.nodes[node][0] || net.nodes[node][1]), note ? element("small", {}, note) : null));
    if (list.length > 30) items.push(element("li", {}, `and ${list.length - 30} more`));
    return [element("h4", {}, title), element("ul", {class: "links"}, ...items)];
  }

  function facts(rows) {
    return element("dl", {}, ...rows.flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)]));
  }

  function detailGroup(item) {
    const rows = [["Nodes", String(item.count)]], found = [];
    if (item.ns) rows.push(["Time", `${formatNs(item.ns)} (${(100 * item.ns / total).toFixed(1)}%)`]);
    (function walk(one) { if (one.leaf >= 0) found.push(one); else one.children.forEach(walk); })(item);
    const ops = new Map();
    for (const leaf of found) ops.set(leaf.op, (ops.get(leaf.op) || 0) + 1);
    const most = [...ops].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([op, n]) => `${n} ${op}`).join(", ");
    const slow = found.filter(l => l.ns).sort((a, b) => b.ns - a.ns).slice(0, 10).map(l => [l.leaf, formatNs(l.ns)]);
    return [element("h3", {}, item.parent ? item.name : art.name), element("p", {class: "kind"}, most), facts(rows), ...links("Slowest", slow, graph)];
  }

  function detailNode(i) {
    const [name, op, src, , kind] = net.nodes[i], lead = net.lead[i], kernel = art.kernels.find(k => k.node === lead), time = kernels.find(k => k.node === lead);
    const rows = [], parts = [element("h3", {}, name || op), element("p", {class: "kind"}, op)];
    if (kernel) {
      if (time) rows.push(["Time of its kernels", `${formatNs(time.ns)} (${(100 * time.ns / total).toFixed(1)}%)`], ["Of the limit", `${Math.round(100 * time.limit_ns / time.ns)}% (${time.limited_by === "fma" ? "arithmetic" : "memory"})`]);
      rows.push(["Operations", formatCount(kernel.flops)], ["Bytes", formatBytes(kernel.bytes)], ["Functions", [...new Set(kernel.functions.map(f => f.split("_")[0]))].slice(0, 6).join(" ")]);
    } else if (kind === 0 && src) {
      rows.push(["Kernel", "none: a view, or folded into its neighbours"]);
    }
    if (sources.has(src)) rows.push(["Source", sources.get(src)]);
    parts.push(facts(rows));
    const type = e => e[2];
    parts.push(...links("From", net.edges.filter(e => e[1] === i).map(e => [e[0], type(e)]), graph), ...links("To", net.edges.filter(e => e[0] === i).map(e => [e[1], type(e)]), graph));
    if (lead) parts.push(...links("In the same kernels", net.members.get(lead).filter(k => k !== i).map(k => [k, net.nodes[k][1]]), graph));
    return parts;
  }

  function detail(item) {
    const at = item || graph.tree.root;
    get("detail").replaceChildren(...(at.leaf >= 0 ? detailNode(at.leaf) : detailGroup(at)));
  }

  function search() {
    const box = get("search"), list = get("found");
    let at = 0, found = [];
    const pick = i => {
      if (found[i] === undefined) return;
      list.replaceChildren();
      graph.show(found[i]);
    };
    const update = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(w => w);
      found = [];
      for (let i = 0; words.length && i < net.nodes.length && found.length < 60; i++) {
        const text = [net.nodes[i][0], net.nodes[i][1], sources.get(net.nodes[i][2])].join(" ").toLowerCase();
        if (words.every(w => text.includes(w))) found.push(i);
      }
      at = 0;
      list.replaceChildren(...found.map((node, i) => element("li", {class: i === at ? "at" : "", onclick: () => pick(i)}, element("b", {}, net.nodes[node][1]), element("i", {}, net.nodes[node][0]))));
      if (words.length && !found.length) list.replaceChildren(element("li", {}, "nothing found"));
    };
    box.addEventListener("input", update);
    box.addEventListener("keydown", e => {
      if (e.key === "Enter") pick(at);
      else if (e.key === "Escape") list.replaceChildren();
      else if (e.key === "ArrowDown" || e.key === "ArrowUp") {
        at = Math.max(0, Math.min(found.length - 1, at + (e.key === "ArrowDown" ? 1 : -1)));
        [...list.children].forEach((li, i) => li.classList.toggle("at", i === at));
        list.children[at]?.scrollIntoView({block: "nearest"});
      } else return;
      e.preventDefault();
    });
    document.addEventListener("keydown", e => {
      if (e.key === "/" && document.activeElement !== box) { e.preventDefault(); box.focus(); }
    });
    document.addEventListener("pointerdown", e => { if (!e.target.closest(".search")) list.replaceChildren(); });
  }

  function fileGroups() {
    const groups = [], bytes = art.bytes, weights = [];
    let named = 0;
    for (const w of data.weights || []) {
      weights.push({name: w.name || "constant", bytes: w.bytes, more: `${w.type}[${w.dims.join(",")}]` + (w.padding ? `, ${formatBytes(w.padding)} of it padding` : "")});
      named += w.bytes;
    }
    if (bytes.weights > named) weights.push({name: data.weights ? "between the weights" : "weights", bytes: bytes.weights - named});
    groups.push({name: "Weights", color: 0, bytes: bytes.weights, items: bytes.weights ? fewest(weights, 600) : []});
    bytes.variants.forEach((variant, i) => {
      const items = art.functions.filter(f => f.variant === i + 1).map(f => ({name: f.name.replace(/^k\d+_[^.]*\./, "") || f.name, bytes: f.bytes, more: f.name}));
      groups.push({name: "Code for " + variant.cpu, color: 1 + i % 4, bytes: variant.code, items: fewest(items, 300)});
    });
    const rest = [["runtime", bytes.runtime], ["tables", bytes.tables], ["names of functions", bytes.names], ["graph for reports", bytes.graph], ["line tables", bytes.lines], ["padding between the parts", bytes.padding]].map(([name, n]) => ({name, bytes: n}));
    groups.push({name: "Rest", color: 6, bytes: rest.reduce((s, r) => s + r.bytes, 0), items: rest});
    return groups;
  }

  function fewest(items, most) {
    items.sort((a, b) => b.bytes - a.bytes);
    const rest = items.slice(most);
    return rest.length ? items.slice(0, most).concat([{name: rest.length + " smaller ones", bytes: rest.reduce((s, i) => s + i.bytes, 0)}]) : items;
  }

  function showRow(row) {
    if (!net.rowNode.has(row)) return;
    graph.show(net.rowNode.get(row));
    get("graph").scrollIntoView();
  }

  get("name").textContent = art.name || data.file;
  document.title = (art.name || data.file) + " – mcc report";
  get("what").textContent = `${data.file} · ${art.target} · ${art.bytes.variants.map(v => v.cpu).join(", ")} · ${art.compiler}`;
  tiles();
  const net = makeNet();
  const graph = makeGraph(net, get("canvas"), item => detail(item));
  const start = performance.now();
  graph.group(false);
  graph.ms = performance.now() - start;
  search();
  get("hint").textContent = data.graph.edges ? "Wheel zooms, drag moves, + opens a group" + (bench ? "; redder takes longer" : "") : "This file does not carry its edges: a report of the network draws them.";
  for (const [id, byKernel] of [["by-name", false], ["by-kernel", true]])
    get(id).addEventListener("click", () => {
      get("by-name").setAttribute("aria-pressed", String(!byKernel));
      get("by-kernel").setAttribute("aria-pressed", String(byKernel));
      graph.group(byKernel);
    });
  get("collapse").addEventListener("click", () => graph.openAll(false));
  get("expand").addEventListener("click", () => graph.openAll(true));
  get("fit").addEventListener("click", () => graph.fit());
  if (bench) {
    get("kernels-note").textContent = `${formatNs(total)} in all; the dark part of a bar is the time at the machine's limit`;
    drawKernels(get("kernels-body"), kernels, total, showRow);
    get("roofline-note").textContent = `this machine as measured beside it, ${bench.machine.threads} thread${bench.machine.threads > 1 ? "s" : ""}; the area of a dot is its time`;
    if (!drawRoofline(get("roofline-body"), kernels, bench.machine, total, showRow)) get("roofline").remove();
  } else {
    get("kernels-note").textContent = "not measured: " + data.not_run;
    get("roofline").remove();
  }
  const named = name => net.nodes.findIndex(n => n[0] === name);
  if (drawSearch(get("accuracy-body"), data.searched, name => { if (named(name) >= 0) graph.show(named(name)); get("graph").scrollIntoView(); })) {
    get("accuracy-note").textContent = "what --error knew: the line by errors of single products, dots measured";
  } else {
    get("accuracy").remove();
    document.querySelector('nav a[href="#accuracy"]').remove();
  }
  if (data.proof) {
    get("proof-note").textContent = data.proof.variants.map(v => `${v.variant}: ${v.proved} of ${v.kernels.length} kernels, program ${v.program.proved ? "proved" : "not proved" + (v.program.why ? ", because " + v.program.why : "")}` + (v.runs_here ? "" : " (this CPU does not run it)")).join("; ");
    drawProof(get("proof-body"), data.proof);
  } else {
    get("proof").remove();
    document.querySelector('nav a[href="#proof"]').remove();
  }
  if (data.memory && data.memory.buffers.length) {
    const {bytes} = drawMemory(get("memory-body"), data.memory, row => net.rowName.get(row));
    get("memory-note").textContent = `each box is a buffer: its place over the kernels it lives through; the line is what is alive, at most ${formatBytes(bytes)} of ${formatBytes(data.memory.bytes)}` + (data.memory.symbolic ? "; with every symbol at 1" : "");
  } else {
    get("memory-note").textContent = data.memory ? "no buffers between its kernels" : "This file does not carry the buffers of its memory plan: a report of the network draws them" + (art.workspace ? `; a run takes ${formatBytes(art.workspace.bytes)}` : "");
  }
  get("file-note").textContent = formatBytes(art.bytes.file) + (art.bytes.weights_padding ? `, ${formatBytes(art.bytes.weights_padding)} of the weights are padding` : "");
  drawTreemap(get("file-body"), fileGroups());
  if (data.stages) {
    const end = drawStages(get("compile-body"), data.stages);
    get("compile-note").textContent = `${formatNs(end * 1e6)}; stages below 0.05 ms are left out`;
  } else {
    get("compile-note").textContent = "a report of the network has its stages";
  }
  window.mccReport = {data, net, graph};
})();
