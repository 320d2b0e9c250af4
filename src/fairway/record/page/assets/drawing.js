// Elements, numbers in words, scales, and a list that draws only what is seen. Text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== ""));
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// A name from a file: its direction of reading ends with it.
const bdi = (text, kind) => h("bdi", { class: kind || null, title: text.length > 60 ? text : null }, text);
const mark = (verdict, text) => h("span", { class: `mark ${token(verdict)}` }, text || verdict);
const token = (word) => (/^[a-z]+$/.test(word) ? word : "other");

function section(id, title, about, ...children) {
  return h("section", { id, "aria-label": title }, h("h2", {}, title), about ? h("p", { class: "soft" }, about) : null, ...children);
}

function table(heads, rows, numeric) {
  const cell = (tag, value, i) => h(tag, { class: (numeric || []).includes(i) ? "n" : null, scope: tag === "th" ? "col" : null }, value);
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((one, i) => cell("th", one, i)))),
    h("tbody", {}, rows.map((row) => h("tr", { class: row.kind || null }, (row.cells || row).map((one, i) => cell("td", one, i)))))));
}

function choice(label, options, onchange) {
  const select = h("select", { onchange: () => onchange(Number(select.value)) }, options.map((text, i) => h("option", { value: i }, text)));
  return { element: h("label", {}, label, select), select };
}

function colors() {
  const themes = ["auto", "light", "dark"], root = document.documentElement.dataset;
  const button = h("button", { type: "button", id: "theme", onclick: () => {
    const next = themes[(themes.indexOf(root.theme || "auto") + 1) % 3];
    if (next === "auto") delete root.theme; else root.theme = next;
    button.textContent = `colors: ${next}`;
  } }, "colors: auto");
  return button;
}

const whole = (n) => n.toLocaleString("en");
function short(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0";
  const size = Math.abs(n);
  return size >= 1e6 || size < 1e-3 ? n.toExponential(1).replace("e+", "e") : String(Number(n.toPrecision(3)));
}
const percent = (n) => (n === null || n === undefined ? "–" : `${short(n * 100)} %`);
function bytes(n) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= size) return `${(n / size).toPrecision(3)} ${unit}`;
  return `${n} B`;
}
function seconds(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0 s";
  return n >= 1 ? `${n.toFixed(1)} s` : n >= 1e-3 ? `${(n * 1e3).toPrecision(3)} ms` : `${(n * 1e6).toPrecision(3)} µs`;
}

// From a value to a place on the page; by ratio where the ends are far apart.
function scale(low, high, from, to, log) {
  const f = log ? (n) => Math.log(Math.max(n, low)) : (n) => n;
  const a = f(low), b = f(high), wide = b - a || 1;
  const at = (n) => from + ((f(n) - a) / wide) * (to - from);
  at.log = log;
  at.ticks = () => {
    if (high <= low) return [low];
    if (log) {
      const found = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
        for (const m of b - a < 7 ? [1, 2, 5] : [1]) found.push(m * 10 ** power);
      return found.filter((n) => n >= low && n <= high);
    }
    const step = 10 ** Math.floor(Math.log10((high - low) / 4)) || 1;
    const nice = [1, 2, 5, 10].map((m) => m * step).find((n) => (high - low) / n <= 7);
    const first = Math.ceil(low / nice) * nice;
    return Array.from({ length: Math.floor((high - first) / nice) + 1 }, (_, i) => first + i * nice);
  };
  return at;
}

// Rows of one height in a window: only those in sight are elements.
const HIGH = 28, lists = [];
function listing(columns, heads, draw, options) {
  const extra = options || {};
  const sizer = h("div", {});
  const seen = h("div", { class: "window", tabindex: 0, role: extra.role || "list", "aria-label": extra.label || null }, sizer);
  const element = h("div", { class: "list", style: `--columns: ${columns}` },
    heads ? h("div", { class: "head", "aria-hidden": "true" }, heads.map((one) => (typeof one === "object" ? h("span", { class: "n" }, one.n) : h("span", {}, one)))) : null, seen);
  const list = { element, window: seen, rows: [], active: -1 };
  let waiting = false;
  list.paint = (first, last) => {
    sizer.replaceChildren(...list.rows.slice(first, last).map((row, i) => {
      const made = h("div", { class: `row${first + i === list.active ? " active" : ""}`, style: `top: ${(first + i) * HIGH}px`, role: extra.role === "tree" ? "treeitem" : "listitem", "data-row": first + i });
      return draw(row, made, first + i);
    }));
  };
  list.refresh = () => {
    waiting = false;
    if (!list.rows.length) return sizer.replaceChildren(h("div", { class: "empty" }, "nothing to show"));
    const first = Math.max(0, Math.floor(seen.scrollTop / HIGH) - 6);
    list.paint(first, Math.min(list.rows.length, first + Math.ceil((seen.clientHeight || 360) / HIGH) + 12));
  };
  list.show = (rows) => {
    list.rows = rows;
    sizer.style.height = `${Math.max(rows.length, 1) * HIGH + 8}px`;
    seen.classList.toggle("short", rows.length * HIGH < 340);
    list.refresh();
  };
  list.activate = (n) => {
    list.active = Math.max(0, Math.min(list.rows.length - 1, n));
    const top = list.active * HIGH;
    if (top < seen.scrollTop) seen.scrollTop = top;
    else if (top + HIGH > seen.scrollTop + seen.clientHeight) seen.scrollTop = top + HIGH - seen.clientHeight;
    list.refresh();
  };
  seen.addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(list.refresh); } });
  seen.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (step !== undefined) { event.preventDefault(); list.activate(step === Infinity ? list.rows.length - 1 : step === -Infinity ? 0 : list.active + step); }
    else if (extra.key && extra.key(event, list)) event.preventDefault();
  });
  seen.addEventListener("click", (event) => {
    const row = event.target.closest("[data-row]");
    if (row) { list.activate(Number(row.dataset.row)); if (extra.click) extra.click(list.rows[list.active], list); }
  });
  lists.push(list);
  return list;
}
// On paper nothing scrolls: the first rows stand for the rest.
addEventListener("beforeprint", () => lists.forEach((list) => list.rows.length && list.paint(0, 40)));
addEventListener("afterprint", () => lists.forEach((list) => list.refresh()));
