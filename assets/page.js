// Runs once on load: a slider below each number of the sampler, and at the plots, links to save one, and from a point to its token.
() => {
  // a frame inside another page may be refused a storage; then the choice lasts as long as the page
  const storage = (() => { try { return window.localStorage; } catch { return {}; } })();
  const LOOK = "logit-inspector-look";
  if (storage[LOOK]) document.body.classList.toggle("dark", storage[LOOK] === "dark");
  document.getElementById("theme").addEventListener("click", () => {
    storage[LOOK] = document.body.classList.toggle("dark") ? "dark" : "light";
  });
  const SLIDERS = {
    temperature: [0, 2, 0.05], top_p: [0.01, 1, 0.01], min_p: [0, 1, 0.01], top_k: [0, 200, 1], repetition_penalty: [0.5, 2, 0.05],
    frequency_penalty: [-2, 2, 0.1], presence_penalty: [-2, 2, 0.1],
  };
  for (const [name, [min, max, step]] of Object.entries(SLIDERS)) {
    const field = document.querySelector(`#${name} input[type=number]`);
    if (!field) continue;
    const slider = Object.assign(document.createElement("input"), { type: "range", min, max, step, value: field.value, className: "li-slider" });
    slider.setAttribute("aria-label", `${name}, slider`);
    field.closest("label").insertAdjacentElement("afterend", slider);
    let waiting = null;
    slider.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        waiting = null;
        field.value = slider.value;
        field.dispatchEvent(new Event("input", { bubbles: true }));
      }, 80);
    });
    // the field also changes from the server (reset, presets), which no event tells
    setInterval(() => {
      if (waiting === null && document.activeElement !== slider && slider.value !== field.value && field.value !== "") slider.value = field.value;
    }, 250);
  }
  const saveFile = (name, text) => {
    const url = URL.createObjectURL(new Blob([text], { type: "text/html" }));
    Object.assign(document.createElement("a"), { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  // One plot as a page that opens from disk: Plotly's own script, which this server holds, and the plot's data.
  const standalone = async (plot, title) => {
    const source = await (await fetch(PLOTLY_SCRIPT)).text();
    const name = Object.assign(document.createElement("i"), { textContent: title }).innerHTML;
    const figure = Plotly.Plots.graphJson(plot).replace(/</g, "\\u003c");
    return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${name}</title></head><body><div id="plot"></div>`
      + `<script>${source}</scr` + `ipt><script>const f = ${figure}; Plotly.newPlot("plot", f.data, f.layout);</scr` + "ipt></body></html>";
  };
  const saver = (plot, format) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: format.toUpperCase() });
    const title = plot.layout?.title?.text ?? "plot";
    button.setAttribute("aria-label", `Save “${title}” as ${format.toUpperCase()}`);
    button.addEventListener("click", async () => {
      const { width, height } = plot.getBoundingClientRect();
      const filename = title.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "");
      if (format === "html") return saveFile(filename + ".html", await standalone(plot, title));
      Plotly.downloadImage(plot, { format, filename, width, height, scale: format === "png" ? 2 : 1 });
    });
    return button;
  };
  setInterval(() => {
    // Gradio names the table's search field in its tooltip only, which screen readers may leave out
    document.querySelector("#tokens .search-input:not([aria-label])")?.setAttribute("aria-label", "Search the tokens");
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      const place = plot.parentElement;
      if (place.querySelector(".li-save") || !plot.querySelector(".plot-container")) continue;
      const save = Object.assign(document.createElement("div"), { className: "li-save" });
      save.append(...["png", "svg", "html"].map((format) => saver(plot, format)));
      place.append(save);
    }
  }, 400);
  // An error is about the form as it was: it is hidden once that changes, until something is said again.
  // Gradio writes the same status again when another event begins or ends, so it is known by its own words.
  const status = document.getElementById("status");
  const said = () => status.querySelector("[role=alert]")?.textContent ?? null;
  let stale = null;
  const mark = () => status.toggleAttribute("data-stale", stale !== null && said() === stale);
  const mended = (event) => {
    if (!event.target.closest?.(event.type === "click" ? ".li-controls .li-examples button" : ".li-controls")) return;
    stale = said() ?? stale;
    mark();
  };
  ["input", "change", "click"].forEach((type) => document.addEventListener(type, mended, true));
  new MutationObserver(mark).observe(status, { childList: true, subtree: true, characterData: true });
  // What is said of an example holds until its text is changed.
  const about = document.getElementById("about-example");
  document.addEventListener("input", (event) => { if (event.target.closest?.("#prompt, #completion, #ids, #chat")) about.dataset.stale = ""; }, true);
  document.addEventListener("click", (event) => { if (event.target.closest?.(".li-example")) delete about.dataset.stale; }, true);
  // What a press makes is at the top of the results, which a narrow window has far below the form.
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("#inspect, #branch");
    if (!button || button.disabled) return;
    stale = null;
    mark();
    const isStacked = matchMedia("(max-width: 760px)").matches;
    document.querySelector(isStacked ? ".li-results" : "#mode")?.scrollIntoView({ block: isStacked ? "start" : "nearest" });
  }, true);
  document.addEventListener("click", (event) => {
    const plot = event.target.closest?.(".js-plotly-plot");
    const point = plot?._hoverdata?.[0];
    if (point?.data?.meta !== "tokens") return;
    // a bar of the histogram has the numbers of its points, a bucket of ranks its count and rows, any other point its row
    const rows = point.pointNumbers?.map((i) => point.data.customdata[i]) ?? point.customdata[1] ?? [point.customdata];
    const isBar = Boolean(point.pointNumbers || point.customdata[1]);
    const tokens = rows.map((row) => document.getElementById("li-t" + row)).filter(Boolean);
    document.querySelectorAll("#heatmap .li-marked").forEach((old) => old.classList.remove("li-marked"));
    tokens[0]?.scrollIntoView({ block: "center" });
    if (isBar) tokens.forEach((token) => token.classList.add("li-marked"));
    else if (!tokens[0]?.classList.contains("li-pinned")) tokens[0]?.click();
  }, true);
}
