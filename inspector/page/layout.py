"""The page put together: regions side by side, and what happens when something is pressed."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

import gradio as gr
from gradio.components import Component

from inspector.events import Progress
from inspector.page import actions, detail, downloads, history, inputs, model, plots, sampler, table
from inspector.page.endpoint import endpoint
from inspector.page.form import SAMPLER_FIELDS, TEXT_FIELDS
from inspector.page.heatmap import heatmap_component
from inspector.page.host import ModelHost
from inspector.page.look import ASSETS, page_script, theme
from inspector.page.running import progress_html
from inspector.page.session import CancelFlag, Session

QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
MODEL_WORK: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": 1}  # one run or load at a time
GUIDE = (ASSETS / "guide.html").read_text(encoding="utf-8")
EMPTY = (ASSETS / "empty.html").read_text(encoding="utf-8").replace("<!-- guide -->", GUIDE)
TITLE = (
    "<div class='li-title'><h1>Logit Inspector</h1>"
    "<p>How likely a language model found each token, and what its sampler did to it</p></div>"
)
# the link's first part is known to the browser only; reading a link empties the field again
OWN_ADDRESS = "(link, ...form) => [location.origin + location.pathname + location.search, ...form]"
COPY = "(link) => { navigator.clipboard?.writeText(link).catch(() => {}); }"
LINKED_CODE = "() => [location.hash.slice(1)]"


@dataclass(frozen=True)
class Controls:
    """The left column. text and sampler hold the components by field of TextForm and SamplerForm, in their order."""

    text: dict[str, Component]
    sampler: dict[str, Component]
    kind_columns: dict[str, gr.Column]
    count_message: gr.HTML
    sampler_message: gr.HTML
    run: gr.Button
    cancel: gr.Button
    reset: gr.Button
    presets: list[gr.Button]
    live: gr.Checkbox
    share: gr.Button
    link: gr.Textbox
    examples: list[gr.Button]
    about: gr.HTML
    model: model.ModelRegion


@dataclass(frozen=True)
class Results:
    """The right column."""

    mode: gr.Radio
    status: gr.HTML
    live: gr.HTML
    empty: gr.HTML
    shown: gr.Column
    summary: gr.HTML
    heatmap: gr.HTML
    comparison: gr.HTML
    pinned: gr.HTML
    pinned_steps: gr.HTML
    pinned_plots: list[gr.Plot]
    branching: gr.Row
    instead: gr.Dropdown
    branch: gr.Button
    plots: list[gr.Plot]
    table: gr.Dataframe
    table_note: gr.Markdown
    notes: gr.HTML
    run: gr.HTML
    files: list[gr.DownloadButton]
    history: history.HistoryRegion
    tabs: gr.Tabs
    download_tab: gr.Tab

    def pin_outputs(self) -> list[Any]:
        """What `actions.pin_values` fills, in its order."""
        return [self.pinned, *self.pinned_plots, self.branching, self.instead]

    def outputs(self) -> list[Any]:
        """What `actions.show` fills after the session and the live text, in its order."""
        return [
            self.empty, self.shown, self.summary, self.heatmap, self.comparison, *self.pin_outputs(), *self.plots, self.table,
            self.table_note, self.notes, self.run, *self.history.outputs(), *self.files,
        ]  # fmt: skip


def build_page(host: ModelHost) -> gr.Blocks:
    """The whole app around one model host."""
    with gr.Blocks(title="Logit Inspector", fill_width=True, analytics_enabled=False, delete_cache=(3600, 6 * 3600)) as page:
        session = gr.State(Session())
        flag = gr.State(CancelFlag())
        with gr.Row(elem_classes="li-header"):
            gr.HTML(TITLE, apply_default_css=False, container=False)
            chip = gr.HTML(model.chip_html(host.inspector), elem_id="model-chip", apply_default_css=False, container=False)
            gr.Button("Light / dark", size="sm", elem_id="theme", min_width=96)  # page.js acts on it
        with gr.Row(elem_classes="li-main"):
            with gr.Column(scale=4, min_width=340, elem_classes="li-controls"):
                controls = _controls()
            with gr.Column(scale=9, min_width=340, elem_classes="li-results"):
                results = _results()
        page.load(lambda: (yield from model.first_load(host)), outputs=chip, **QUIET)
        filled = _wire_inputs(controls, results.mode)
        _wire_model(host, controls.model, chip)
        _wire_run(host, controls, results, session, flag)
        _wire_live(host, controls, results, session, filled)
        _wire_results(host, results, session)
        _wire_share(page, controls, results.mode)
        gr.api(endpoint(host), api_name="inspect", **MODEL_WORK)
    return page.queue(default_concurrency_limit=8, max_size=64)


def launch_options() -> dict[str, Any]:
    """How the page is served: nothing from outside, nothing kept in the browser, errors shown."""
    return {
        "theme": theme(), "css_paths": [ASSETS / "page.css", ASSETS / "heatmap.css"], "show_error": True, "footer_links": ["api"],
        "run_history": False, "ssr_mode": False, "js": page_script(),
    }  # fmt: skip


def _controls() -> Controls:
    text, columns = inputs.text_inputs()
    with gr.Row(elem_classes="li-actions"):
        start = gr.Button("Inspect", variant="primary", elem_id="inspect", scale=3)
        cancel = gr.Button("Cancel", elem_id="cancel", interactive=False, scale=1, min_width=90)
    with gr.Row(elem_classes="li-examples"):
        made = [gr.Button(e["title"], size="sm", elem_classes="li-example", min_width=0) for e in inputs.examples()]
    about = gr.HTML(elem_id="about-example", apply_default_css=False)
    with gr.Accordion("Continuations", open=True), gr.Row(elem_classes=["li-fields", "li-draw"]):
        text |= inputs.sampling_inputs()
    count_message = gr.HTML(elem_id="count-message", apply_default_css=False)
    with gr.Accordion("Sampling parameters", open=True, elem_id="sampler"):
        fields = sampler.sampler_inputs()
        with gr.Row(elem_classes="li-examples"):
            reset = gr.Button("Reset to neutral", size="sm", elem_id="reset", min_width=0)
            presets = [gr.Button(name, size="sm", min_width=0) for name in sampler.PRESETS]
        live = gr.Checkbox(True, label="Live", info="score the shown text again when a parameter is moved", elem_id="live-switch")
    sampler_message = gr.HTML(sampler.describe(*sampler.neutral_values()), elem_id="sampler-message", apply_default_css=False)
    with gr.Accordion("Reading", open=False, elem_id="reading"):
        text |= inputs.reading_inputs()
    region = model.model_region()
    with gr.Accordion("Share", open=False, elem_id="share"):
        gr.Markdown("A link with the text, the mode and the parameters. Whoever has it can read them.", elem_classes="li-note")
        share = gr.Button("Make a link and copy it", size="sm", elem_id="share-button")
        link = gr.Textbox("", label="Link", max_lines=2, elem_id="share-link", buttons=["copy"])
    text = {name: text[name] for name in TEXT_FIELDS}
    return Controls(
        text, fields, columns, count_message, sampler_message, start, cancel, reset, presets, live, share, link, made, about, region
    )


def _results() -> Results:
    mode = inputs.mode_input()
    status = gr.HTML(elem_id="status", apply_default_css=False)
    live = gr.HTML(elem_id="live", apply_default_css=False)
    empty = gr.HTML(EMPTY, elem_id="empty", apply_default_css=False)
    with gr.Column(visible=False, elem_id="results") as shown:
        past = history.history_region()
        summary = gr.HTML(elem_id="summary", apply_default_css=False)
        heatmap = heatmap_component()
        comparison = gr.HTML(elem_id="comparison", apply_default_css=False)
        with gr.Column(elem_classes="li-pin"):
            pinned = gr.HTML(detail.HINT, elem_id="pinned", apply_default_css=False)
            pinned_steps = gr.HTML(elem_id="pinned-steps", apply_default_css=False)
            with gr.Row(elem_classes="li-plots"):
                pinned_plots = [gr.Plot(visible=False, show_label=False, min_width=320, elem_id=f"pinned-{n}") for n in ("bars", "mass")]
            with gr.Row(visible=False, elem_classes="li-branch") as branching:
                instead = gr.Dropdown([], label="Take instead", elem_id="instead", filterable=False, scale=3, min_width=200)
                branch = gr.Button("Continue from here", size="sm", elem_id="branch", scale=1, min_width=140)
        with gr.Tabs() as tabs:
            with gr.Tab("Plots"), gr.Row(elem_classes="li-plots"):
                figures = [gr.Plot(show_label=False, min_width=420, elem_id=f"plot-{i}") for i in range(len(plots.FIGURES))]
            with gr.Tab("Tokens"):
                rows = table.table_component()
                table_note = gr.Markdown(elem_classes="li-note")
            with gr.Tab("Notes"):
                notes = gr.HTML(apply_default_css=False, elem_id="notes")
            with gr.Tab("Guide"):
                gr.HTML(GUIDE, apply_default_css=False, elem_id="guide")
            with gr.Tab("Download") as download_tab:
                files = downloads.download_buttons()
        run_line = gr.HTML(apply_default_css=False, elem_id="run")
    return Results(
        mode, status, live, empty, shown, summary, heatmap, comparison, pinned, pinned_steps, pinned_plots, branching, instead, branch,
        figures, rows, table_note, notes, run_line, files, past, tabs, download_tab,
    )  # fmt: skip


def _wire_inputs(controls: Controls, mode: gr.Radio) -> list[Any]:
    """Messages at once, reset, examples, the kind of text. Returns what happens after the reset and the presets."""
    text, fields = controls.text, list(controls.sampler.values())
    text["kind"].change(inputs.show_kind, text["kind"], list(controls.kind_columns.values()), **QUIET)
    gr.on([f.change for f in fields], sampler.describe, fields, controls.sampler_message, trigger_mode="always_last", **QUIET)
    counts = [text[name] for name in ("top_n", "continuations", "max_new_tokens", "seed")]
    gr.on(
        [c.change for c in counts], lambda *v: sampler.message(inputs.check_counts(*v)), counts, controls.count_message,
        trigger_mode="always_last", **QUIET,
    )  # fmt: skip
    filled = [controls.reset.click(sampler.neutral_values, outputs=fields, **QUIET).success]
    for name, button in zip(sampler.PRESETS, controls.presets):
        filled.append(button.click(partial(sampler.preset_values, name), outputs=fields, **QUIET).success)
    for example, button in zip(inputs.examples(), controls.examples):
        button.click(_filler(example), outputs=[*text.values(), *fields, mode, controls.about], **QUIET)
    return filled


def _filler(example: dict[str, Any]) -> Callable[[], list[Any]]:
    def fill() -> list[Any]:
        text, fields, mode = inputs.example_values(example)
        return [*(getattr(text, n) for n in TEXT_FIELDS), *(getattr(fields, n) for n in SAMPLER_FIELDS), mode, about]

    about = f"<p class='li-note'>{escape(example['about'])}</p>"
    return fill


def _wire_share(page: gr.Blocks, controls: Controls, mode: gr.Radio) -> None:
    """A link that holds the form, made on demand and read when the page is opened by it."""
    form = [*controls.text.values(), *controls.sampler.values()]
    where = [controls.link, mode, controls.model.name, *form]
    controls.share.click(actions.share, where, controls.link, js=OWN_ADDRESS, **QUIET).success(None, controls.link, js=COPY, **QUIET)
    page.load(actions.restore, controls.link, [mode, controls.model.name, *form], js=LINKED_CODE, **QUIET)


def _wire_model(host: ModelHost, region: model.ModelRegion, chip: gr.HTML) -> None:
    def change(name: str, dtype: str, device: str) -> Generator[tuple[str, str], None, None]:
        yield from model.change_model(host, name, dtype, device)

    region.load.click(change, [region.name, region.dtype, region.device], [region.status, chip], **QUIET, **MODEL_WORK)


def _wire_run(host: ModelHost, controls: Controls, results: Results, session: gr.State, flag: gr.State) -> None:
    """Inspect, cancel, branch."""
    form = [*controls.text.values(), *controls.sampler.values()]
    running = [results.status, results.live, session]
    buttons = [controls.run, controls.cancel, results.branch]

    def begin(cancel: CancelFlag) -> list[Any]:
        cancel.asked = False
        states = [gr.update(interactive=False), gr.update(interactive=True), gr.update(interactive=False)]
        return [*states, progress_html(Progress("waiting for the model", 0, 0))]

    def idle() -> list[Any]:
        return [gr.update(interactive=True), gr.update(interactive=False), gr.update(interactive=True)]

    def stop(cancel: CancelFlag) -> None:
        cancel.asked = True

    def run_form(held: Session, cancel: CancelFlag, mode: str, *values: Any) -> actions.Steps:
        yield from actions.inspect(host, held, cancel, mode, values)

    def run_branch(held: Session, cancel: CancelFlag, mode: str, chosen: int, *values: Any) -> actions.Steps:
        yield from actions.branch(host, held, cancel, mode, chosen, values)

    for press, function, extra in ((controls.run, run_form, []), (results.branch, run_branch, [results.instead])):
        started = press.click(begin, flag, [*buttons, results.status], queue=False, **QUIET)
        ran = started.then(function, [session, flag, results.mode, *extra, *form], running, **QUIET, **MODEL_WORK)
        for ended in (ran.success, ran.failure):
            ended(idle, outputs=buttons, queue=False, **QUIET)
        _then_show(ran.success, host, results, session)
    controls.cancel.click(stop, flag, queue=False, **QUIET)


def _wire_live(host: ModelHost, controls: Controls, results: Results, session: gr.State, filled: list[Any]) -> None:
    """A parameter that the user moves, not an example or a link, scores the shown text again."""
    form = [*controls.text.values(), *controls.sampler.values()]

    def run_live(held: Session, is_live: bool, *values: Any) -> actions.Steps:
        yield from actions.live(host, held, is_live, values)

    moved = [field.input for field in controls.sampler.values()]
    for event in (partial(gr.on, [*moved, controls.live.change]), *filled):
        scored = event(
            run_live, [session, controls.live, *form], [results.status, session], trigger_mode="always_last", **QUIET, **MODEL_WORK
        )
        _then_show(scored.success, host, results, session)


def _wire_results(host: ModelHost, results: Results, session: gr.State) -> None:
    """The mode, the pinned token, the history."""
    _then_show(results.mode.change, host, results, session)
    pinned = [session, *results.pin_outputs()]
    for event, function in ((results.heatmap.pin, actions.pin), (results.heatmap.unpin, actions.unpin)):
        changed = event(function, session, pinned, trigger_mode="always_last", **QUIET)
        _then_steps(changed.then, host, results, session)
    results.tabs.select(actions.leave_files, session, session, **QUIET)
    results.download_tab.select(actions.open_files, session, [session, *results.files], **QUIET)
    history = results.history

    # what the status says is about the result that was shown before
    def choose(held: Session, number: int | None, other: int | None, other_mode: str | None) -> list[Any]:
        status = "" if number and number != held.shown else gr.skip()
        held.other, held.other_mode = other or 0, other_mode or ""
        held.show(number or held.shown)
        return [held, status]

    def rename(held: Session, name: str) -> list[Any]:
        held.rename(name)
        return [held, gr.skip()]

    def remove(held: Session) -> list[Any]:
        held.remove()
        return [held, ""]

    for event, function, extra in (
        (history.shown.input, choose, history.choosers()),
        (history.other.input, choose, history.choosers()),
        (history.other_mode.input, choose, history.choosers()),
        (history.name.submit, rename, [history.name]),
        (history.remove.click, remove, []),
    ):
        _then_show(event(function, [session, *extra], [session, results.status], **QUIET).success, host, results, session)


def _then_show(event: Callable[..., Any], host: ModelHost, results: Results, session: gr.State) -> None:
    # a result that comes while the last one is still being drawn must be drawn too
    latest: dict[str, Any] = {**QUIET, "trigger_mode": "always_last"}
    shown = event(actions.show, [session, results.mode], [session, results.live, *results.outputs()], **latest)
    shown.then(actions.files, session, results.files, **latest)
    _then_steps(shown.then, host, results, session)


def _then_steps(event: Callable[..., Any], host: ModelHost, results: Results, session: gr.State) -> None:
    """The pinned token's steps come after its table: they need the model, which may be busy."""
    event(partial(actions.steps, host), session, results.pinned_steps, trigger_mode="always_last", **QUIET, **MODEL_WORK)
