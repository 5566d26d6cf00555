/* The nodes as a tree: groups by prefixes of names, or by kernels; what is too wide is cut into sections. */
const WIDE = 60;

/* leaf: the node's number, -1 for a group; first, count, ns: the first node in it, how many, their time; edges: between its children; entries, exits: children that edges
   from outside reach, and that edges to outside leave. */
function makeItem(tree, name, parent) {
  const item = {id: tree.items.length, name, parent, children: [], leaf: -1, open: false, first: Infinity, count: 0, ns: 0, edges: [], entries: new Set(), exits: new Set()};
  tree.items.push(item);
  if (parent) parent.children.push(item);
  return item;
}

function pathOf(net, i, byKernel) {
  const [name, op, src, parent] = net.nodes[i];
  if (parent >= 0) {
    const up = pathOf(net, parent, byKernel);
    return up.concat([net.nodes[parent][0] || net.nodes[parent][1]]);
  }
  if (byKernel) {
    const lead = net.lead[i];
    return lead && net.members.get(lead).length > 1 ? ["kernel " + (net.rowName.get(lead) || lead)] : [];
  }
  if (net.bodies.has(i)) return prefix(net, name).concat([name || op]);
  return prefix(net, name);
}

function prefix(net, name) {
  const parts = name.split(net.separator).filter(s => s);
  parts.pop();
  return parts.slice(0, 40);
}

/* A group with one child is that child. */
function squeeze(item) {
  for (let i = 0; i < item.children.length; i++) {
    let child = item.children[i];
    while (child.leaf < 0 && child.children.length === 1) {
      const only = child.children[0];
      if (only.leaf < 0) only.name = child.name + "/" + only.name;
      only.parent = item;
      child = item.children[i] = only;
    }
    squeeze(child);
  }
}

/* Sections of a group that is too wide, in the order of the file. */
function cut(tree, item) {
  for (const child of item.children) cut(tree, child);
  if (item.children.length <= WIDE) return;
  const all = item.children.sort((a, b) => a.first - b.first), each = Math.max(16, Math.ceil(Math.sqrt(all.length)));
  item.children = [];
  for (let at = 0; at < all.length; at += each) {
    const part = all.slice(at, at + each);
    if (part.length === 1) { item.children.push(part[0]); continue; }
    const section = makeItem(tree, part[0].name + " … " + part[part.length - 1].name, item);
    section.section = true;
    section.children = part;
    for (const one of part) one.parent = section;
  }
}

function sum(net, item) {
  if (item.leaf >= 0) {
    item.first = item.leaf;
    item.count = net.nodes[item.leaf][4] === 0 ? 1 : 0;
    item.ns = net.ns[item.leaf] || 0;
    return;
  }
  item.first = Infinity;
  item.count = item.ns = 0;
  for (const child of item.children) {
    sum(net, child);
    item.first = Math.min(item.first, child.first);
    item.count += child.count;
    item.ns += child.ns;
  }
}

function depths(item, depth) {
  item.depth = depth;
  for (const child of item.children) depths(child, depth + 1);
}

/* Which children of the groups below `top` an edge reaches from outside, or leaves. */
function cross(leaf, top, set) {
  for (let item = leaf; item !== top; item = item.parent) item.parent[set].add(item);
}

/* An edge belongs to the group in which its ends lie in two different children. */
function lift(tree, net) {
  const seen = new Map();
  for (const [from, to, type] of net.edges) {
    let a = tree.leaf[from], b = tree.leaf[to];
    while (a.depth > b.depth && a.parent) a = a.parent;
    while (b.depth > a.depth && b.parent) b = b.parent;
    if (a === b) continue;
    while (a.parent !== b.parent) { a = a.parent; b = b.parent; }
    cross(tree.leaf[from], a, "exits");
    cross(tree.leaf[to], b, "entries");
    const key = a.id * tree.items.length + b.id;
    let edge = seen.get(key);
    if (!edge) {
      edge = {from: a, to: b, type, ends: [], n: 0};
      seen.set(key, edge);
      a.parent.edges.push(edge);
    }
    edge.n++;
    if (edge.ends.length < 4) edge.ends.push([from, to]);
  }
}

function makeTree(net, byKernel) {
  const tree = {items: [], leaf: []}, groups = new Map();
  tree.root = makeItem(tree, "", null);
  tree.root.open = true;
  for (let i = 0; i < net.nodes.length; i++) {
    let at = tree.root, key = "";
    for (const part of pathOf(net, i, byKernel)) {
      key += "\n" + part;
      if (!groups.has(key)) groups.set(key, makeItem(tree, part, at));
      at = groups.get(key);
    }
    const leaf = makeItem(tree, net.nodes[i][0] || net.nodes[i][1], at);
    leaf.leaf = i;
    leaf.op = net.nodes[i][1];
    tree.leaf[i] = leaf;
  }
  sum(net, tree.root);
  squeeze(tree.root);
  cut(tree, tree.root);
  sum(net, tree.root);
  depths(tree.root, 0);
  lift(tree, net);
  openFirst(tree);
  return tree;
}

/* Collapsed first, except for groups that would leave too little to look at. */
function openFirst(tree) {
  const shown = tree.root.children.slice();
  for (;;) {
    const groups = shown.filter(i => i.leaf < 0).sort((a, b) => b.count - a.count);
    const next = groups.find(g => shown.length - 1 + g.children.length <= 32 && g.count > tree.root.count / 3);
    if (!next || shown.length > 24) return;
    next.open = true;
    shown.splice(shown.indexOf(next), 1, ...next.children);
  }
}
