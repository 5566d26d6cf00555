/* The graph on a canvas: zoom, pan, select, open and close. */
const FONT = '"DejaVu Sans", system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

function makeGraph(net, canvas, onSelect) {
  const pen = canvas.getContext("2d"), view = {scale: 1, x: 0, y: 0};
  const self = {net, tree: null, selected: null};
  let colors = {}, most = 0, planned = false;

  function readColors() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["page", "card", "ink", "soft", "line", "node", "group", "edge", "accent", "hot", "c0", "c1", "c2", "c3", "c4", "c5", "c6"])
      colors[name] = style.getPropertyValue("--" + name).trim();
  }

  function short(text, room) {
    return text.length > room ? "…" + text.slice(text.length - room + 1) : text;
  }

  function labels(item) {
    if (item.leaf >= 0) return [item.op, short(tail(item.name), 26)];
    const time = item.ns ? " · " + formatNs(item.ns) : "";
    return [short(item.section ? sectionName(item.name) : item.name, 34), item.count + (item.count === 1 ? " node" : " nodes") + time];
  }

  function tail(name) {
    const parts = name.split(net.separator).filter(s => s);
    return parts.length ? parts[parts.length - 1] : name;
  }

  function sectionName(name) {
    return name.split(" … ").map(n => short(tail(n), 15)).join(" … ");
  }

  function size(item) {
    pen.font = "600 12.5px " + FONT;
    const [a, b] = labels(item), wide = pen.measureText(a).width;
    pen.font = "11px " + FONT;
    const w = Math.max(wide, pen.measureText(b).width) + (item.leaf >= 0 ? 26 : 52);
    return [Math.max(item.leaf >= 0 ? 84 : 130, w), 42];
  }

  /* Places on the page, from those relative to the parents. */
  function absolute(item, x, y) {
    item.px = x + item.x;
    item.py = y + item.y;
    if (item.leaf >= 0 || !item.open) return;
    for (const child of item.children) absolute(child, item.px, item.py);
    for (const port of item.ports) { port.px = item.px + port.x; port.py = item.py + port.y; }
    for (const edge of item.edges.concat(item.portEdges))
      for (const point of edge.path) { point.px = item.px + point.x; point.py = item.py + point.y; }
  }

  self.arrange = () => {
    self.tree.root.x = self.tree.root.y = 0;
    layout(self.tree.root, size);
    absolute(self.tree.root, 0, 0);
    self.draw();
  };

  function heat(item) {
    return most > 0 && item.ns > 0 ? Math.sqrt(item.ns / most) : 0;
  }

  function box(x, y, w, h, r) {
    pen.beginPath();
    pen.roundRect(x - w / 2, y - h / 2, w, h, r);
  }

  function drawText(item, x, y) {
    const [a, b] = labels(item);
    pen.textAlign = "left";
    pen.fillStyle = colors.ink;
    pen.font = "600 12.5px " + FONT;
    pen.fillText(a, x, y - 3);
    if (view.scale < 0.5) return;
    pen.fillStyle = colors.soft;
    pen.font = "11px " + FONT;
    pen.fillText(b, x, y + 13);
  }

  function drawItem(item) {
    const small = view.scale < 0.22, left = item.px - item.w / 2, chosen = item === self.selected;
    box(item.px, item.py, item.w, item.h, 7);
    pen.fillStyle = item.leaf >= 0 ? colors.node : colors.card;
    pen.fill();
    if (heat(item)) {
      pen.globalAlpha = 0.08 + 0.5 * heat(item);
      pen.fillStyle = colors.hot;
      pen.fill();
      pen.globalAlpha = 1;
    }
    if (item.leaf < 0) {
      pen.setLineDash([]);
      pen.strokeStyle = colors.edge;
    } else {
      pen.setLineDash(net.nodes[item.leaf][4] === 0 && !net.lead[item.leaf] ? [4, 3] : []);
      pen.strokeStyle = colors.line;
    }
    pen.lineWidth = chosen ? 2.5 : 1.2;
    if (chosen) pen.strokeStyle = colors.accent;
    pen.stroke();
    pen.setLineDash([]);
    if (item.leaf >= 0) {
      pen.fillStyle = colors["c" + kindOf(item.op)];
      pen.beginPath();
      pen.roundRect(left, item.py - item.h / 2, 5, item.h, [7, 0, 0, 7]);
      pen.fill();
    }
    if (small) return;
    if (item.leaf < 0) {
      drawSign(item, left + 17, item.py, "+");
      drawText(item, left + 32, item.py);
    } else {
      drawText(item, left + 15, item.py);
    }
  }

  function drawSign(item, x, y, sign) {
    pen.strokeStyle = colors.soft;
    pen.lineWidth = 1.3;
    pen.beginPath();
    pen.roundRect(x - 7, y - 7, 14, 14, 4);
    pen.moveTo(x - 3.5, y);
    pen.lineTo(x + 3.5, y);
    if (sign === "+") { pen.moveTo(x, y - 3.5); pen.lineTo(x, y + 3.5); }
    pen.stroke();
  }

  function drawHead(item, left, top) {
    const [name] = labels(item);
    drawSign(item, left + 17, top + 17, "-");
    pen.textAlign = "left";
    pen.font = "600 12px " + FONT;
    pen.fillStyle = colors.group;
    pen.fillRect(left + 29, top + 8, pen.measureText(name).width + 6, 18);
    pen.fillStyle = colors.soft;
    pen.fillText(name, left + 32, top + 21);
  }

  function drawOpen(item) {
    const left = item.px - item.w / 2, top = item.py - item.h / 2;
    if (item.parent) {
      box(item.px, item.py, item.w, item.h, 10);
      pen.fillStyle = colors.group;
      pen.fill();
      pen.strokeStyle = item === self.selected ? colors.accent : colors.line;
      pen.lineWidth = item === self.selected ? 2.5 : 1.2;
      pen.stroke();
      for (const port of item.ports) drawPort(item, port, top);
      if (view.scale >= 0.22) drawHead(item, left, top);
    }
    for (const edge of item.edges.concat(item.portEdges)) drawEdge(edge);
    for (const child of item.children) drawTree(child);
  }

  function curve(x0, y0, x1, y1) {
    const mid = (y0 + y1) / 2;
    pen.bezierCurveTo(x0, mid, x1, mid, x1, y1);
  }

  function drawEdge(edge) {
    const a = edge.from, b = edge.to, near = a === self.selected || b === self.selected || holds(edge);
    let x = a.px, y = a.py + a.h / 2;
    const end = b.py - b.h / 2;
    if (Math.max(a.py + a.h / 2, end) < view.top || Math.min(y, end) > view.bottom) return;
    pen.strokeStyle = near ? colors.accent : colors.edge;
    pen.lineWidth = near ? 2 : 1.2;
    pen.beginPath();
    pen.moveTo(x, y);
    const long = !edge.path.length && !a.port && !b.port && end - y > 3 * GAP_Y && Math.abs(a.px - b.px) < 30;
    if (long) {
      const side = Math.max(a.w, b.w) / 2 + 40;
      pen.bezierCurveTo(x + side, y + 60, b.px + side, end - 60, b.px, end);
    }
    for (const p of edge.path) {
      const half = Math.sign(end - y || 1) * p.tall / 2;
      curve(x, y, p.px, p.py - half);
      pen.lineTo(p.px, p.py + half);
      x = p.px;
      y = p.py + half;
    }
    if (!long) curve(x, y, b.px, end);
    pen.stroke();
    if (view.scale < 0.3 || b.port) return;
    pen.fillStyle = near ? colors.accent : colors.edge;
    pen.beginPath();
    pen.moveTo(b.px, end);
    pen.lineTo(b.px - 4, end - 7);
    pen.lineTo(b.px + 4, end - 7);
    pen.fill();
  }

  function holds(edge) {
    const leaf = self.selected && self.selected.leaf;
    return leaf >= 0 && edge.ends.some(e => e[0] === leaf || e[1] === leaf);
  }

  /* From the border of an open group to where its edges from or to outside meet. */
  function drawPort(item, port, top) {
    pen.strokeStyle = colors.edge;
    pen.lineWidth = 1.2;
    pen.beginPath();
    if (port.port === "entries") { pen.moveTo(item.px, top); curve(item.px, top, port.px, port.py); }
    else { pen.moveTo(port.px, port.py); curve(port.px, port.py, item.px, top + item.h); }
    pen.stroke();
  }

  function drawTree(item) {
    if (item.px + item.w / 2 < view.left || item.px - item.w / 2 > view.right || item.py + item.h / 2 < view.top || item.py - item.h / 2 > view.bottom) return;
    if (item.leaf < 0 && item.open) drawOpen(item);
    else drawItem(item);
  }

  function paint() {
    planned = false;
    const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    pen.translate(w / 2, h / 2);
    pen.scale(view.scale, view.scale);
    pen.translate(-view.x, -view.y);
    view.left = view.x - w / 2 / view.scale;
    view.right = view.x + w / 2 / view.scale;
    view.top = view.y - h / 2 / view.scale;
    view.bottom = view.y + h / 2 / view.scale;
    drawTree(self.tree.root);
  }

  self.draw = () => {
    if (!planned) requestAnimationFrame(paint);
    planned = true;
  };

  self.fit = () => {
    const root = self.tree.root, w = canvas.clientWidth, h = canvas.clientHeight;
    const whole = Math.min(1.1, w / (root.w + 20), h / (root.h + 20));
    view.scale = Math.max(whole, Math.min(0.8, w / (root.w + 40)));
    view.x = 0;
    view.y = view.scale > whole ? -root.h / 2 + h / 2 / view.scale - 4 : 0;
    self.draw();
  };

  self.at = (x, y) => {
    const px = (x - canvas.clientWidth / 2) / view.scale + view.x, py = (y - canvas.clientHeight / 2) / view.scale + view.y;
    let found = null, item = self.tree.root;
    while (item) {
      const next = item.open ? item.children.find(c => Math.abs(px - c.px) <= c.w / 2 && Math.abs(py - c.py) <= c.h / 2) : null;
      if (next) found = next;
      item = next;
    }
    const sign = found && found.leaf < 0 && px - (found.px - found.w / 2) < 30 && (!found.open || py - (found.py - found.h / 2) < 30);
    return {item: found, sign};
  };

  /* Where the item is on the canvas. */
  self.where = item => [(item.px - view.x) * view.scale + canvas.clientWidth / 2, (item.py - view.y) * view.scale + canvas.clientHeight / 2];

  self.toggle = item => {
    const before = self.where(item);
    item.open = !item.open;
    self.arrange();
    const head = item.open ? item.py - item.h / 2 + 17 : item.py;
    view.x = item.px - (before[0] - canvas.clientWidth / 2) / view.scale;
    view.y = head - (before[1] - canvas.clientHeight / 2) / view.scale;
    self.draw();
  };

  self.select = item => {
    self.selected = item;
    onSelect(item);
    self.draw();
  };

  /* Opens what a node lies in, and goes there. */
  self.show = leaf => {
    const item = self.tree.leaf[leaf];
    for (let up = item.parent; up; up = up.parent) up.open = true;
    self.arrange();
    view.scale = Math.max(view.scale, 0.9);
    view.x = item.px;
    view.y = item.py;
    self.select(item);
  };

  self.openAll = open => {
    for (const item of self.tree.items) if (item.leaf < 0) item.open = open || !item.parent;
    if (!open) openFirst(self.tree);
    self.arrange();
    self.fit();
  };

  self.group = byKernel => {
    self.tree = makeTree(net, byKernel);
    self.selected = null;
    most = self.tree.root.children.reduce(function max(m, i) { return i.open ? i.children.reduce(max, m) : Math.max(m, i.ns); }, 0);
    self.arrange();
    self.fit();
    onSelect(null);
  };

  self.shown = () => {
    let n = 0;
    (function count(item) { if (item.leaf < 0 && item.open) item.children.forEach(count); else n++; })(self.tree.root);
    return n;
  };

  let drag = null;
  canvas.addEventListener("pointerdown", e => {
    canvas.setPointerCapture(e.pointerId);
    drag = {x: e.offsetX, y: e.offsetY, moved: false};
  });
  canvas.addEventListener("pointermove", e => {
    if (!drag) return;
    if (Math.abs(e.offsetX - drag.x) + Math.abs(e.offsetY - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    view.x -= (e.offsetX - drag.x) / view.scale;
    view.y -= (e.offsetY - drag.y) / view.scale;
    drag.x = e.offsetX;
    drag.y = e.offsetY;
    self.draw();
  });
  canvas.addEventListener("pointerup", e => {
    if (drag && !drag.moved) {
      const {item, sign} = self.at(e.offsetX, e.offsetY);
      if (sign) self.toggle(item);
      else self.select(item);
    }
    drag = null;
  });
  canvas.addEventListener("dblclick", e => {
    const {item, sign} = self.at(e.offsetX, e.offsetY);
    if (item && item.leaf < 0 && !sign) self.toggle(item);
  });
  canvas.addEventListener("wheel", e => {
    e.preventDefault();
    const factor = Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), scale = Math.min(3, Math.max(0.01, view.scale * factor));
    const dx = e.offsetX - canvas.clientWidth / 2, dy = e.offsetY - canvas.clientHeight / 2;
    view.x += dx / view.scale - dx / scale;
    view.y += dy / view.scale - dy / scale;
    view.scale = scale;
    self.draw();
  }, {passive: false});
  canvas.addEventListener("keydown", e => {
    const step = 60 / view.scale, moves = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step]};
    if (moves[e.key]) { view.x += moves[e.key][0]; view.y += moves[e.key][1]; }
    else if (e.key === "+" || e.key === "=") view.scale = Math.min(3, view.scale * 1.2);
    else if (e.key === "-") view.scale = Math.max(0.01, view.scale / 1.2);
    else if (e.key === "Enter" && self.selected && self.selected.leaf < 0) self.toggle(self.selected);
    else return;
    e.preventDefault();
    self.draw();
  });
  new ResizeObserver(() => self.draw()).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); self.draw(); });
  readColors();
  return self;
}
