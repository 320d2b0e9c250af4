// The page itself: the head, the tabs, the sections of the record that is looked at, and the comparison.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main"), contents = document.getElementById("contents");

function environment(story) {
  const settings = Object.entries(story.settings).filter(([, value]) => value && value !== "None" && value !== "[]");
  return section("environment", "Environment, and how to reproduce", null,
    h("div", { class: "twin" },
      h("div", {}, table(["package", "version"], Object.entries(story.versions).map(([key, value]) => [bdi(key), bdi(value)]))),
      h("dl", { class: "pairs small" }, story.machine ? pair("machine", story.machine) : null, settings.map(([key, value]) => pair(key, value)), story.subject.class ? pair("model", story.subject.class) : null, pair("inputs", story.subject.inputs.join("\n") || "–"),
        story.subject.sha256 ? pair("model's sha256", story.subject.sha256) : null, story.sha256 ? pair("file's sha256", story.sha256) : null)),
    story.reproduce.length ? [h("h3", {}, "The same again"), h("p", { class: "soft small" }, "RECIPE.py is the file that builds the model; its path is not part of a record."), h("pre", { class: "take", tabindex: 0 }, bdi(story.reproduce.join("\n")))] : null);
}

const even = (made) => { made.firstChild.classList.add("even"); return made; };

function comparison(found) {
  const only = h("input", { type: "checkbox", checked: true, onchange: draw });
  const search = h("input", { type: "search", placeholder: "a fact, an operator, an output", "aria-label": "Filter the comparison", oninput: draw });
  const holder = h("div", {});
  const value = (one) => (one === null || one === undefined ? "–" : typeof one === "number" ? (Number.isInteger(one) ? whole(one) : short(one)) : bdi(one || "–"));
  const verdicts = found.facts.find((row) => row.name === "verdict");
  const changed = found.facts.filter((row) => row.differs).length;
  function rows(list, show) {
    const word = search.value.trim().toLowerCase();
    return list.filter((row) => (!only.checked || row.differs) && row.name.toLowerCase().includes(word)).map((row) => ({ kind: row.differs ? "other" : "same", cells: [bdi(row.name), ...row.values.map(show || value)] }));
  }
  function draw() {
    const heads = () => ["", ...found.labels.map((label) => bdi(label))];
    const parts = [["facts", found.facts], ["error by output, of what is allowed", found.outputs], ["nodes by operator", found.operators]].map(([title, list]) => [title, rows(list)]).filter(([, list]) => list.length);
    const points = found.points.rows.map((row) => ({ kind: "other", cells: [bdi(row.name), ...row.values.map((state) => h("span", {}, mark(STATES[state])))] }));
    holder.replaceChildren(...parts.flatMap(([title, list]) => [h("h3", {}, title), even(table(heads(), list))]),
      h("h3", {}, "samples that came out otherwise"), found.points.shared ? h("p", { class: "soft" }, `Of ${plural(found.points.shared, "point")} that all were tested at, ${whole(found.points.differ)} came out otherwise.`) : h("p", { class: "soft" }, "They have no tested point in common."), points.length ? even(table(heads(), points)) : "");
  }
  draw();
  return section("comparison", "What changed", null, verdicts ? h("div", { class: "verdict" }, verdicts.values.flatMap((verdict, i) => [i ? h("span", { class: "soft" }, "→") : null, h("span", {}, bdi(found.labels[i]), " ", mark(verdict))])) : null,
    h("p", { class: "soft" }, `${plural(changed, "fact")} of ${whole(found.facts.length)} differ.`), h("div", { class: "tools" }, h("label", {}, only, "only what differs"), search), holder);
}

function show(which) {
  lists.length = 0;
  const story = data.stories[which];
  const besides = [...data.sensitivity.map(sensitivity), ...data.bench.map(bench)];
  const sections = which < 0 ? [comparison(data.comparison), ...besides] : [summary, domain, ladder, errors, firstWrong, remedies, findings, graphSection].map((make) => make(story)).concat(data.comparison ? [] : besides, environment(story)).filter(Boolean);
  main.replaceChildren(...sections);
  contents.replaceChildren(...sections.map((one) => h("a", { href: `#${one.id}`, class: one.id === "first-wrong" ? "bad" : null }, one.querySelector("h2").textContent.replace(/,.*| against.*/, ""))));
}

function head() {
  const story = data.stories[0], alone = data.stories.length === 1;
  const title = alone ? [bdi(story.subject.name || story.label)] : [`${data.stories.length} files compared`];
  const about = alone ? [story.label, story.subject.class, story.route && `by ${story.route}`, story.opset && `opset ${story.opset}`] : data.stories.map((one) => one.label);
  document.getElementById("top").append(h("div", { class: "bar" }, data.back ? h("a", { href: data.back }, "← all records") : null, h("span", { class: "grow" }, "Fairway report"), colors(), h("button", { type: "button", onclick: () => print() }, "print")), h("h1", {}, title), h("div", { class: "soft" }, bdi(about.filter(Boolean).join(" · "))));
  document.getElementById("foot").append(`Made by ${data.made_by}. This page holds everything it shows and asks no other machine for anything.`);
  if (alone) return show(0);
  const tabs = [["What changed", -1], ...data.stories.map((one, i) => [one.label, i])].map(([text, which]) => h("button", { type: "button", role: "tab", "aria-selected": String(which < 0), tabindex: which < 0 ? 0 : -1, onclick: () => choose(which) }, bdi(text)));
  const choose = (which) => { tabs.forEach((tab, i) => { tab.setAttribute("aria-selected", i === which + 1); tab.tabIndex = i === which + 1 ? 0 : -1; }); show(which); };
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": "Files", onkeydown: (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = (tabs.findIndex((tab) => tab.tabIndex === 0) + step + tabs.length) % tabs.length;
    choose(at - 1);
    tabs[at].focus();
  } }, tabs);
  document.getElementById("top").append(bar);
  show(-1);
}

head();
