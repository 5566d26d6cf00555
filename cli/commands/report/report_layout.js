/* Layers from top to bottom (Sugiyama): ranks by longest paths, long edges through points of their own, orders by medians of neighbours,
   places by least squares. Groups are laid out from the inside; each has few children, so thousands of nodes take little. */
const GAP_X = 26, GAP_Y = 34, PAD = 16, HEAD = 30, POINTS_MOST = 4000;

function rankItems(items, edges) {
  items.sort((a, b) => a.first - b.first);
  items.forEach((item, i) => { item.at = i; item.rank = 0; item.ins = []; item.outs = []; item.point = false; });
  for (const e of edges) {
    e.back = e.from.at > e.to.at;
    const a = e.back ? e.to : e.from, b = e.back ? e.from : e.to;
    a.outs.push({item: b, edge: e});
    b.ins.push({item: a, edge: e});
  }
  for (const item of items)
    for (const next of item.outs) next.item.rank = Math.max(next.item.rank, item.rank + 1);
  for (let i = items.length - 1; i >= 0; i--)
    if (items[i].outs.length && !items[i].ins.length) items[i].rank = Math.min(...items[i].outs.map(o => o.item.rank)) - 1;
}

/* Edges from and to outside meet in a point at the top, and one at the bottom, of an open group. */
function makePorts(item) {
  item.ports = [];
  item.portEdges = [];
  for (const [set, first] of [["entries", -1], ["exits", Infinity]]) {
    if (!item.parent || !item[set].size) continue;
    const port = {port: set, w: 10, h: 0, first, id: -1};
    item.ports.push(port);
    for (const child of item[set])
      item.portEdges.push(set === "entries" ? {from: port, to: child, ends: []} : {from: child, to: port, ends: []});
  }
}

function rankPorts(items) {
  const last = items.reduce((most, i) => i.port ? most : Math.max(most, i.rank), 0);
  const low = items.reduce((least, i) => i.port ? least : Math.min(least, i.rank), last);
  for (const item of items) item.rank = item.port === "entries" ? 0 : item.port ? last - low + 2 : item.rank - low + 1;
}

/* Items without any edge lie in rows of their own below the rest. */
function placeLone(items) {
  const lone = items.filter(i => !i.ins.length && !i.outs.length), tied = items.filter(i => i.ins.length || i.outs.length);
  let rank = tied.reduce((most, i) => Math.max(most, i.rank), -1) + 1, wide = 0;
  const most = tied.length ? 700 : Math.max(900, Math.sqrt(items.reduce((s, i) => s + i.w * i.h, 0)) * 1.5);
  for (const item of lone) {
    if (wide + item.w > most && wide) { rank++; wide = 0; }
    item.rank = rank;
    wide += item.w + GAP_X;
  }
}

function makeLayers(items, edges) {
  const layers = [];
  const put = item => (layers[item.rank] = layers[item.rank] || []).push(item);
  for (const item of items) { put(item); item.up = []; item.down = []; }
  const span = edges.reduce((n, e) => n + Math.abs(e.to.rank - e.from.rank) - 1, 0);
  for (const e of edges) {
    const a = e.back ? e.to : e.from, b = e.back ? e.from : e.to;
    e.path = [];
    let last = a;
    for (let r = a.rank + 1; r < b.rank && span <= POINTS_MOST; r++) {
      const point = {point: true, rank: r, w: 10, h: 0, first: a.first, up: [], down: []};
      put(point);
      e.path.push(point);
      link(last, point);
      last = point;
    }
    link(last, b);
    if (e.back) e.path.reverse();
  }
  for (let r = 0; r < layers.length; r++) layers[r] = layers[r] || [];
  return layers;
}

function link(a, b) {
  const weight = a.point && b.point ? 8 : a.point || b.point ? 2 : 1;
  a.down.push({item: b, weight});
  b.up.push({item: a, weight});
}

function orderLayers(layers) {
  for (const layer of layers) layer.forEach((item, i) => { item.pos = i; });
  for (let turn = 0; turn < 8; turn++) {
    const down = turn % 2 === 0;
    for (let k = 0; k < layers.length; k++) {
      const layer = layers[down ? k : layers.length - 1 - k];
      if (layer.length < 2) continue;
      for (const item of layer) {
        const near = down ? item.up : item.down;
        item.mean = near.length ? near.reduce((s, n) => s + n.item.pos, 0) / near.length : item.pos;
      }
      layer.sort((a, b) => a.mean - b.mean || a.first - b.first);
      layer.forEach((item, i) => { item.pos = i; });
    }
  }
}

/* Least squares to the wished places without overlaps: blocks of items that touch, merged while they are out of order. */
function pack(layer) {
  const blocks = [];
  let offset = 0;
  for (const item of layer) {
    const half = item.w / 2;
    offset += half;
    let block = {sum: (item.wish - offset) * item.pull, weight: item.pull, items: [[item, offset]]};
    offset += half + GAP_X;
    while (blocks.length && blocks[blocks.length - 1].sum / blocks[blocks.length - 1].weight >= block.sum / block.weight) {
      const last = blocks.pop();
      last.sum += block.sum;
      last.weight += block.weight;
      for (const one of block.items) last.items.push(one);
      block = last;
    }
    blocks.push(block);
  }
  for (const block of blocks)
    for (const [item, at] of block.items) item.x = block.sum / block.weight + at;
}

function placeLayers(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const item of layer) { item.x = x + item.w / 2; x += item.w + GAP_X; }
    for (const item of layer) item.x -= x / 2;
  }
  for (let turn = 0; turn < 10; turn++) {
    for (let k = 0; k < layers.length; k++) {
      const layer = layers[turn % 2 === 0 ? k : layers.length - 1 - k];
      for (const item of layer) {
        const near = turn < 8 ? (turn % 2 === 0 ? item.up : item.down) : item.up.concat(item.down);
        const weight = near.reduce((s, n) => s + n.weight, 0);
        item.wish = weight ? near.reduce((s, n) => s + n.weight * n.item.x, 0) / weight : item.x;
        item.pull = weight || 0.1;
      }
      pack(layer);
    }
  }
  let y = 0;
  for (const layer of layers) {
    const high = layer.reduce((h, i) => Math.max(h, i.h), 0);
    for (const item of layer) { item.y = y + high / 2; item.tall = high; }
    y += layer.length ? high + (layer.every(i => i.port) ? GAP_Y / 2 : GAP_Y) : 0;
  }
}

/* Sizes a closed item; an open one by what lies in it, at places relative to its middle. */
function layout(item, size) {
  if (item.leaf >= 0 || !item.open) {
    [item.w, item.h] = size(item);
    return;
  }
  for (const child of item.children) layout(child, size);
  makePorts(item);
  const items = item.children.concat(item.ports), edges = item.edges.concat(item.portEdges);
  rankItems(items, edges);
  placeLone(items.filter(i => !i.port));
  if (item.ports.length) rankPorts(items);
  const layers = makeLayers(items, edges);
  orderLayers(layers);
  placeLayers(layers);
  let left = Infinity, right = -Infinity, bottom = 0;
  for (const layer of layers)
    for (const one of layer) {
      left = Math.min(left, one.x - one.w / 2);
      right = Math.max(right, one.x + one.w / 2);
      bottom = Math.max(bottom, one.y + one.h / 2);
    }
  const head = item.parent ? HEAD : 0, own = size(item)[0];
  item.w = Math.max(right - left + 2 * PAD, own);
  item.h = bottom + 2 * PAD + head;
  const dx = -(left + right) / 2, dy = PAD + head - item.h / 2;
  for (const layer of layers)
    for (const one of layer) { one.x += dx; one.y += dy; }
}
