// What else was measured: which parts lose most when quantized, and how long calls take.

function sensitivity(found, number) {
  const rows = found.rows, total = rows.reduce((sum, row) => sum + (row.alone || 0), 0), weights = rows.reduce((sum, row) => sum + row.weights, 0);
  const all = found.all_quantized || 0, most = Math.max(...rows.map((row) => row.alone || 0), 1e-300);
  const kept = new Set();
  const list = listing("3rem minmax(10rem, 3fr) minmax(5rem, 1fr) 6rem minmax(6rem, 2fr) 5.5rem", [{ n: "" }, "group", "operators", { n: "lost alone" }, "", "kept in"], (row, made, i) => {
    const inside = kept.has(row);
    made.append(h("span", { class: "n soft" }, i + 1), bdi(row.modules.length === 1 ? row.modules[0] : row.group), bdi(row.operators.join(", "), "soft"), h("span", { class: "n", title: row.alone_error === null ? null : `± ${short(2 * row.alone_error)}` }, row.alone === null ? "–" : short(row.alone)), h("span", {}, h("span", { class: `stroke${inside ? " kept" : ""}`, style: `width: ${((row.alone || 0) / most) * 100}%` })), h("span", {}, mark(inside ? "doubt" : "none", inside ? "float" : "int8")));
    return made;
  }, { label: "Groups, what loses most first" });
  const said = h("p", { "aria-live": "polite" });
  const value = h("output", {});
  const low = all * 1e-3 || 1e-6, high = Math.max(all, low * 1.01);
  const slider = h("input", { type: "range", min: 0, max: 1000, value: 700, "aria-label": "Drop that may be lost", oninput: choose });
  function choose() {
    const budget = low * (high / low) ** (slider.value / 1000);
    kept.clear();
    let left = total;
    for (const row of rows) {
      if (!total || all * (left / total) <= budget * (1 + 1e-9)) break;
      kept.add(row);
      left -= row.alone || 0;
    }
    const held = [...kept].reduce((sum, row) => sum + row.weights, 0), drop = total ? all * Math.max(0, left / total) : all;
    value.textContent = percent(Number(budget.toPrecision(2)));
    said.textContent = `Keep ${whole(kept.size)} of ${plural(rows.length, "group")} in float${weights ? `, ${((held / weights) * 100).toFixed(0)} % of the weights` : ""}; the drop is then about ${percent(Number(drop.toPrecision(2)))}.`;
    list.refresh();
  }
  setTimeout(() => { list.show(rows); choose(); });
  return section(number ? `sensitivity-${number + 1}` : "sensitivity", "Sensitivity", `What is lost, by ${found.metric}, when one group alone is quantized; with everything quantized ${percent(all)}. ${whole(found.trials)} trials${found.finished ? "" : ", stopped by time"}.`,
    h("p", { class: "soft small" }, "From ", bdi(found.label)), h("div", { class: "tools" }, h("label", { class: "slide" }, h("span", {}, "may be lost"), slider, value)), said, list.element,
    h("p", { class: "soft small" }, "The slider estimates: it takes the losses of groups to add up in proportion. What a choice truly loses, fairway quantize measures."));
}

function bench(found, number) {
  const holder = h("div", {});
  const draw = (which) => holder.replaceChildren(...atPoint(found.points[which]));
  const select = choice("sizes ", found.points.map((one) => one.point), draw);
  if (found.points.length) draw(0);
  const arms = found.arms.map((one) => [bdi(one.name), one.threads === null ? "–" : one.threads, seconds(one.ready_seconds), one.peak_bytes === null ? "–" : bytes(one.peak_bytes), bdi(one.failure)]);
  const machine = Object.entries(found.machine).map(([key, value]) => `${key} ${value}`).join(", ");
  return section(number ? `bench-${number + 1}` : "bench", "Benchmark", "How long calls take: the whole distribution for each way of running, by ratio from left to right; the stroke is the median, the short one the 95th percentile. The slowest few lie beyond the right edge.",
    h("p", { class: "soft small" }, "From ", bdi(found.label), machine ? [": ", bdi(machine)] : null), h("div", { class: "tools" }, select.element), holder,
    h("h3", {}, "Each in a process of its own"), table(["", "threads", "ready in", "peak memory", ""], arms, [1, 2, 3]));
}

function atPoint(at) {
  const W = 900, left = 290, high = 46, top = 8, H = top + at.speeds.length * high + 30;
  const low = at.low || 1e-6, far = Math.max(at.high, low * 1.05), x = scale(low, far, left, W - 16, true);
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, width: W, role: "img", "aria-label": "Distributions of call durations" });
  const ticks = x.ticks(), marks = ticks.length > 1 ? ticks : [low, Math.sqrt(low * far), far];
  for (const n of marks) svg.append(s("path", { class: "axis", d: `M${x(n)} ${top}V${H - 24}` }), s("text", { x: Math.min(x(n), W - 30), y: H - 8, "text-anchor": "middle" }, seconds(n)));
  at.speeds.forEach((one, row) => {
    const base = top + (row + 1) * high - 6, most = Math.max(...one.bins, 1), step = (W - 16 - left) / one.bins.length;
    const line = one.bins.map((count, i) => `L${left + i * step} ${base - (count / most) * (high - 14)}H${left + (i + 1) * step}`).join("");
    svg.append(s("path", { class: "ridge", d: `M${left} ${base}${line}V${base}Z` }, s("title", {}, `${one.arm}: ${whole(one.calls)} calls`)), s("text", { class: "strong", x: left - 12, y: base - 8, "text-anchor": "end" }, one.arm.length > 42 ? `${one.arm.slice(0, 41)}…` : one.arm));
    if (one.p50) svg.append(s("path", { class: "tick", d: `M${x(one.p50)} ${base}v${-(high - 12)}` }));
    if (one.p95 && one.p95 <= far) svg.append(s("path", { class: "tick", d: `M${x(one.p95)} ${base}v-8` }));
  });
  const rows = at.speeds.map((one) => [bdi(one.arm), seconds(one.p50), seconds(one.p95), seconds(one.p99), one.arm === at.base ? "the others are compared with this" : bdi(one.ratio || "–"), whole(one.calls)]);
  const failed = Object.entries(at.failures).map(([arm, why]) => [bdi(arm), "–", "–", "–", bdi(`failed: ${why}`), "0"]);
  return [h("div", { class: "picture" }, svg), table(["", "p50", "p95", "p99", "speed", "calls"], [...rows, ...failed], [1, 2, 3, 5])];
}
