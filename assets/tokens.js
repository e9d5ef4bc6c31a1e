// Token elements. The DOM holds the original text, character for character; whatever is only for the eye (marks for
// spaces, bytes of a split character, names of tokens without a text) is drawn by CSS, so copying gives the text back.

const CONTROL = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/;
const PLAIN = { " ": "sp", "\n": "nl", "\t": "tab", "\r": "cr" };

function visible(text) {
  const marks = { " ": "·", "\n": "↵", "\t": "⇥", "\r": "␍" };
  return Array.from(text, (c) => marks[c] ?? (CONTROL.test(c) ? codePoint(c) : c)).join("");
}

function codePoint(c) {
  return "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

// `characters` as child nodes: runs of ordinary text, and one element for each that the eye would miss.
function* visibleNodes(characters) {
  let run = "";
  for (const c of characters) {
    const kind = PLAIN[c] ?? (CONTROL.test(c) ? "ctl" : null);
    if (!kind) {
      run += c;
      continue;
    }
    if (run) yield document.createTextNode(run);
    run = "";
    const mark = document.createElement("i");
    mark.className = "li-" + kind;
    if (kind === "ctl") mark.dataset.code = codePoint(c);
    mark.textContent = c;
    yield mark;
  }
  if (run) yield document.createTextNode(run);
}

const hexText = (hex) => hex.match(/../g).map((b) => (b === "20" ? "·" : b)).join(" ");

// What a person calls token i: its text with visible whitespace, or its bytes if it is part of a character.
function tokenName(data, i) {
  return data.hex[i] !== undefined ? data.hex[i].replace(/../g, "\\x$&") : visible(data.names[data.columns.id[i]]);
}

function tokenLabel(data, i) {
  const c = data.columns;
  const name = data.hex[i] !== undefined ? "bytes " + data.hex[i] : `“${data.names[c.id[i]]}”`;
  if (c.raw_rank[i] === null) return `token ${c.position[i]}, ${name}, not scored`;
  const cut = c.cut[i] ? `, cut by ${data.cuts[c.cut[i]]}` : "";
  return `token ${c.position[i]}, ${name}, raw logprob ${number(c.raw_logprob[i], 2)}, rank ${c.raw_rank[i]}${cut}`;
}

function tokenElement(data, i) {
  const span = document.createElement("span");
  span.className = data.special.has(i) ? "li-token li-special" : "li-token";
  span.id = `${data.prefix}${i}`;
  span.dataset.i = i;
  span.setAttribute("role", "option");
  span.setAttribute("aria-selected", "false");
  span.setAttribute("aria-label", tokenLabel(data, i));
  paint(span, data.reading, data, i);
  return span;
}

// The element of a section's text, still empty.
function textElement(section) {
  const box = document.createElement("div");
  box.className = "li-text";
  box.tabIndex = 0;
  box.dir = "auto";
  box.setAttribute("role", "listbox");
  box.setAttribute("aria-label", `${section.label}: ${section.last - section.first} tokens`);
  return box;
}

// Fill it: its text becomes the section's, with a token element over each token's span. Yields after each.
function* fillText(box, data, section) {
  const characters = Array.from(section.text); // offsets count code points, JavaScript's strings UTF-16 units
  const { start, end } = data.columns;
  let at = section.offset;
  const upTo = (to) => {
    const nodes = visibleNodes(characters.slice(at - section.offset, to - section.offset));
    at = Math.max(at, to);
    return nodes;
  };
  for (let i = section.first; i < section.last; ) {
    box.append(...upTo(start[i])); // text that no token spells, where a tokenizer normalises
    let last = i + 1;
    let stop = end[i];
    while (last < section.last && start[last] < stop) stop = Math.max(stop, end[last++]);
    if (last - i > 1) {
      box.append(splitCharacter(data, i, last, upTo(stop)));
    } else {
      const span = tokenElement(data, i);
      if (start[i] === end[i]) span.dataset.name = tokenName(data, i);
      else span.append(...upTo(stop));
      box.append(span);
    }
    for (; i < last; i++) yield;
  }
  box.append(...upTo(section.offset + characters.length));
}

// Several tokens that share a character: the character once, above the bytes of each.
function splitCharacter(data, first, last, nodes) {
  const group = document.createElement("span");
  group.className = "li-split";
  group.setAttribute("role", "none");
  const whole = document.createElement("span");
  whole.className = "li-whole";
  whole.append(...nodes);
  const bytes = document.createElement("span");
  bytes.className = "li-bytes";
  bytes.setAttribute("role", "none");
  group.append(whole, bytes);
  for (let i = first; i < last; i++) {
    const span = tokenElement(data, i);
    span.dataset.name = data.hex[i] !== undefined ? hexText(data.hex[i]) : tokenName(data, i);
    bytes.append(span);
  }
  return group;
}
