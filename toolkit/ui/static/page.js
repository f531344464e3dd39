"use strict";
const $ = (id) => document.getElementById(id);
const [ID, PARENT, KIND, TITLE, STATUS, START, END, NOTE, TOKENS, COST, QUESTION] = Array(11).keys();
const FAILED = new Set(["error", "refused", "unended"]);

const runs = { all: [], buttons: new Map() };
const run = {
  id: "", source: null, summary: null, steps: [], children: new Map(), depth: [], folded: new Set(), visible: [],
  active: -1, selected: -1, kind: "all", text: "", found: null, isDrawn: true,
};
let rowHeight = 32;

// what things are made of: text is only ever text

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function listFacts(target, facts) {
  target.replaceChildren(...Object.entries(facts).filter(([, value]) => value !== "").map(([name, value]) => {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", value));
    return pair;
  }));
}

function showState(target, state) {
  target.textContent = state;
  target.className = "state " + state.split(" ")[0];
}

function sayLength(seconds) {
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 2 : 1) + " s";
  return Math.floor(seconds / 60) + " min " + Math.round(seconds % 60) + " s";
}

function sayCost(cost) {
  return cost === null ? "" : cost.toPrecision(3);
}

function sayTime(seconds) {
  const time = new Date(seconds * 1000), today = new Date().toDateString() === time.toDateString();
  return today ? time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : time.toLocaleDateString();
}

let silence = 0;
function say(text) {
  $("said").textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => { $("said").textContent = ""; }, 4000);
}

// The token is this tab's and this origin's alone; no cookie, which would reach other ports.
const TOKEN = "toolkit-viewer-token";

async function enter() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code === null) return;
  history.replaceState(null, "", "#");
  const answer = await fetch("/page", { method: "POST", body: JSON.stringify({ code }) });
  const given = await answer.json();
  if (!answer.ok) throw new Error(given.problem);
  sessionStorage.setItem(TOKEN, given.token);
}

async function ask(path, options = {}) {
  const headers = { ...options.headers, Authorization: "Bearer " + sessionStorage.getItem(TOKEN) };
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => null);
  throw new Error(problem ? problem.problem : "The viewer refused: open the link that it printed.");
}

// the list of runs

async function listRuns() {
  try {
    const answer = await (await ask("/runs")).json();
    runs.all = answer.runs;
    $("place").textContent = answer.path + (answer.runs.length === answer.most ? ", the newest " + answer.most : "");
    drawRuns();
    const current = runs.all.find((each) => each.id === run.id);
    if (current && current.state === "running" && run.source === null) follow();
  } catch (error) {
    $("place").textContent = "The viewer can't be reached: " + error.message;
  }
}

function nameRun(summary) {
  return summary.prompt || summary.agent || summary.id.slice(0, 12);
}

function drawRuns() {
  const wanted = $("run-filter").value.toLowerCase();
  const shown = runs.all.filter((each) =>
    !wanted || [nameRun(each), each.id, each.state, each.ending, each.model, each.agent].join(" ").toLowerCase().includes(wanted));
  const kept = new Set(shown.map((each) => each.id));
  for (const [id, button] of runs.buttons) if (!kept.has(id)) { button.parentNode.remove(); runs.buttons.delete(id); }
  let before = null;
  for (const summary of shown) {
    const button = runs.buttons.get(summary.id) || makeRunButton(summary.id);
    fillRunButton(button, summary);
    const place = before === null ? $("run-list").firstChild : before.nextSibling;
    if (button.parentNode !== place) $("run-list").insertBefore(button.parentNode, place);
    before = button.parentNode;
  }
  $("no-runs").hidden = runs.all.length > 0;
}

function makeRunButton(id) {
  const button = make("button"), item = make("li");
  button.type = "button";
  button.append(make("span", "dot"), make("span", "name"), make("span", "when"), make("span", "more"));
  button.addEventListener("click", () => openRun(id));
  item.append(button);
  runs.buttons.set(id, button);
  $("run-list").append(item);
  return button;
}

function fillRunButton(button, summary) {
  const [dot, name, when, more] = button.children;
  dot.className = "dot " + summary.state.split(" ")[0];
  name.textContent = nameRun(summary);
  when.textContent = summary.started ? sayTime(summary.started) : "";
  const facts = [summary.ending && summary.ending !== "complete" ? summary.ending : summary.state, summary.model,
    summary.tool_calls + " calls", summary.tool_errors ? summary.tool_errors + " failed" : ""];
  more.textContent = facts.filter(Boolean).join(" · ");
  button.setAttribute("aria-current", summary.id === run.id);
}

// one run

function openRun(id, step = -1) {
  if (run.source) run.source.abort();
  Object.assign(run, { id, source: null, summary: null, steps: [], children: new Map(), depth: [], folded: new Set(),
    visible: [], active: -1, selected: -1, found: null, text: "", kind: "all", wanted: step });
  $("search").value = "";
  for (const each of $("kinds").children) each.setAttribute("aria-pressed", each.dataset.kind === "all");
  $("no-run").hidden = true;
  $("run-body").hidden = false;
  $("tree").scrollTop = 0;
  closeStep();
  show("run");
  for (const [each, button] of runs.buttons) button.setAttribute("aria-current", each === id);
  follow();
  draw();
}

function show(view) {
  document.body.dataset.view = view;
  const place = run.id ? "#" + run.id + (run.selected >= 0 ? "/" + run.selected : "") : "#";
  history.replaceState(null, "", place);
}

function follow() {
  const source = run.source = new AbortController(), id = run.id;
  const takers = {
    begin: ({ is_new }) => { if (is_new) { run.steps = []; run.children = new Map(); run.depth = []; } },
    steps: ({ steps }) => takeSteps(steps),
    summary: showSummary,
    end: () => { source.abort(); if (run.source === source) run.source = null; },
  };
  listen("/runs/" + id + "/live", source, (kind, data) => { if (run.id === id && takers[kind]) takers[kind](data); });
}

// As an EventSource does, which can send no header: read events until aborted, and connect again where that breaks off.
async function listen(path, source, take) {
  for (let last = ""; !source.signal.aborted; await new Promise((resolve) => setTimeout(resolve, 1000))) {
    try {
      const answer = await ask(path, { signal: source.signal, headers: last ? { "Last-Event-ID": last } : {} });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = "", piece = await reader.read(); !piece.done; piece = await reader.read()) {
        const events = (text + piece.value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const fields = Object.fromEntries(event.split("\n").map((line) => {
            const at = line.indexOf(": ");
            return [line.slice(0, at), line.slice(at + 2)];
          }));
          if (fields.id) last = fields.id;
          if (fields.event) take(fields.event, JSON.parse(fields.data));
        }
      }
    } catch (error) {
      if (!source.signal.aborted) say(error.message);
    }
  }
}

function takeSteps(rows) {
  for (const row of rows) {
    if (run.steps[row[ID]] === undefined) {
      const siblings = run.children.get(row[PARENT]);
      if (siblings) siblings.push(row[ID]); else run.children.set(row[PARENT], [row[ID]]);
      run.depth[row[ID]] = row[PARENT] === null ? 0 : run.depth[row[PARENT]] + 1;
    }
    run.steps[row[ID]] = row;
  }
  if (run.wanted >= 0 && run.steps[run.wanted]) { const step = run.wanted; run.wanted = -1; openStep(step); }
  if (rows.some((row) => row[ID] === run.selected)) refreshStep();
  draw();
}

function showSummary(summary) {
  run.summary = summary;
  $("run-title").textContent = nameRun(summary);
  document.title = nameRun(summary).slice(0, 60) + " - runs";
  showState($("run-state"), summary.state);
  const took = summary.ended === null ? "" : sayLength(summary.ended - summary.started);
  listFacts($("run-facts"), {
    ended: summary.ending, took, model: summary.model, requests: String(summary.requests),
    calls: summary.tool_calls + (summary.tool_errors ? " (" + summary.tool_errors + " failed)" : ""),
    agents: summary.sub_agents ? String(summary.sub_agents) : "",
    tokens: summary.input_tokens.toLocaleString() + " + " + summary.output_tokens.toLocaleString(),
    cost: sayCost(summary.cost), started: new Date(summary.started * 1000).toLocaleString(), id: summary.id.slice(0, 12),
  });
  const problem = [summary.error, summary.problem].filter(Boolean).join(". ");
  $("run-problem").hidden = !problem;
  $("run-problem").textContent = problem;
  draw();
}

// which steps are shown, and where

function isWanted(step) {
  if (run.kind === "failed" && !FAILED.has(step[STATUS])) return false;
  if (run.kind === "waiting" && step[STATUS] !== "waiting") return false;
  if ((run.kind === "model" || run.kind === "tool") && step[KIND] !== run.kind) return false;
  if (!run.text) return true;
  return step[TITLE].toLowerCase().includes(run.text) || (run.found !== null && run.found.has(step[ID]));
}

function listVisible() {
  const isFiltered = run.kind !== "all" || run.text !== "";
  let kept = null;
  if (isFiltered) {
    kept = new Set();
    for (const step of run.steps) {
      if (step === undefined || !isWanted(step)) continue;
      for (let id = step[ID]; id !== null && !kept.has(id); id = run.steps[id][PARENT]) kept.add(id);
    }
  }
  const visible = [], waiting = [...(run.children.get(null) || [])].reverse();
  while (waiting.length) {
    const id = waiting.pop();
    if (kept !== null && !kept.has(id)) continue;
    visible.push(id);
    const inner = run.children.get(id);
    if (inner && (isFiltered || !run.folded.has(id))) for (let at = inner.length - 1; at >= 0; at--) waiting.push(inner[at]);
  }
  return visible;
}

function draw() {
  if (!run.isDrawn) return;
  run.isDrawn = false;
  requestAnimationFrame(() => {
    run.isDrawn = true;
    const tree = $("tree"), isAtEnd = tree.scrollTop > 0 && tree.scrollTop + tree.clientHeight >= tree.scrollHeight - 4;
    const activeStep = run.visible[run.active];
    run.visible = listVisible();
    run.active = activeStep === undefined ? -1 : run.visible.indexOf(activeStep);
    rowHeight = matchMedia("(max-width: 760px)").matches ? 44 : 32;
    $("rows").style.height = run.visible.length * rowHeight + "px";
    $("no-steps").hidden = run.visible.length > 0 || run.steps.length === 0;
    if (isAtEnd && run.source) tree.scrollTop = tree.scrollHeight;
    drawRows();
    drawAsking();
  });
}

const pool = [];
function drawRows() {
  const tree = $("tree"), first = Math.max(0, Math.floor(tree.scrollTop / rowHeight) - 8);
  const count = Math.min(run.visible.length - first, Math.ceil(tree.clientHeight / rowHeight) + 16);
  const root = run.steps[0];
  const from = root ? root[START] : 0;
  const last = run.summary && run.summary.ended ? run.summary.ended : from;
  const whole = Math.max(0.001, (root && root[END] !== null ? root[END] : Math.max(last, run.source ? Date.now() / 1000 : 0)) - from);
  while (pool.length < count) pool.push(makeRow());
  // A place keeps its element while it is scrolled, so that a click that began on it ends on it.
  pool.forEach((row, slot) => {
    const at = first + (slot - first % pool.length + pool.length) % pool.length;
    row.hidden = at >= first + count;
    if (!row.hidden) fillRow(row, at, from, whole);
  });
  const active = run.active >= first && run.active < first + count ? "row-" + run.visible[run.active] : "";
  if (active) tree.setAttribute("aria-activedescendant", active); else tree.removeAttribute("aria-activedescendant");
}

function makeRow() {
  const row = make("div", "row"), label = make("div", "label"), fold = make("button", "fold"), lane = make("div", "lane");
  row.setAttribute("role", "treeitem");
  fold.type = "button";
  fold.tabIndex = -1;
  fold.setAttribute("aria-hidden", "true");
  label.append(fold, make("span", "mark"), make("span", "title"), make("span", "note"));
  lane.append(make("div", "span"));
  row.append(label, make("span", "took"), lane);
  row.addEventListener("click", (event) => {
    const at = Number(row.dataset.at);
    run.active = at;
    if (event.target === fold && fold.textContent) foldStep(run.visible[at]); else openStep(run.visible[at]);
  });
  $("rows").append(row);
  return row;
}

function fillRow(row, at, from, whole) {
  const step = run.steps[run.visible[at]], inner = run.children.get(step[ID]), isFolded = run.folded.has(step[ID]);
  const [label, took, lane] = row.children, [fold, mark, title, note] = label.children, span = lane.firstChild;
  const status = step[STATUS] === "running" && run.summary && run.summary.state === "cut off" ? "unended" : step[STATUS];
  row.id = "row-" + step[ID];
  row.dataset.at = at;
  row.className = "row " + status + (at === run.active ? " active" : "");
  row.style.transform = "translateY(" + at * rowHeight + "px)";
  row.setAttribute("aria-level", run.depth[step[ID]] + 1);
  row.setAttribute("aria-selected", step[ID] === run.selected);
  if (inner) row.setAttribute("aria-expanded", !isFolded); else row.removeAttribute("aria-expanded");
  label.style.paddingLeft = 8 + Math.min(12, run.depth[step[ID]]) * 16 + "px";
  fold.textContent = inner ? (isFolded ? "\u25b8" : "\u25be") : "";
  mark.className = "mark " + step[KIND];
  title.textContent = step[TITLE];
  const facts = [status === "done" ? "" : status, step[NOTE], step[TOKENS] ? step[TOKENS].toLocaleString() + " tokens" : "",
    step[COST] === null ? "" : sayCost(step[COST])];
  note.textContent = facts.filter(Boolean).join(" · ");
  const end = step[END] === null ? from + whole : step[END];
  took.textContent = step[KIND] === "note" ? "" : sayLength(Math.max(0, end - step[START]));
  row.setAttribute("aria-label", step[KIND] + " " + step[TITLE] + ", " + (note.textContent || "done") + ", " + took.textContent);
  span.className = "span " + step[KIND];
  span.style.left = Math.min(99, 100 * (step[START] - from) / whole) + "%";
  span.style.width = Math.max(0, Math.min(100, 100 * (end - step[START]) / whole)) + "%";
}

function foldStep(id) {
  if (!run.folded.delete(id)) run.folded.add(id);
  draw();
}

function drawAsking() {
  const asked = run.steps.filter((step) => step && step[QUESTION] && step[STATUS] === "waiting");
  $("asking").hidden = asked.length === 0;
  if (asked.length === 0) return;
  const words = asked.length === 1 ? asked[0][TITLE] + " waits for your decision." : asked.length + " calls wait for your decision.";
  if ($("asking").firstElementChild.textContent !== words) $("asking").firstElementChild.textContent = words;
  $("asking").lastElementChild.onclick = () => openStep(asked[0][ID]);
}

function moveTo(at) {
  if (!run.visible.length) return;
  run.active = Math.max(0, Math.min(run.visible.length - 1, at));
  const tree = $("tree"), top = run.active * rowHeight;
  if (top < tree.scrollTop) tree.scrollTop = top;
  else if (top + rowHeight > tree.scrollTop + tree.clientHeight) tree.scrollTop = top + rowHeight - tree.clientHeight;
  drawRows();
}

$("tree").addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
$("tree").addEventListener("focus", () => { if (run.active < 0) moveTo(0); });
$("tree").addEventListener("keydown", (event) => {
  const id = run.visible[run.active], inner = run.children.get(id), page = Math.floor($("tree").clientHeight / rowHeight) - 1;
  const moves = { ArrowDown: run.active + 1, ArrowUp: run.active - 1, Home: 0, End: run.visible.length - 1,
    PageDown: run.active + page, PageUp: run.active - page };
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key in moves) moveTo(moves[event.key]);
  else if (event.key === "ArrowRight" && inner) { if (run.folded.has(id)) foldStep(id); else moveTo(run.active + 1); }
  else if (event.key === "ArrowLeft" && id !== undefined) {
    if (inner && !run.folded.has(id)) foldStep(id);
    else if (run.steps[id][PARENT] !== null) moveTo(run.visible.indexOf(run.steps[id][PARENT]));
  } else if ((event.key === "Enter" || event.key === " ") && id !== undefined) openStep(id, true);
  else return;
  event.preventDefault();
});

// one step

function openStep(id, takesFocus = false) {
  const isNew = run.selected !== id;
  run.selected = id;
  if (isNew) { $("sections").replaceChildren(); $("sections").scrollTop = 0; $("reason").value = ""; run.shown = null; }
  $("step").hidden = false;
  document.body.classList.add("has-step");
  show("step");
  refreshStep();
  draw();
  if (takesFocus || document.body.dataset.view === "step" && matchMedia("(max-width: 760px)").matches) $("step").focus();
}

function closeStep() {
  run.selected = -1;
  $("step").hidden = true;
  document.body.classList.remove("has-step");
  if (document.body.dataset.view === "step") show("run");
  draw();
}

let isAsked = false, isStale = false;
async function refreshStep() {
  const step = run.steps[run.selected];
  if (step === undefined) return;
  $("step-title").textContent = step[TITLE];
  showState($("step-state"), step[STATUS]);
  listFacts($("step-facts"), {
    kind: step[KIND], after: sayLength(Math.max(0, step[START] - run.steps[0][START])),
    took: step[END] === null ? "" : sayLength(step[END] - step[START]), note: step[NOTE],
    tokens: step[TOKENS] ? step[TOKENS].toLocaleString() : "", cost: sayCost(step[COST]),
  });
  showQuestion();
  if (isAsked) { isStale = true; return; }
  isAsked = true;
  try {
    const answer = await (await ask("/runs/" + run.id + "/steps/" + step[ID])).json();
    if (run.selected === step[ID]) {
      run.shown = answer.sections.some((section) => section.kind === "question") ? answer.shown : null;
      showQuestion();
      fillSections(answer.sections);
    }
  } catch (error) {
    say(error.message);
  }
  // A step that reports all the time is read twice a second.
  setTimeout(() => { isAsked = false; if (isStale) { isStale = false; refreshStep(); } }, 500);
  if (run.selected !== step[ID]) isStale = true;
}

// Nobody decides before what is asked has come, and its mark with it.
function showQuestion() {
  const step = run.steps[run.selected];
  $("question").hidden = !(step[QUESTION] && step[STATUS] === "waiting" && run.shown);
}

function fillSections(sections) {
  const target = $("sections"), wasOpen = new Map(), question = sections.findLast((section) => section.kind === "question");
  $("question-text").textContent = question ? question.text : "";
  if (!$("question").hidden) sections = sections.filter((section) => section !== question);
  for (const each of target.children) wasOpen.set(each.dataset.key, [each.open, each.lastChild.scrollTop]);
  const counts = new Map(), scrolled = target.scrollTop;
  target.replaceChildren(...sections.map((section) => {
    const count = (counts.get(section.title) || 0) + 1;
    counts.set(section.title, count);
    const part = makeSection(section), key = section.title + "#" + count, before = wasOpen.get(key);
    part.dataset.key = key;
    part.open = before ? before[0] : true;
    return part;
  }));
  target.scrollTop = scrolled;
  for (const each of target.children) { const before = wasOpen.get(each.dataset.key); if (before) each.lastChild.scrollTop = before[1]; }
  if (!sections.length) target.append(make("p", "quiet", "Nothing more is known of this step."));
}

function makeSection(section) {
  const part = make("details"), body = section.kind === "facts" ? make("dl") : make("pre", section.kind, section.text);
  for (const [name, value] of Object.entries(section.facts)) body.append(make("dt", "", name), make("dd", "", value));
  if (section.kind !== "facts") body.tabIndex = 0;
  part.append(make("summary", "", section.title), body);
  return part;
}

async function decide(answer) {
  const question = run.steps[run.selected][QUESTION];
  $("approve").disabled = $("deny").disabled = true;
  try {
    const body = JSON.stringify({ question, answer, reason: $("reason").value, step: run.selected, shown: run.shown });
    await ask("/runs/" + run.id + "/answers", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    $("question").hidden = true;
    say(answer === "approve" ? "Approved." : "Denied.");
    $("step").focus();
  } catch (error) {
    say(error.message);
  }
  $("approve").disabled = $("deny").disabled = false;
}

$("approve").addEventListener("click", () => decide("approve"));
$("deny").addEventListener("click", () => decide("deny"));
$("question").addEventListener("submit", (event) => event.preventDefault());
$("to-run").addEventListener("click", () => { closeStep(); $("tree").focus(); });
$("to-runs").addEventListener("click", () => { show("runs"); (runs.buttons.get(run.id) || $("run-filter")).focus(); });
$("step").addEventListener("keydown", (event) => { if (event.key === "Escape") { closeStep(); $("tree").focus(); } });

// searching, filters, exports

let searching = 0;
$("search").addEventListener("input", () => {
  run.text = $("search").value.trim().toLowerCase();
  run.found = null;
  draw();
  clearTimeout(searching);
  searching = setTimeout(search, 250);
});

async function search() {
  const { id, text } = run;
  if (!text) return;
  try {
    const answer = await (await ask("/runs/" + id + "/search?text=" + encodeURIComponent(text))).json();
    if (run.id === id && run.text === text) { run.found = new Set(answer.steps); draw(); }
  } catch (error) {
    say(error.message);
  }
}

$("kinds").addEventListener("click", (event) => {
  const kind = event.target.dataset.kind;
  if (!kind) return;
  run.kind = kind;
  for (const each of $("kinds").children) each.setAttribute("aria-pressed", each.dataset.kind === kind);
  $("tree").scrollTop = 0;
  draw();
});

async function download(form, ending) {
  try {
    const file = await (await ask("/runs/" + run.id + "/export/" + form)).blob();
    const link = make("a");
    link.href = URL.createObjectURL(file);
    link.download = "run-" + run.id.slice(0, 12) + "." + ending;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  } catch (error) {
    say(error.message);
  }
}

$("get-markdown").addEventListener("click", () => download("markdown", "md"));
$("get-lines").addEventListener("click", () => download("lines", "jsonl"));
$("copy-test").addEventListener("click", async () => {
  try {
    const text = await (await ask("/runs/" + run.id + "/export/test")).text();
    await navigator.clipboard.writeText(text);
    say("The test is copied: paste it into a file such as test_run.py.");
  } catch (error) {
    say(error.message);
  }
});

$("run-filter").addEventListener("input", drawRuns);
document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key === "/" && !isTyping && run.id) { event.preventDefault(); $("search").focus(); }
  if (event.key === "Escape" && event.target === $("search")) {
    $("search").value = "";
    $("search").dispatchEvent(new Event("input"));
    $("tree").focus();
  }
});
addEventListener("resize", draw);

enter().catch((error) => say(error.message)).then(listRuns).then(() => {
  const [id, step] = location.hash.slice(1).split("/");
  if (id && runs.all.some((each) => each.id === id)) openRun(id, step === undefined ? -1 : Number(step));
});
setInterval(listRuns, 2000);
setInterval(() => { if (run.source && run.summary && run.summary.state === "running") drawRows(); }, 500);
