// The list: what lies in the folder and what is at work there, asked for every second, drawn again where it changed.

const main = document.getElementById("main");
const EVERY = 1000, AT_ONCE = 8, FRESH = 15;
const chosen = new Set();
let shelf = { records: [], running: [], folder: "" }, before = "", seen = null;

const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;
const spent = (n) => (n < 90 ? `${Math.round(n)} s` : n < 5400 ? `${Math.round(n / 60)} min` : `${(n / 3600).toFixed(1)} h`);
const when = (n) => { const d = new Date(n * 1000), two = (k) => String(k).padStart(2, "0"); return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}`; };
const verdict = (row) => (row.file === "changed" ? "changed" : row.verdict);
const report = (keys) => `report?${keys.map((key) => `of=${key}`).join("&")}`;

// An export that climbs: the rungs behind it, the one it is on, how far, and what is best so far.
function climbing(one) {
  const count = one.count && one.count.total ? one.count : null;
  const did = count ? count.done - count.started_with : 0, time = count ? count.updated_at - count.started_at : 0;
  const left = did > 0 && time >= 1 ? Math.max(0, (time / did) * (count.total - count.done) - (one.now - count.updated_at)) : null;
  const steps = one.finished.map((rung) => h("li", {}, bdi(rung.route), mark(rung.verdict), h("span", { class: "soft small" }, [seconds(rung.seconds), ...rung.codes].join(" "))));
  const now = one.route || one.label;
  const about = [one.route && one.label ? one.label : "", count ? `${whole(count.done)} of ${whole(count.total)} ${count.unit}` : "", left === null ? "" : `about ${spent(left)} left`].filter(Boolean).join(", ");
  return h("div", { class: "run" },
    h("div", { class: "top" }, h("b", {}, bdi(one.model || one.target)), h("span", { class: "soft" }, "to ", bdi(one.target)), one.part ? bdi(one.part, "soft") : null, h("span", { class: "n soft" }, spent(one.now - one.started_at))),
    h("ol", { class: "steps" }, steps, one.alive ? h("li", {}, h("span", { class: "mark now" }, bdi(now))) : null),
    count ? h("progress", { max: count.total, value: count.done, "aria-label": count.unit || "done" }) : null,
    h("div", { class: "small soft" }, one.alive ? bdi(about || "at work") : "Its process is gone; the next export in this folder tidies up.", one.best ? [" · best so far ", bdi(one.best)] : null));
}
const running = section("running", "At work", null, h("div", {}));

const search = h("input", { type: "search", placeholder: "a name, a route, a finding, a version", "aria-label": "Filter the records", oninput: draw });
const WORDS = ["all", "verified", "wrong", "unproven", "failed", "quantized", "changed", "unreadable"];
const kind = choice("verdict", WORDS, draw);
const orders = [["newest first", (a, b) => b.when - a.when], ["by name", (a, b) => (a.place < b.place ? -1 : 1)], ["largest error first", (a, b) => Number(b.worst || -1) - Number(a.worst || -1)]];
const order = choice("order", orders.map((one) => one[0]), draw);
const count = h("span", { class: "soft small", "aria-live": "polite" });
const compare = h("button", { type: "button", disabled: true, onclick: () => location.assign(report([...chosen])) }, "compare");
const none = h("button", { type: "button", onclick: () => { chosen.clear(); draw(); } }, "choose none");
const hint = h("p", { class: "soft" });

const list = listing("1.4rem minmax(9rem, 2.6fr) 6.2rem minmax(5rem, 1.5fr) minmax(8rem, 3.2fr) 5.4rem 5rem minmax(7rem, 2.1fr) 8.2rem", ["", "file", "verdict", "model", "domain", "right", { n: "of allowed" }, "route", "written"], (row, made) => {
  const box = h("input", { type: "checkbox", tabindex: -1, "aria-label": `choose ${row.place}`, onclick: (event) => { event.stopPropagation(); toggle(row); } });
  box.checked = chosen.has(row.key);
  if (seen && !seen.has(row.key) && Date.now() / 1000 - row.when < FRESH) made.classList.add("fresh");
  const gone = { missing: " (file missing)", "too large": " (large: not compared here)" }[row.file] || "";
  made.append(box, h("a", { href: report([row.key]), tabindex: -1, onclick: (event) => event.stopPropagation() }, bdi(row.place)), h("span", {}, mark(verdict(row))),
    bdi((row.model || row.note || "") + gone, gone || row.note ? "soft" : null), bdi(row.domain || "", "soft"), bdi(row.samples || "–"), h("span", { class: "n" }, bdi(row.worst || "–")), bdi(row.route || "–", "soft"), h("span", { class: "soft" }, when(row.when)));
  return made;
}, { label: "Records: up and down to move, space to choose, enter to open", key: (event, own) => {
  const row = own.rows[own.active];
  if (!row || !["Enter", " "].includes(event.key)) return false;
  if (event.key === "Enter") location.assign(report([row.key])); else toggle(row);
  return true;
} });

function toggle(row) {
  if (!chosen.delete(row.key) && chosen.size < AT_ONCE) chosen.add(row.key);
  draw();
}

function draw() {
  const word = search.value.trim().toLowerCase(), wanted = WORDS[Number(kind.select.value)];
  const fits = (row) => (wanted === "all" || verdict(row) === wanted) && [row.place, row.model, row.route, row.domain, row.findings, row.remedies, row.torch, row.note, verdict(row)].join(" ").toLowerCase().includes(word);
  const rows = shelf.records.filter(fits).sort(orders[Number(order.select.value)][1]);
  list.show(rows);
  count.textContent = `${whole(rows.length)} of ${plural(shelf.records.length, "record")}${shelf.left_out ? `, ${whole(shelf.left_out)} older ones left out` : ""}`;
  compare.disabled = chosen.size < 2;
  compare.textContent = chosen.size ? `compare ${chosen.size}` : "compare";
  none.classList.toggle("hidden", !chosen.size);
  hint.textContent = shelf.records.length ? "Choose two or more to compare them." : "No record lies in this folder yet. An export leaves one beside its file, and shows here while it runs.";
}

function take(said) {
  const places = new Set(said.records.map((row) => row.key));
  seen = seen || places;
  shelf = said;
  [...chosen].filter((key) => !places.has(key)).forEach((key) => chosen.delete(key));
  running.classList.toggle("hidden", !said.running.length);
  running.lastChild.replaceChildren(...said.running.map(climbing));
  title.replaceChildren(bdi(said.folder));
  document.title = `${said.running.length ? `(${said.running.length}) ` : ""}${said.folder} – Fairway`;
  draw();
}

const lost = h("div", { class: "remark hidden", role: "status" }, "No answer from `fairway ui`. Where it was stopped, start it again and open the address it prints.");
async function ask() {
  try {
    if (!document.hidden) {
      const answer = await fetch("shelf");
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      if (text !== before) take(JSON.parse(text));
      before = text;
      lost.classList.add("hidden");
    }
  } catch { lost.classList.remove("hidden"); }
  setTimeout(ask, EVERY);
}

const title = h("h1", {}, "…");
document.getElementById("top").append(h("div", { class: "bar" }, h("span", { class: "grow" }, "Fairway, live"), colors()), title);
main.replaceChildren(lost, running, section("records", "Records", null, hint, h("div", { class: "tools" }, search, kind.element, order.element, compare, none, count), list.element));
running.classList.add("hidden");
document.getElementById("foot").append("Served from this machine, to this machine. Nothing here can change a file.");
draw();
ask();
