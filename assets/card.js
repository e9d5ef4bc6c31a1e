// The card beside a token: everything the payload knows of it.

function cell(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function cardTable(data, i) {
  const c = data.columns;
  const cut = c.cut[i] > 0;
  const value = (x, digits) => (x === null && cut ? "cut" : number(x, digits));
  const whole = (x) => (x === null ? (cut ? "cut" : "—") : x.toLocaleString("en"));
  const rows = [
    ["", "raw", "processed"],
    ["logit", number(c.raw_logit[i]), value(c.processed_logit[i])],
    ["logprob", number(c.raw_logprob[i]), value(c.processed_logprob[i])],
    ["probability", percent(c.raw_logprob[i]), cut ? "cut" : percent(c.processed_logprob[i])],
    ["rank", whole(c.raw_rank[i]), whole(c.processed_rank[i])],
    ["entropy", number(c.raw_entropy[i], 3), number(c.processed_entropy[i], 3)],
  ];
  const table = cell("table");
  for (const [k, row] of rows.entries()) {
    const line = cell("tr");
    line.append(...row.map((text, column) => cell(k === 0 || column === 0 ? "th" : "td", text, text === "cut" ? "li-cut-word" : "")));
    table.append(line);
  }
  return table;
}

function cardAlternatives(data, i) {
  const list = cell("div", undefined, "li-alternatives");
  const { width, id, raw, processed } = data.alternatives;
  let end = i * width;
  while (end < (i + 1) * width && id[end] >= 0) end++;
  const listed = [...raw.slice(i * width, end), ...processed.slice(i * width, end)].filter((logprob) => logprob !== null);
  const longest = Math.exp(Math.max(...listed)); // the numbers say how much it is; the bars compare
  for (let k = i * width; k < end; k++) {
    const row = cell("div", undefined, id[k] === data.columns.id[i] ? "li-own" : "");
    const bars = cell("span", undefined, "li-bars");
    for (const [logprob, side] of [[raw[k], "raw"], [processed[k], "processed"]]) {
      const bar = cell("i", undefined, `li-${side}`);
      bar.style.width = (logprob === null ? 0 : (100 * Math.exp(logprob)) / longest) + "%";
      bars.append(bar);
    }
    const shares = [cell("span", percent(raw[k]), "li-share"), cell("span", processed[k] === null ? "cut" : percent(processed[k]), "li-share")];
    if (processed[k] === null) shares[1].classList.add("li-cut-word");
    row.append(cell("span", visible(data.names[id[k]]), "li-name"), bars, ...shares);
    list.append(row);
  }
  return list;
}

function fillCard(card, data, i) {
  const c = data.columns;
  const bytes = data.hex[i] ?? Array.from(new TextEncoder().encode(data.names[c.id[i]]), (b) => b.toString(16).padStart(2, "0")).join("");
  const head = cell("div", undefined, "li-card-head");
  head.append(cell("strong", tokenName(data, i)), cell("span", `position ${c.position[i]} · id ${c.id[i]} · bytes ${bytes.replace(/../g, "$& ").trim() || "none"}`));
  card.replaceChildren(head);
  if (c.raw_rank[i] === null) {
    card.append(cell("p", "Not scored: nothing precedes this token, so the model makes no prediction of it."));
    return;
  }
  card.append(cardTable(data, i));
  if (c.cut[i]) card.append(cell("p", `Cut by ${data.cuts[c.cut[i]]}: the sampler could not have drawn it.`, "li-cut-word"));
  if (c.kept_tokens[i] !== null && data.active.length) {
    card.append(cell("p", `${c.kept_tokens[i].toLocaleString("en")} ${c.kept_tokens[i] === 1 ? "token" : "tokens"} kept, ${(100 * c.kept_mass[i]).toFixed(1)} % of the raw mass`));
  }
  card.append(cardAlternatives(data, i), cell("p", "Click or press Enter to pin", "li-hint"));
}

function placeCard(card, target) {
  const room = 8;
  card.hidden = false;
  const box = target.getClientRects()[0] ?? target.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = card;
  const below = box.bottom + room + height < window.innerHeight;
  card.style.left = Math.max(room, Math.min(box.left, window.innerWidth - width - room)) + "px";
  card.style.top = (below ? box.bottom + room : Math.max(room, box.top - height - room)) + "px";
}
