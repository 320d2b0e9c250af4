// The graph by module: a tree of which only the rows in sight are drawn, and a search over all of its names.

function graphSection(story) {
  const graph = story.graph;
  if (!graph) return null;
  const modules = graph.modules.map(([parent, name, kind, nodes, parameters, held], index) => ({ index, parent, name, kind, nodes, parameters, held, modules: [], own: [], depth: 0 }));
  for (const one of modules) if (one.parent >= 0) { modules[one.parent].modules.push(one); one.depth = modules[one.parent].depth + 1; }
  graph.nodes.forEach((node, number) => modules[node[2]].own.push(number));
  const path = (one) => { const parts = []; for (let at = one; at && at.index > 0; at = modules[at.parent]) parts.unshift(at.name); return parts.join("."); };
  const open = new Set([0]);
  const most = modules[0].held || 1;

  const tree = listing("minmax(14rem, 3fr) minmax(6rem, 1.2fr) 5rem 7rem 6rem minmax(3rem, 1fr)", ["module", "kind", { n: "nodes" }, { n: "parameters" }, { n: "bytes" }, ""], (row, made) => {
    if (row.module) {
      const one = row.module, inside = one.modules.length + one.own.length > 0;
      made.setAttribute("aria-level", one.depth + 1);
      if (inside) made.setAttribute("aria-expanded", open.has(one.index));
      const label = row.found ? path(one) : one.index ? one.name : story.subject.name || "the whole graph";
      made.append(h("span", { style: `padding-left: ${row.found ? 0 : Math.min(one.depth, 20) * 16}px` }, h("span", { class: "twist", "aria-hidden": "true" }, row.found || !inside ? "" : open.has(one.index) ? "▾" : "▸"), bdi(label)), bdi(one.kind, "soft"), h("span", { class: "n" }, whole(one.nodes)), h("span", { class: "n" }, one.parameters ? whole(one.parameters) : "–"), h("span", { class: "n" }, one.held ? bytes(one.held) : "–"), h("span", {}, h("span", { class: "stroke", style: `width: ${Math.min(100, (one.held / most) * 100)}%` })));
    } else {
      const [name, operator, at] = graph.nodes[row.node];
      made.setAttribute("aria-level", modules[at].depth + 2);
      made.append(h("span", { style: `padding-left: ${row.found ? 0 : (Math.min(modules[at].depth, 20) + 1) * 16}px` }, h("span", { class: "twist" }), bdi(name, "code")), bdi(graph.operators[operator][0], "soft"), h("span"), h("span"), h("span"), bdi(row.found ? path(modules[at]) : "", "soft"));
    }
    return made;
  }, { role: "tree", label: "Modules and nodes", click: (row) => toggle(row), key: (event, list) => {
    const row = list.rows[list.active];
    if (!row) return false;
    if (event.key === "Enter" || event.key === " ") return toggle(row), true;
    if (!row.module || row.found) return false;
    const opened = open.has(row.module.index);
    if (event.key === "ArrowRight" && !opened) return toggle(row), true;
    if (event.key === "ArrowLeft" && opened) return toggle(row), true;
    if (event.key === "ArrowLeft") return list.activate(list.rows.findIndex((other) => other.module && other.module.index === row.module.parent)), true;
    return false;
  } });

  function rows() {
    const found = [], left = [{ module: modules[0] }];
    while (left.length) {
      const row = left.pop();
      found.push(row);
      if (row.module && open.has(row.module.index)) {
        for (let i = row.module.own.length - 1; i >= 0; i--) left.push({ node: row.module.own[i] });
        for (let i = row.module.modules.length - 1; i >= 0; i--) left.push({ module: row.module.modules[i] });
      }
    }
    return found;
  }
  function toggle(row) {
    if (!row || !row.module || row.found || !(row.module.modules.length + row.module.own.length)) return;
    if (!open.delete(row.module.index)) open.add(row.module.index);
    tree.show(rows());
  }
  const count = h("span", { class: "soft small", "aria-live": "polite" });
  const search = h("input", { type: "search", placeholder: "a module, a node or an operator", "aria-label": "Search the graph", oninput: find });
  let lowered = null;
  function find() {
    const word = search.value.trim().toLowerCase();
    tree.window.scrollTop = 0;
    tree.active = -1;
    if (!word) { count.textContent = ""; return tree.show(rows()); }
    lowered = lowered || { modules: modules.map((one) => path(one).toLowerCase()), nodes: graph.nodes.map((one) => one[0].toLowerCase()), operators: graph.operators.map((one) => one[0].toLowerCase()) };
    const found = modules.filter((one) => one.index && (lowered.modules[one.index].includes(word) || one.kind.toLowerCase().includes(word))).map((module) => ({ module, found: true }));
    graph.nodes.forEach((node, i) => { if (lowered.nodes[i].includes(word) || lowered.operators[node[1]].includes(word)) found.push({ node: i, found: true }); });
    count.textContent = `${whole(found.length)} found`;
    tree.show(found);
  }
  const listed = graph.nodes.length < graph.total ? ` The first ${whole(graph.nodes.length)} nodes are listed by name; all are counted.` : "";
  setTimeout(() => tree.show(rows()));
  const root = modules[0];
  while (open.size < 4) {  // down to where the model branches
    const only = modules[[...open].at(-1)];
    if (only.modules.length !== 1) break;
    open.add(only.modules[0].index);
  }
  return section("graph", "Graph", `${plural(root.nodes, "node")}, ${whole(root.parameters)} parameters in ${bytes(root.held)}, by the module that each comes from.${listed}`,
    operators(graph), h("div", { class: "tools" }, search, count, h("button", { type: "button", onclick: () => { open.clear(); open.add(0); search.value = ""; find(); } }, "collapse all")), tree.element,
    h("dl", { class: "pairs small" }, pair("takes", graph.inputs.join("\n")), pair("gives", graph.outputs.join("\n")), pair("made by", graph.producer || "unknown")));
}

function operators(graph) {
  const shown = graph.operators.slice(0, 12), rest = graph.operators.slice(12), most = shown.length ? shown[0][1] : 1;
  const row = ([name, count]) => [bdi(name), h("span", { class: "stroke", style: `width: ${(count / most) * 100}%` }), whole(count)];
  const wide = (rows) => table(["operator", "", "nodes"], rows.map(row), [2]);
  return h("details", {}, h("summary", {}, `${plural(graph.operators.length, "kind")} of operators: `, bdi(shown.slice(0, 5).map(([name, count]) => `${name} ${whole(count)}`).join(", ") + (graph.operators.length > 5 ? ", …" : ""))), h("div", {}, wide(shown), rest.length ? h("p", { class: "small" }, bdi(rest.slice(0, 200).map(([name, count]) => `${name} ${whole(count)}`).join(", "))) : null));
}
