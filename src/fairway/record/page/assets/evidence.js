// What was tested and how it came out: the domain, the ladder, the errors, the first wrong node, remedies, findings.

const STATES = ["right", "wrong", "illegal"];
const OUTCOMES = { right: "right", wrong: "wrong", illegal: "not legal in PyTorch" };

const pointText = (story, sizes) => story.dims.map((dim, i) => `${dim.name}=${sizes[i] ?? "?"}`).join(", ") || "the fixed shape";
const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;
const wordy = (worst) => (worst > 9.95 ? `${worst < 1e7 ? whole(Number(worst.toPrecision(2))) : short(worst)} ×` : `${Number((worst * 100).toPrecision(2))} %`);

function summary(story) {
  const seen = story.evidence, graph = story.graph;
  const excused = seen ? seen.tested.filter((one) => one[7]).length : 0;
  const right = seen ? seen.counts[0] - excused : 0, legal = seen ? right + excused + seen.counts[1] : 0;
  const ratios = seen ? seen.outputs.map((one) => one.ratio).filter((one) => one !== null) : [];
  const peak = Math.max(0, ...story.ladder.map((rung) => rung.peak_mb));
  const tiles = [
    legal ? [`${whole(right)} of ${whole(legal)}`, "samples right"] : null,
    excused ? [whole(excused), "right by an excuse"] : null,
    ratios.length ? [wordy(Math.max(...ratios)), `${Math.max(...ratios) > 9.95 ? "" : "of "}the error allowed`] : null,
    story.ladder.length ? [seconds(story.ladder.reduce((sum, rung) => sum + rung.seconds, 0)), plural(story.ladder.length, "rung") + " walked"] : null,
    peak ? [`${whole(peak)} MB`, "memory at the peak"] : null,
    graph ? [bytes(graph.bytes), `${plural(graph.total, "node")}, opset ${graph.opset}`] : null,
    graph ? [whole(graph.modules[0][4]), "parameters"] : null,
  ];
  const said = {
    verified: "At every sample over the declared domain the file agrees with PyTorch, by the yardstick below.",
    wrong: "At legal inputs the file differs from PyTorch, or the runtime refuses them. Do not ship it.",
    unproven: "The samples were right, and something that a proof needs is missing.",
    failed: "No file came out that could be judged.",
    quantized: "A quantized file. It is not equal to PyTorch. Its loss was measured on samples kept for judging.",
    changed: "The file is not the one that its record is about.",
  }[story.verdict] || "Nothing is known of how right this file is.";
  return section("verdict", "Verdict", null,
    h("div", { class: "verdict" }, mark(story.verdict, { verified: "✓ verified", wrong: "✗ wrong", failed: "✗ failed" }[story.verdict]), h("span", {}, said)),
    cause(story), story.note ? h("div", { class: "remark" }, bdi(story.note)) : null,
    h("div", { class: "tiles" }, tiles.filter(Boolean).map(([value, text]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, text)))),
    seen ? h("dl", { class: "pairs small" }, pair("domain", story.dims.map((d) => `${d.name} ${d.low}..${d.high}${d.multiple > 1 ? ` in multiples of ${d.multiple}` : ""}${d.declared ? "" : " (not declared)"}`).join(", ") || "one fixed shape"),
      pair("samples", seen.samples), pair("yardstick", seen.yardstick), pair("second export", again(seen.again)),
      seen.second_runtime && seen.second_runtime !== "not asked for" ? pair("second runtime", seen.second_runtime) : null,
      seen.undecided ? pair("undecided", `${whole(seen.undecided)} whole numbers that PyTorch's own rounding decides`) : null) : null,
    quantized(story.quantized));
}

// The first error, since that is the first question.
function cause(story) {
  const first = story.verdict === "verified" ? null : story.findings.find((one) => one.severity === "error");
  if (!first) return null;
  const where = first.where.file ? `${first.where.file}:${first.where.line}` : first.where.node;
  return h("p", { class: "cause" }, h("a", { href: "#findings" }, bdi(first.code)), " ", bdi(first.title), where ? [", ", bdi(where, "code")] : null);
}

const pair = (name, value) => [h("dt", {}, name), h("dd", {}, bdi(String(value)))];
function again(leg) {
  if (!leg.done) return leg.note || "not done";
  return leg.same ? "from another example: the same file" : `from another example: ${plural(leg.differences.length, "difference")}${leg.harmless ? ", without effect on the results" : ""}`;
}
function quantized(made) {
  if (!made) return null;
  const rows = made.tried.map((one) => ({ kind: one.shipped ? "other" : null, cells: [bdi(one.scheme), percent(one.drop), percent(one.size_share), bdi(one.speed), one.shipped ? "shipped" : ""] }));
  return [h("h3", {}, "Variants that were tried"), h("p", { class: "soft" }, "From ", bdi(made.from), `; the drop is measured by ${made.metric}.`), table(["scheme", "drop", "size", "speed", ""], rows, [1, 2])];
}

function domain(story) {
  const seen = story.evidence;
  if (!seen || !seen.tested.length) return null;
  const counts = seen.counts, every = counts[0] + counts[1] + counts[2];
  const about = `${plural(counts[0], "sample")} right, ${whole(counts[1])} wrong${counts[2] ? `, ${whole(counts[2])} not legal in PyTorch` : ""}. ${counts[1] ? "Once a file is wrong for certain, no more samples are taken. " : ""}${every > seen.tested.length ? `Only ${whole(seen.tested.length)} of them are drawn, wrong ones first. ` : ""}Choose a mark to list its samples.`;
  const points = listing("minmax(9rem, 2fr) minmax(6rem, 1fr) 8rem 6rem minmax(8rem, 3fr)", ["sizes", "values", "outcome", { n: "of allowed" }, "note"], (one, made) => {
    const state = STATES[one[1]];
    made.append(bdi(pointText(story, one[0])), bdi(`${one[4]} #${one[5]}`, "soft"), h("span", {}, mark(state === "illegal" ? "none" : state, OUTCOMES[state])), h("span", { class: "n" }, one[2] === null ? "–" : short(one[2])), bdi([one[7] ? `excused: ${one[7]}` : "", one[6]].filter(Boolean).join("; "), "soft"));
    return made;
  }, { label: "Samples" });
  const search = h("input", { type: "search", placeholder: "e.g. time=10 or zeros", "aria-label": "Filter the samples", oninput: show });
  const state = choice("outcome ", ["all", "right", "wrong", "not legal"], show);
  const order = choice("order ", ["as taken", "largest error first"], show);
  const count = h("span", { class: "soft small", "aria-live": "polite" });
  const texts = seen.tested.map((one) => `${pointText(story, one[0])}, ${one[4]} #${one[5]} ${one[6]} ${one[7] ? `excused ${one[7]}` : ""}`.toLowerCase());
  function show() {
    const words = search.value.toLowerCase().split(/[\s,]+/).filter(Boolean), wanted = Number(state.select.value) - 1;
    let rows = seen.tested.filter((one, i) => (wanted < 0 || one[1] === wanted) && words.every((word) => texts[i].split(/[\s,]+/).some((part) => (word.includes("=") ? part === word : part.includes(word)))));
    if (order.select.value === "1") rows = [...rows].sort((a, b) => (b[1] === 1) - (a[1] === 1) || (b[2] ?? -1) - (a[2] ?? -1));
    count.textContent = `${whole(rows.length)} of ${whole(seen.tested.length)}`;
    points.show(rows);
  }
  const holder = h("div", { class: "picture" });
  const pick = (text) => { search.value = text; show(); };
  const tools = [];
  // The dim that ranges furthest goes across.
  const range = (i) => story.dims[i].high / Math.max(story.dims[i].low, 1), widest = story.dims.map((_, i) => i).sort((a, b) => range(b) - range(a));
  const axes = [widest[0] ?? 0, widest[1] ?? 0];
  if (story.dims.length > 2) {
    const names = story.dims.map((dim) => dim.name);
    const redraw = () => holder.replaceChildren(picture(story, axes[0], axes[1], pick));
    for (const which of [0, 1]) {
      const one = choice(which ? "upwards " : "across ", names, (n) => { axes[which] = n; redraw(); });
      one.select.value = axes[which];
      tools.push(one.element);
    }
  }
  holder.append(picture(story, axes[0], axes[1], pick));
  setTimeout(show);
  return section("domain", story.verdict === "verified" ? "Verified domain" : "Domain", about, tools.length ? h("div", { class: "tools" }, tools) : null, holder, legend(),
    seen.boundaries.length ? h("p", {}, h("strong", {}, "Boundary: "), bdi(seen.boundaries.join("; "))) : null,
    seen.smallest ? h("p", {}, h("strong", {}, "Smallest failing shape: "), bdi(pointText(story, seen.smallest))) : null,
    h("div", { class: "tools" }, search, state.element, order.element, count), points.element);
}

function legend() {
  const one = (made, text) => h("span", {}, s("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" }, made), text);
  return h("div", { class: "legend" }, one(dot("right", 0, 0), "right"), one(dot("wrong", 0, 0), "wrong"), one(dot("illegal", 0, 0), "not legal in PyTorch"), one(s("circle", { class: "dot example", r: 6 }), "the example"), one(s("rect", { class: "area", x: -6, y: -5, width: 12, height: 10 }), "declared"));
}
function dot(state, x, y, more) {
  if (state === "wrong") return s("path", { class: "dot wrong", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`, ...more });
  return s("circle", { class: `dot ${state}`, cx: x, cy: y, r: state === "right" ? 4 : 3.5, ...more });
}

// Two dims as axes; with one dim, the kinds of values upwards.
function picture(story, across, up, pick) {
  const seen = story.evidence, W = 900, H = 380, left = 74, right = 20, top = 24 + 15 * Math.max(1, seen.sides.length), bottom = 46;
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, width: W, role: "img", "aria-label": "The domain with the points tested" });
  if (!story.dims.length) {
    svg.setAttribute("viewBox", `0 0 ${W} 60`);
    svg.append(s("text", { x: 20, y: 35 }, "One fixed shape: there is no dim to draw along."));
    return svg;
  }
  const flat = story.dims.length === 1 || across === up;
  const kinds = [...new Set(seen.tested.map((one) => one[4]))];
  const axis = (dim, from, to) => { const low = Math.max(dim.low, 0), far = low > 0 && dim.high / low >= 60; return scale(low, dim.high === low ? low + 1 : dim.high, from, to, far); };
  const x = axis(story.dims[across], left + 14, W - right - 14);
  const y = flat ? (n) => H - bottom - ((n + 0.5) / kinds.length) * (H - top - bottom) : axis(story.dims[up], H - bottom - 12, top + 12);
  svg.append(s("rect", { class: "area", x: left, y: top, width: W - left - right, height: H - top - bottom, rx: 3 }));
  boundary(svg, story, across, up, flat, x, y, { W, H, left, right, top, bottom });
  for (const n of x.ticks()) svg.append(s("path", { class: "axis", d: `M${x(n)} ${H - bottom}v5` }), s("text", { x: x(n), y: H - bottom + 18, "text-anchor": "middle" }, whole(n)));
  svg.append(s("text", { class: "strong", x: (left + W - right) / 2, y: H - 8, "text-anchor": "middle" }, story.dims[across].name.slice(0, 60)));
  if (flat) kinds.forEach((kind, i) => svg.append(s("text", { x: left - 8, y: y(i) + 4, "text-anchor": "end" }, kind.slice(0, 11))));
  else {
    for (const n of y.ticks()) svg.append(s("path", { class: "axis", d: `M${left} ${y(n)}h-5` }), s("text", { x: left - 9, y: y(n) + 4, "text-anchor": "end" }, whole(n)));
    svg.append(s("text", { class: "strong", x: 8, y: 18 }, story.dims[up].name.slice(0, 60) + " ↑"));
  }
  const places = new Map();
  for (const one of seen.tested) {
    if (one[0][across] === null || (!flat && one[0][up] === null)) continue;
    const key = flat ? `${one[0][across]}/${one[4]}` : `${one[0][across]}/${one[0][up]}`;
    const place = places.get(key) || { one, counts: [0, 0, 0] };
    place.counts[one[1]]++;
    places.set(key, place);
  }
  for (const sizes of seen.probed) {  // seen wrong while the boundary was looked for, at the example's other sizes
    const key = flat ? `${sizes[across]}/${kinds[0]}` : `${sizes[across]}/${sizes[up]}`;
    if (sizes[across] !== null && (flat || sizes[up] !== null) && !places.has(key)) places.set(key, { one: [sizes, 1, null, [], kinds[0]], counts: [0, 1, 0], probed: true });
  }
  const order = [...places.values()].sort((a, b) => a.counts[1] - b.counts[1]);
  for (const { one, counts, probed } of order) {
    const state = counts[1] ? "wrong" : counts[0] ? "right" : "illegal";
    const px = x(one[0][across]), py = flat ? y(kinds.indexOf(one[4])) : y(one[0][up]);
    const text = flat ? `${story.dims[across].name}=${one[0][across]} ${one[4]}` : `${story.dims[across].name}=${one[0][across]} ${story.dims[up].name}=${one[0][up]}`;
    const made = dot(state, px, py, probed ? { opacity: 0.6 } : { "data-point": text, onclick: () => pick(text) });
    made.append(s("title", {}, probed ? `${text}: wrong, seen while the boundary was looked for` : `${text}: ${counts[0]} right, ${counts[1]} wrong${counts[2] ? `, ${counts[2]} not legal` : ""}`));
    svg.append(made);
  }
  if (!flat && story.example[across] !== null && story.example[up] !== null) svg.append(s("circle", { class: "dot example", cx: x(story.example[across]), cy: y(story.example[up]), r: 8 }));
  return svg;
}

function boundary(svg, story, across, up, flat, x, y, box) {
  const { W, H, left, right, top, bottom } = box;
  let said = 0;
  for (const [good, bad] of story.evidence.sides) {
    const apart = good.map((n, i) => i).filter((i) => good[i] !== bad[i]);
    if (apart.length !== 1 || good[apart[0]] === null || bad[apart[0]] === null) continue;
    const dim = apart[0], name = story.dims[dim].name.slice(0, 24);
    if (dim === across) {
      const at = (x(good[dim]) + x(bad[dim])) / 2, after = bad[dim] > good[dim];
      svg.append(s("rect", { class: "beyond", x: after ? at : left, y: top, width: Math.max(0, after ? W - right - at : at - left), height: H - top - bottom }),
        s("path", { class: "edge", d: `M${at} ${top}V${H - bottom}` }),
        s("text", { class: "said", x: at < left + 230 ? at : at - 6, y: top - 8 - 15 * said++, "text-anchor": at < left + 230 ? "start" : "end" }, `right at ${name}=${good[dim]}, wrong at ${bad[dim]}`));
    } else if (!flat && dim === up) {
      const at = (y(good[dim]) + y(bad[dim])) / 2, above = bad[dim] > good[dim];
      svg.append(s("rect", { class: "beyond", x: left, y: above ? top : at, width: W - left - right, height: Math.max(0, above ? at - top : H - bottom - at) }),
        s("path", { class: "edge", d: `M${left} ${at}H${W - right}` }),
        s("text", { class: "said", x: W - right - 6, y: at - 6, "text-anchor": "end" }, `right at ${name}=${good[dim]}, wrong at ${bad[dim]}`));
    }
  }
}

function ladder(story) {
  const rungs = story.ladder;
  if (!rungs.length) return null;
  const total = rungs.reduce((sum, rung) => sum + rung.seconds, 0) || 1;
  let begun = 0;
  const rows = rungs.map((rung) => {
    const start = (begun / total) * 1000, wide = Math.max(3, (rung.seconds / total) * 1000), exporting = rung.seconds ? Math.min(1, rung.export_seconds / rung.seconds) : 0;
    begun += rung.seconds;
    const bar = s("svg", { viewBox: "0 0 1000 14", preserveAspectRatio: "none", role: "img", "aria-label": `${seconds(rung.export_seconds)} exporting, ${seconds(rung.seconds - rung.export_seconds)} judging`, class: token(rung.verdict) },
      s("path", { class: "axis", d: "M0 7H1000" }), s("rect", { class: "fill", x: start, y: 1, width: wide * exporting, height: 12 }), s("rect", { class: "pale", x: start + wide * exporting, y: 1, width: wide * (1 - exporting), height: 12 }));
    const facts = [
      rung.samples ? h("p", {}, `${whole(rung.samples[0])} of ${whole(rung.samples[1])} samples right.`) : h("p", { class: "soft" }, "No file came so far as to be judged."),
      h("p", { class: "soft small" }, `${seconds(rung.export_seconds)} exporting (dark), ${seconds(rung.seconds - rung.export_seconds)} judging (pale), ${whole(rung.peak_mb)} MB at the peak. `, bdi(rung.evidence)),
      rung.findings.length ? table(["finding", "seen", "where"], rung.findings.map((one) => [h("code", {}, one.code), bdi(one.seen), bdi(one.where)])) : null,
      rung.remedies.length ? h("p", {}, "Remedies: ", bdi(rung.remedies.join(", "))) : null,
      rung.refused.length ? [h("h3", {}, "Remedies that do not apply"), table(["remedy", "because"], rung.refused.map((one) => [bdi(one.remedy), bdi(one.reason)]))] : null,
    ];
    return h("details", { class: "rung" }, h("summary", {}, bdi(rung.route), h("span", {}, mark(rung.verdict)), h("span", { class: "time" }, bar), h("span", { class: "n" }, seconds(rung.seconds)), h("span", { class: "n" }, `${whole(rung.peak_mb)} MB`)), h("div", {}, facts));
  });
  return section("ladder", "Ladder", "Each way of exporting that was tried, in order, from left to right in time. Open a rung for what it found.", rows);
}

function errors(story) {
  const seen = story.evidence;
  if (!seen || !seen.outputs.length) return null;
  const measured = seen.outputs.filter((one) => one.ratio !== null && one.dtype !== "exact");
  const rows = seen.outputs.map((one) => ({ kind: one.ratio !== null && one.ratio > 1 ? "other" : null, cells: [bdi(one.name), one.dtype, one.dtype === "exact" ? (one.ratio === 0 ? "equal" : "–") : short(one.ratio), short(one.file_error), short(one.own_error), ratioBar(one.ratio)] }));
  const holder = h("div", { class: "picture" });
  const names = ["the worst output", ...(seen.outputs.length > 1 ? seen.outputs.map((one) => one.name.slice(0, 60)) : [])];
  const draw = (which) => holder.replaceChildren(errorsAt(story, which - 1));
  const select = choice("output ", names, draw);
  draw(0);
  return section("errors", "Error against the yardstick", `An error is given in units of what is allowed (${seen.yardstick}). Beyond 1 the file is wrong.`,
    table(["output", "dtype", "of allowed", "file's error", "PyTorch's own", ""], rows, [2, 3, 4]),
    measured.length || seen.tested.some((one) => one[2] !== null) ? [h("h3", {}, "At each sample"), h("div", { class: "tools" }, select.element), holder] : null);
}

function ratioBar(ratio) {
  if (ratio === null) return "";
  const at = scale(1e-3, 1e3, 0, 220, true), end = Math.min(220, at(ratio));
  return s("svg", { width: 220, height: 14, class: ratio > 1 ? "wrong" : "right", "aria-hidden": "true" }, s("path", { class: "axis", d: "M0 7H220" }), s("rect", { class: "fill", x: 0, y: 3, width: ratio ? Math.max(2, end) : 0, height: 8, rx: 2 }), s("path", { class: "allowed", d: `M${at(1)} 0V14` }));
}

function errorsAt(story, which) {
  const tested = story.evidence.tested, W = 900, H = 260, left = 64, right = 16, top = 18, bottom = 34;
  const value = (one) => (which < 0 ? one[2] : one[3].length ? one[3][which] : one[2]);
  const values = tested.map(value).filter((n) => n !== null && n > 0);
  const low = Math.min(1e-3, ...values.length ? [values.reduce((a, b) => Math.min(a, b))] : []), high = Math.max(10, ...values.length ? [values.reduce((a, b) => Math.max(a, b))] : []);
  const x = scale(1, Math.max(tested.length, 2), left + 8, W - right - 8, false), y = scale(Math.max(low, 1e-9), high, H - bottom - 6, top + 10, true);
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, width: W, role: "img", "aria-label": "Error of each sample in units of what is allowed" }, s("rect", { class: "axis", x: left, y: top, width: W - left - right, height: H - top - bottom }));
  const steps = y.ticks().filter((n) => Math.abs(Math.log10(n) % 1) < 1e-9), every = Math.ceil(steps.length / 6);
  for (const n of steps.filter((_, i) => i % every === 0)) svg.append(s("text", { x: left - 8, y: y(n) + 4, "text-anchor": "end" }, short(n)));
  svg.append(s("path", { class: "allowed", d: `M${left} ${y(1)}H${W - right}` }), s("text", { x: W - right - 4, y: y(1) - 5, "text-anchor": "end" }, "allowed"), s("text", { class: "strong", x: (left + W - right) / 2, y: H - 6, "text-anchor": "middle" }, "samples in the order taken"));
  tested.forEach((one, i) => {
    if (one[1] === 2) return;
    const n = value(one), bad = n === null ? one[1] === 1 : n > 1;
    if (n === null && !bad) return;
    const made = dot(bad ? "wrong" : "right", x(i + 1), n === null ? top + 10 : y(n), {});
    if (!bad) made.setAttribute("r", tested.length > 400 ? 2.2 : 3.4);
    made.append(s("title", {}, `${pointText(story, one[0])}, ${one[4]} #${one[5]}: ${n === null ? one[6] || "not measured" : short(n)}`));
    svg.append(made);
  });
  return svg;
}

function source(where) {
  if (!where.source) return null;
  const lines = where.around.length ? where.around : [[where.line, where.source]];
  return h("pre", { class: "source", tabindex: 0 }, lines.map(([n, text]) => h("span", { class: n === where.line ? "hit" : null }, h("i", {}, n), bdi(text))));
}
function whereText(where) {
  const parts = [where.file ? `${where.file}${where.line ? `:${where.line}` : ""}` : "", where.function ? `in ${where.function}` : "", where.module ? `module ${where.module}` : "", where.node ? `node ${where.node}` : ""];
  return parts.filter(Boolean).join(", ");
}

function firstWrong(story) {
  const finding = story.findings.find((one) => one.at.node || one.at.value);
  if (!finding) return null;
  const detail = h("div", { class: "small", "aria-live": "polite" });
  return section("first-wrong", "Where the error begins", null, h("p", {}, h("code", {}, finding.code), " ", bdi(finding.seen)),
    finding.where.file ? h("p", { class: "small" }, "Your line: ", h("code", {}, bdi(whereText({ ...finding.where, node: "" })))) : null, source(finding.where),
    story.around ? [h("div", { class: "picture" }, neighborhood(story.around, detail)), detail, h("p", { class: "soft small" }, `From two steps before the node to two steps after it${story.around.left_out ? `; ${whole(story.around.left_out)} more nodes are not drawn` : ""}. Choose a node for its values.`)] : h("p", { class: "soft" }, "The file itself is not here, so that its nodes cannot be drawn."));
}

function neighborhood(around, detail) {
  const wide = 168, high = 46, gapX = 46, gapY = 14, columns = [-2, -1, 0, 1, 2].filter((c) => around.nodes.some((one) => one.column === c));
  const tallest = Math.max(...columns.map((c) => around.nodes.filter((one) => one.column === c).length));
  const W = columns.length * (wide + gapX) - gapX + 20, H = tallest * (high + gapY) + 10;
  const place = around.nodes.map((one) => {
    const peers = around.nodes.filter((other) => other.column === one.column), row = peers.indexOf(one);
    return { x: 10 + columns.indexOf(one.column) * (wide + gapX), y: (H - peers.length * (high + gapY) + gapY) / 2 + row * (high + gapY) };
  });
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H, class: "wide", role: "group", "aria-label": "Nodes around the first wrong one" });
  const tainted = new Set(around.nodes.flatMap((one, i) => (one.wrong ? [i] : [])));
  for (let round = 0; round < 4; round++) for (const [from, to] of around.edges) if (tainted.has(from)) tainted.add(to);
  for (const [from, to, name] of around.edges) {
    const a = place[from], b = place[to], x1 = a.x + wide, y1 = a.y + high / 2, y2 = b.y + high / 2;
    svg.append(s("path", { class: `wire${tainted.has(from) ? " bad" : ""}`, d: `M${x1} ${y1}C${x1 + 24} ${y1} ${b.x - 24} ${y2} ${b.x} ${y2}` }, s("title", {}, name)));
  }
  const cut = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);
  around.nodes.forEach((one, i) => {
    const choose = () => {
      svg.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
      box.classList.add("chosen");
      detail.replaceChildren(h("dl", { class: "pairs" }, pair("node", `${one.name} (${one.operator})`), one.module ? pair("module", one.module) : null, pair("takes", one.takes.join(", ") || "nothing"), pair("gives", one.gives.join(", "))));
    };
    const box = s("g", { class: `box${one.wrong ? " bad" : tainted.has(i) ? " after" : ""}`, tabindex: 0, role: "button", "aria-label": `${one.operator}, ${cut(one.name, 80)}${one.wrong ? ", the first wrong node" : ""}`, onclick: choose, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } } },
      s("rect", { x: place[i].x, y: place[i].y, width: wide, height: high, rx: 6 }),
      s("text", { class: "strong", x: place[i].x + 11, y: place[i].y + 19, "font-weight": 600 }, cut(one.operator, 22)),
      s("text", { x: place[i].x + 11, y: place[i].y + 36 }, cut(one.module || one.name, 24)), s("title", {}, cut(one.name, 300)));
    svg.append(box);
    if (one.wrong) choose();
  });
  return svg;
}

function remedies(story) {
  if (!story.remedies.length) return null;
  const used = new Set(story.remedies.map((one) => one.name)), last = story.ladder.findLast((rung) => rung.remedies.some((name) => used.has(name)));
  const first = story.ladder.find((rung) => rung !== last && !rung.remedies.some((name) => used.has(name)));
  const state = (rung) => [bdi(rung.route), mark(rung.verdict), rung.samples ? `${whole(rung.samples[0])} of ${whole(rung.samples[1])}` : "–", [...new Set(rung.findings.map((one) => one.code))].join(" ") || "–"];
  return section("remedies", "Remedies", "What was changed on the way to the file. The model itself is as it was, and the file was judged against the unchanged one.",
    first && last ? table(["", "route", "verdict", "samples right", "findings"], [["before", ...state(first)], ["after", ...state(last)]]) : null,
    story.remedies.map((one) => h("div", { class: "finding" }, h("h3", {}, h("code", {}, bdi(one.name)), one.cures ? h("span", { class: "soft" }, ` cures ${one.cures}`) : null),
      h("dl", {}, one.title ? pair("before", one.title) : null, pair("after", one.note), one.safety ? pair("safe", one.safety) : null))),
    story.rewritten.map((one) => [h("h3", {}, "Written anew: ", bdi(one.functions)), h("div", { class: "twin" }, h("div", {}, h("span", { class: "soft small" }, "before, as you wrote it"), h("pre", { tabindex: 0 }, bdi(one.before))), h("div", {}, h("span", { class: "soft small" }, "after, as it was exported"), h("pre", { tabindex: 0 }, bdi(one.after))))]));
}

function findings(story) {
  const told = story.findings.filter((one) => !(one.at.node || one.at.value));
  if (!told.length) return null;
  return section("findings", "Findings", null, told.map((one) => h("div", { class: `finding ${token(one.severity)}` },
    h("h3", {}, h("code", {}, one.code), " ", bdi(one.title)),
    h("dl", {}, pair("seen", one.seen), whereText(one.where) ? pair("where", whereText(one.where)) : null, one.why ? pair("why", one.why) : null, one.todo.length ? pair("do", one.todo.map((step, i) => `${i + 1}. ${step}`).join("\n")) : null, one.upstream.length ? pair("upstream", one.upstream.join(", ")) : null),
    source(one.where))));
}
