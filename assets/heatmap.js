// The heatmap component: reads the payload, builds one or two panes of sections, walks them by mouse and keyboard.
// `element`, `props`, `trigger` and `watch` are Gradio's; it triggers 'pin' with {sequence, position} and 'unpin'.

let data = null;
let panes = []; // each a copy of a payload with a prefix for its elements' ids, and a reading
let readingName = "score";
let layout = "one";
let active = null; // the token element under the keyboard
let pinned = -1;
let builds = 0;
let complete = false; // whether every token of the latest build is there
const FIRST_TOKENS = 1000;
const root = element.querySelector(".li-heatmap");
const [readingSelect, layoutSelect] = root.querySelectorAll("select");
const legendPlace = root.querySelector(".li-legend-place");
const sections = root.querySelector(".li-sections");
const card = cell("div", undefined, "li-card");
card.hidden = true;
const rings = cell("div", undefined, "li-rings");
document.querySelectorAll("body > .li-card, body > .li-rings").forEach((old) => old.remove());
document.body.append(rings, card); // outside the page's own boxes, which would clip it

const tokenOf = (pane, i) => (i >= 0 ? document.getElementById(pane.prefix + i) : null);
const paneOf = (span) => panes[Number(span.closest("[data-pane]").dataset.pane)];
const indexOf = (span) => Number(span.dataset.i);

function read(value) {
  const parsed = JSON.parse(value);
  parsed.special = new Set(parsed.special);
  if (parsed.other) parsed.other.special = new Set(parsed.other.special);
  return parsed;
}

function receive() {
  const before = data;
  data = props.value ? read(props.value) : null;
  if (!hasSameTokens(before, data)) pinned = -1;
  if (!data?.other && (layout === "other" || readingName === "other")) [layout, readingName] = ["one", "score"];
  if (layout === "beside" && !hasContinuations()) layout = "one";
  if (data?.other && before?.other?.key !== data.other.key) [layout, readingName] = ["other", "score"];
  if (isSameText(before, data)) recolour();
  else build();
}

const hasSameTokens = (one, two) => Boolean(one && two) && ["sequence", "position", "id"].every((name) => {
  const values = one.columns[name];
  return values.length === two.columns[name].length && values.every((x, i) => x === two.columns[name][i]);
});

// The same tokens with other numbers (another mode, parameters moved live): their elements stay.
function isSameText(before, now) {
  return complete && hasSameTokens(before, now) && !before.other && !now.other && JSON.stringify(before.sections) === JSON.stringify(now.sections);
}

function recolour() {
  const began = performance.now();
  hideCard();
  panes = chosenPanes();
  fillSelects();
  colour();
  for (const span of sections.querySelectorAll("[data-i]")) {
    const label = tokenLabel(paneOf(span), indexOf(span));
    if (span.getAttribute("aria-label") !== label) span.setAttribute("aria-label", label);
  }
  sections.dataset.result = data.key;
  requestAnimationFrame(() => performance.measure("heatmap recoloured", { start: began }));
}

const isContinuation = (section) => data.columns.sequence[section.first] > 0;
const hasContinuations = () => Boolean(data?.sections.some(isContinuation));

function chosenPanes() {
  const pane = (source, prefix, reading, title) => ({ ...source, prefix, reading, title });
  const kind = data.mode.split("_")[1];
  const reading = (source, mode) => readings(source, mode)[readingName] ?? readings(source, mode).score;
  if (layout === "sides") {
    return ["raw", "processed"].map((side) => pane(data, `li-${side}-`, reading(data, `${side}_${kind}`), side));
  }
  if (layout === "other") {
    return [pane(data, "li-t", reading(data), data.name), pane(data.other, "li-other-", reading(data.other), data.other.name)];
  }
  return [pane(data, "li-t", reading(data), "")];
}

function build() {
  const began = performance.now();
  hideCard();
  active = null;
  complete = false;
  panes = data ? chosenPanes() : [];
  sections.classList.toggle("li-two", panes.length > 1 || layout === "beside");
  const count = Math.max(0, ...panes.map((pane) => pane.sections.length));
  const boxes = [];
  for (let k = 0; k < count; k++) panes.forEach((pane, number) => boxes.push(sectionBox(pane, number, pane.sections[k])));
  sections.replaceChildren(...(layout === "beside" ? columns(boxes) : boxes));
  if (!data) return;
  fillSelects();
  showLegend();
  fill(boxes, began);
}

// The prompt on the left, which stays in sight while the continuations on the right are read.
function columns(boxes) {
  return [false, true].map((right) => {
    const column = cell("div", undefined, "li-column");
    column.append(...boxes.filter((box) => isContinuation(box.section) === right));
    return column;
  });
}

// A long text is filled in two goes, so that its beginning is seen at once; more goes would lay it out more often.
function fill(boxes, began) {
  const work = (function* () {
    for (const box of boxes) if (box.section) yield* fillText(box.querySelector(".li-text"), panes[box.dataset.pane], box.section);
  })();
  const mine = ++builds;
  const go = (tokens) => {
    for (let k = 0; k < tokens; k++) if (work.next().done) return true;
    return false;
  };
  const finish = () => {
    mark(tokenOf(panes[0], pinned), "li-pinned");
    sections.dataset.result = data.key;
    complete = true;
    requestAnimationFrame(() => performance.measure("heatmap", { start: began })); // until the frame that shows it
  };
  if (go(FIRST_TOKENS)) return finish();
  requestAnimationFrame(() => {
    performance.measure("heatmap first", { start: began });
    setTimeout(() => { if (mine === builds) { go(Infinity); finish(); } });
  });
}

function sectionBox(pane, number, section) {
  const box = cell("section", undefined, "li-section");
  box.dataset.pane = number;
  if (!section) return box;
  const head = cell("header");
  head.append(cell("h3", pane.title ? `${section.label}, ${pane.title}` : section.label), cell("span", section.about));
  box.append(head, textElement(section));
  box.section = section;
  return box;
}

function fillSelects() {
  const option = ([value, text]) => new Option(text, value);
  readingSelect.replaceChildren(...Object.entries(readings(data)).map(([key, r]) => option([key, r.name])));
  readingSelect.value = readingName;
  const layouts = [["one", "One text"], ["sides", "Raw beside processed"]];
  if (hasContinuations()) layouts.push(["beside", "Prompt beside continuations"]);
  if (data.other) layouts.push(["other", "Two results"]);
  layoutSelect.replaceChildren(...layouts.map(option));
  layoutSelect.value = layout;
}

function showLegend() {
  const titles = new Map(panes.map((pane) => [pane.reading.title, legend(pane.reading, pane)]));
  legendPlace.replaceChildren(...titles.values());
}

function colour() {
  panes.forEach((pane, k) => { pane.reading = chosenPanes()[k].reading; });
  for (const span of sections.querySelectorAll("[data-i]")) {
    const pane = paneOf(span);
    paint(span, pane.reading, pane, indexOf(span));
  }
  showLegend();
}

function mark(span, className) {
  for (const old of sections.querySelectorAll("." + className)) {
    old.classList.remove(className);
    if (className === "li-pinned") old.setAttribute("aria-selected", "false");
  }
  span?.classList.add(className);
  if (className === "li-pinned") span?.setAttribute("aria-selected", "true");
}

// The same token in the other pane.
function twin(span) {
  if (panes.length < 2) return null;
  const [pane, i] = [paneOf(span), indexOf(span)];
  const other = panes[pane === panes[0] ? 1 : 0];
  if (layout === "sides") return tokenOf(other, i);
  return tokenOf(other, pane === panes[0] ? data.match[i] : data.match.indexOf(i));
}

function showCard(span) {
  const other = twin(span);
  const round = [...ringsRound(span), ...ringsRound(other, "li-linked")]; // measured before anything changes
  if (panes.length > 1) mark(other, "li-linked");
  rings.replaceChildren(...round);
  fillCard(card, paneOf(span), indexOf(span));
  placeCard(card, span);
}

// A ring a line that the token is on, as far as its text's box shows it.
function ringsRound(span, className) {
  if (!span) return [];
  const box = span.closest(".li-text").getBoundingClientRect();
  return [...span.getClientRects()].filter((r) => r.top >= box.top && r.bottom <= box.bottom).map((r) => {
    const ring = cell("i", undefined, className);
    Object.assign(ring.style, { left: `${r.left - 2}px`, top: `${r.top - 2}px`, width: `${r.width}px`, height: `${r.height}px` });
    return ring;
  });
}

function hideCard() {
  if (card.hidden) return;
  card.hidden = true;
  rings.replaceChildren();
  mark(null, "li-linked");
}

function pin(span) {
  const pane = paneOf(span);
  if (pane.key !== data.key) { // the other result's token: the same one of this result, where there is one
    if (twin(span)) pin(twin(span));
    return;
  }
  pinned = indexOf(span);
  mark(span, "li-pinned");
  hideCard();
  trigger("pin", { sequence: data.columns.sequence[pinned], position: data.columns.position[pinned] });
}

function unpin() {
  hideCard();
  if (pinned < 0) return;
  pinned = -1;
  mark(null, "li-pinned");
  trigger("unpin", {});
}

// The token a line up or down, nearest in the horizontal.
function lineStep(spans, from, down) {
  const here = spans[from].getBoundingClientRect();
  let best = from;
  let distance = Infinity;
  const step = down ? 1 : -1;
  for (let k = from + step; k >= 0 && k < spans.length; k += step) {
    const box = spans[k].getBoundingClientRect();
    const vertical = Math.abs(box.top - here.top);
    if (vertical < here.height / 2) continue;
    if (vertical > 3 * here.height && best !== from) break;
    const d = vertical * 1000 + Math.abs(box.left - here.left);
    if (d < distance) [best, distance] = [k, d];
  }
  return best;
}

function walk(event) {
  const text = event.target.closest(".li-text");
  if (event.key === "Escape") return unpin();
  if (!text || !data || event.ctrlKey || event.metaKey || event.altKey) return;
  const spans = [...text.querySelectorAll("[data-i]")];
  const at = spans.indexOf(active);
  const last = spans.length - 1;
  const moves = {
    ArrowRight: () => at + 1, ArrowLeft: () => at - 1, ArrowDown: () => lineStep(spans, at, true), ArrowUp: () => lineStep(spans, at, false),
    Home: () => 0, End: () => last,
  };
  if ((event.key === "Enter" || event.key === " ") && at >= 0) pin(active);
  else if (moves[event.key]) {
    active = spans[at < 0 && event.key !== "End" ? 0 : Math.min(last, Math.max(0, moves[event.key]()))];
    text.setAttribute("aria-activedescendant", active.id);
    mark(active, "li-active");
    active.scrollIntoView({ block: "nearest" });
    showCard(active);
  } else return;
  event.preventDefault();
}

sections.addEventListener("pointerover", (event) => {
  const span = event.target.closest?.("[data-i]");
  if (span) showCard(span);
  else hideCard();
});
sections.addEventListener("pointerleave", hideCard);
sections.addEventListener("click", (event) => {
  const span = event.target.closest?.("[data-i]");
  if (!span || !window.getSelection().isCollapsed) return; // a drag selects text to copy
  if (span.classList.contains("li-pinned")) return unpin();
  active = span;
  mark(span, "li-active");
  pin(span);
});
sections.addEventListener("focusout", () => { hideCard(); mark(null, "li-active"); });
sections.addEventListener("copy", (event) => {
  const selection = window.getSelection();
  if (!selection.rangeCount) return;
  // the browser's own text of a selection drops or changes some whitespace; the DOM's text is exact
  const selected = selection.getRangeAt(0).cloneContents();
  selected.querySelectorAll("header").forEach((head) => head.remove());
  event.clipboardData.setData("text/plain", selected.textContent);
  event.preventDefault();
});
window.addEventListener("scroll", hideCard, { passive: true, capture: true }); // of the page, or of a text in it
element.addEventListener("keydown", walk);
readingSelect.addEventListener("change", () => { readingName = readingSelect.value; if (data) colour(); });
layoutSelect.addEventListener("change", () => { layout = layoutSelect.value; build(); });
watch("value", receive);
receive();
