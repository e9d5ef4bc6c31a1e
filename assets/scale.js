// What a token's colour means: one reading a column, each from a token's index to a place on a scale in [0, 1].

const UNSCORED = "unscored";
const CUT = "cut";
const RANK_EDGES = [1, 10, 100, 1000];
const RANK_NAMES = ["1", "2–10", "11–100", "101–1,000", "beyond"];
const NATS_WORST = 12; // a fixed end, so that two texts can be compared by colour

const single = (mode) => mode.replace("_", " ").replace(/s$/, "");
const clamp = (x) => Math.min(1, Math.max(0, x));
const number = (x, digits = 4) => (x === null || x === undefined ? "—" : x.toFixed(digits).replace("-", "−"));

function percent(logprob) {
  if (logprob === null) return "—";
  const p = 100 * Math.exp(logprob);
  return p >= 0.1 ? p.toFixed(1) + " %" : p >= 0.0001 ? p.toFixed(4) + " %" : p.toExponential(1).replace("-", "−") + " %";
}

function extent(column) {
  let low = Infinity;
  let high = -Infinity;
  for (const x of column) {
    if (x === null) continue;
    low = Math.min(low, x);
    high = Math.max(high, x);
  }
  return low < high ? [low, high] : [low - 1, low + 1];
}

const nats = (column, title) => ({
  title, kind: "even", at: (i) => (column[i] === null ? null : clamp(-column[i] / NATS_WORST)),
  ticks: ["0", "−3", "−6", "−9", "≤ −12"],
});

function logits(column, title) {
  const [low, high] = extent(column);
  const ticks = [0, 1, 2, 3, 4].map((k) => number(high + ((low - high) * k) / 4, 1));
  return { title, kind: "even", at: (i) => (column[i] === null ? null : (high - column[i]) / (high - low)), ticks };
}

// The readings that the page offers, by name. `data` is the payload, see inspector/page/heatmap.py.
function readings(data, mode = data.mode) {
  const c = data.columns;
  const processed = mode.startsWith("processed");
  const logprob = processed ? c.processed_logprob : c.raw_logprob;
  const entropy = processed ? c.processed_entropy : c.raw_entropy;
  const rank = processed ? c.processed_rank : c.raw_rank;
  const side = processed ? "processed" : "raw";
  const bucket = (r) => RANK_EDGES.findIndex((edge) => r <= edge);
  const score = {
    raw_logprobs: () => nats(c.raw_logprob, "raw logprob, nats"),
    processed_logprobs: () => nats(c.processed_logprob, "processed logprob, nats"),
    raw_logits: () => logits(c.raw_logit, "raw logit"),
    processed_logits: () => logits(c.processed_logit, "processed logit"),
  }[mode]();
  const difference = (i) => (c.processed_logprob[i] === null ? null : c.raw_logprob[i] - c.processed_logprob[i]);
  const all = {
    score: { ...score, name: "Score of the mode", cutMatters: processed },
    probability: {
      name: "Probability", title: `${side} probability`, kind: "even", cutMatters: processed,
      at: (i) => (logprob[i] === null ? null : 1 - Math.exp(logprob[i])), ticks: ["100 %", "75 %", "50 %", "25 %", "0 %"],
    },
    surprisal: {
      name: "Surprisal", title: `${side} surprisal, bits`, kind: "even", cutMatters: processed,
      at: (i) => (logprob[i] === null ? null : clamp(-logprob[i] / Math.LN2 / 16)), ticks: ["0", "4", "8", "12", "≥ 16"],
    },
    rank: {
      name: "Rank", title: `${side} rank`, kind: "steps", steps: RANK_NAMES, cutMatters: processed,
      at: (i) => (rank[i] === null ? null : (bucket(rank[i]) < 0 ? 4 : bucket(rank[i])) / 4),
    },
    entropy: {
      name: "Entropy", title: `${side} entropy, nats`, kind: "even", cutMatters: false,
      at: (i) => (entropy[i] === null ? null : clamp(entropy[i] / 8)), ticks: ["0", "2", "4", "6", "≥ 8"],
    },
    difference: {
      name: "Raw − processed", title: "raw − processed logprob, nats", kind: "two-sided", cutMatters: true,
      at: (i) => (difference(i) === null ? null : clamp((difference(i) + 4) / 8)), ticks: ["≤ −4", "−2", "0", "+2", "≥ +4"],
    },
    cut: {
      name: "Cut or kept", title: "what the sampler did to the token", kind: "kept", cutMatters: true,
      at: (i) => (c.raw_rank[i] === null ? null : 0),
    },
  };
  if (data.difference) {
    const reach = data.reach; // nearly the largest difference, so that small ones are seen too
    const size = (x) => String(Number(x.toPrecision(2)));
    all.other = {
      name: "Difference of two results", title: data.other.mode === data.mode ? `other − this, ${single(data.mode)}` : `${single(data.other.mode)} − ${single(data.mode)}`,
      kind: "two-sided", cutMatters: data.mode.startsWith("processed"), unknown: "no counterpart, cut there, or not scored", at: (i) => (data.difference[i] === null ? null : clamp(0.5 + data.difference[i] / reach / 2)),
      ticks: ["≤ −" + size(reach), "−" + size(reach / 2), "0", "+" + size(reach / 2), "≥ +" + size(reach)],
    };
  }
  return all;
}

// Place a token on the scale. The colours themselves are CSS, so that the dark theme needs no repainting.
function paint(span, reading, data, i) {
  const scored = data.columns.raw_rank[i] !== null;
  const cut = data.columns.cut[i] > 0;
  const value = scored ? reading.at(i) : null;
  const state = scored && cut && reading.cutMatters ? CUT : value === null ? UNSCORED : reading.kind;
  span.dataset.state = state;
  span.classList.toggle("li-was-cut", cut && state !== CUT);
  if (value === null) {
    span.style.removeProperty("--v");
    delete span.dataset.strong;
    return;
  }
  span.style.setProperty("--v", value.toFixed(3));
  const strength = reading.kind === "two-sided" ? Math.abs(value - 0.5) * 1.84 : reading.kind === "kept" ? 0 : value;
  span.dataset.strong = strength > 0.615 ? "1" : "0";
}

function legend(reading, data) {
  const box = document.createElement("div");
  box.className = "li-legend";
  box.append(Object.assign(document.createElement("span"), { className: "li-legend-title", textContent: reading.title }));
  const swatch = (state, label, v) => {
    const item = document.createElement("span");
    item.className = "li-swatch";
    const colour = Object.assign(document.createElement("i"), { className: "li-token" });
    colour.dataset.state = state;
    if (v !== undefined) colour.style.setProperty("--v", v);
    item.append(colour, label);
    return item;
  };
  if (reading.ticks) {
    const scale = Object.assign(document.createElement("span"), { className: "li-scale" });
    const bar = Object.assign(document.createElement("span"), { className: "li-bar" });
    for (let k = 0; k <= 24; k++) {
      const cell = document.createElement("i");
      cell.className = "li-token";
      cell.dataset.state = reading.kind;
      cell.style.setProperty("--v", (k / 24).toFixed(3));
      bar.append(cell);
    }
    const ticks = Object.assign(document.createElement("span"), { className: "li-ticks" });
    ticks.append(...reading.ticks.map((t) => Object.assign(document.createElement("span"), { textContent: t })));
    scale.append(bar, ticks);
    box.append(scale);
  } else if (reading.steps) {
    box.append(...reading.steps.map((name, k) => swatch("steps", name, k / 4)));
  } else {
    box.append(swatch("kept", "kept", 0));
  }
  if (data.columns.cut.some((by) => by > 0)) {
    box.append(reading.cutMatters ? swatch(CUT, "cut by the sampler") : swatch("mark", "the sampler would cut it"));
  }
  box.append(swatch(UNSCORED, reading.unknown ?? "not scored"));
  return box;
}
