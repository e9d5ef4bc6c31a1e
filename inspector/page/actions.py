"""What the page does when something is pressed: functions from values to values, wired in layout.py."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import gradio as gr

from inspector.errors import InspectorError
from inspector.events import Progress
from inspector.page import cards, detail, downloads, plots, table
from inspector.page.compare import compare, comparison_html
from inspector.page.form import SAMPLER_FIELDS, TEXT_FIELDS, SamplerForm, TextForm, read_arguments, read_params
from inspector.page.heatmap import payload
from inspector.page.history import history_values
from inspector.page.host import ModelHost
from inspector.page.running import done_html, error_html, progress_html, run
from inspector.page.session import CancelFlag, Drawn, Result, Session
from inspector.page.share import PREFIX, decode, encode
from inspector.params import SamplingParams
from inspector.report import Report

SHOWN = 20 + len(plots.FIGURES) + len(downloads.FILES)  # what `show` returns
DEAD = gr.update(value=None, interactive=False)

Steps = Generator[tuple[Any, ...], None, None]


def inspect(host: ModelHost, session: Session, flag: CancelFlag, mode: str, values: tuple[Any, ...]) -> Steps:
    """Yields (status, live text, session). An error is shown beside the inputs, which stay as they are."""
    try:
        arguments = read_arguments(*_forms(values), mode)
    except InspectorError as error:
        yield from _failed(error)
    yield from run_and_add(host, session, flag, arguments)


def run_and_add(host: ModelHost, session: Session, flag: CancelFlag, arguments: dict[str, Any], name: str = "", parent: int = 0) -> Steps:
    """Yields (status, live text, session) while a new result is made."""
    try:
        running = run(host, arguments, flag)
        while True:
            try:
                status, live = next(running)
            except StopIteration as end:
                report = end.value
                break
            yield status, live, gr.skip()
    except InspectorError as error:
        yield from _failed(error)
    session.add(report, name, parent)
    yield done_html(report), gr.skip(), session


def _failed(error: InspectorError) -> Steps:
    yield error_html(error), "", gr.skip()
    raise gr.Error(str(error), visible=False, print_exception=False) from None  # told in the status already


def branch(host: ModelHost, session: Session, flag: CancelFlag, mode: str, chosen: int | None, values: tuple[Any, ...]) -> Steps:
    """Take another token at the pinned place and sample on from there: a new result below the shown one."""
    result = session.current
    if result is None or session.pinned is None or chosen is None:
        return
    sequence, position = session.pinned
    tokens = result.report.tokens
    before = tokens[((tokens["sequence"] == 0) & (tokens["source"] == "prompt")) | (tokens["sequence"] == sequence)]
    ids = before[before["position"] < position]["token_id"].tolist()
    try:
        if host.inspector:
            host.inspector.check_made_here(result.report)
        text, sampler = _forms(values)
        arguments = read_arguments(replace(text, kind="raw"), sampler, mode)
    except InspectorError as error:
        yield from _failed(error)
    # the chosen token belongs to the prompt, so that the continuation starts after it and reuses what is cached
    arguments = _of_ids(arguments) | {"prompt": [*ids, chosen], "continuations": 1}
    token = host.inspector.loaded.vocabulary.text_of(chosen) if host.inspector else str(chosen)
    yield from run_and_add(host, session, flag, arguments, f"{token!r} at {position}", result.number)


def live(host: ModelHost, session: Session, is_live: bool, values: tuple[Any, ...]) -> Steps:
    """Yields (status, session) while the tokens of the shown result, continuations too, are scored again with the parameters
    as they are now."""
    result = session.current
    params = _moved_params(result, values) if is_live and host.inspector and result else None
    if params is None:
        yield gr.skip(), gr.skip()
        return
    yield progress_html(Progress("scoring again", 0, 0)), gr.skip()
    try:
        report = host.inspector.rescore(result.report, params)
    except InspectorError as error:
        yield error_html(error), gr.skip()
        return
    session.vary(result.number, report)
    yield done_html(report, "Scored again"), session


def _moved_params(result: Result, values: tuple[Any, ...]) -> SamplingParams | None:
    """The form's parameters where they are not the result's own."""
    try:
        params = read_params(_forms(values)[1])
    except InspectorError:
        return None  # told at the fields
    return None if params == SamplingParams(**result.report.run["params"]) else params


def show(session: Session, mode: str) -> list[Any]:
    """The shown result in the chosen mode, beside the one it is compared with; nothing is run.

    What the page shows already is left as it is: all of it, or what does not depend on the mode.
    """
    result = _in_mode(session, session.shown, mode)
    if result is None:
        session.drawn = None
        return [session, "", gr.update(visible=True), gr.update(visible=False), *[gr.skip()] * (SHOWN - 4)]
    other = _in_mode(session, session.other, session.other_mode or mode)
    report = result.report
    modes = (mode, session.other_mode)
    before, session.drawn = session.drawn, Drawn(report.sequences, other.report.sequences if other else (), modes, session.choices())
    if session.drawn.is_same(before):
        return [session, "", *[gr.skip()] * (SHOWN - 2)]
    comparison = ""
    if other:
        names = (session.title(result), session.title(other))
        comparison = comparison_html(report, other.report, compare(report, other.report), names)

    def fixed(make: Callable[[Report], Any]) -> Any:
        return gr.skip() if session.drawn.has_same_scores(before) else make(report)

    return [
        session, "", gr.update(visible=False), gr.update(visible=True), fixed(cards.summary_html), payload(result, other), comparison,
        *pin_values(session), *(make(report) if by_mode else fixed(make) for make, by_mode in plots.FIGURES), table.rows(report),
        table.note(report), fixed(cards.notes_html), fixed(cards.run_html), *history_values(session),
        *[DEAD] * len(downloads.FILES),  # until those of this result are made
    ]  # fmt: skip


def _in_mode(session: Session, number: int, mode: str) -> Result | None:
    """A result read in `mode`, and kept so."""
    result = session.find(number)
    if result is None or result.report.mode.value == mode:
        return result
    changed = replace(result, report=result.report.with_mode(mode))
    # `is`: scores that came live meanwhile stay
    session.results = [changed if r is result else r for r in session.results]
    return changed


def files(session: Session) -> list[Any]:
    """Files of the shown result if somebody waits for them; buttons of an older result go dead."""
    result = session.current
    if result is None or not session.wants_files:
        return [DEAD] * len(downloads.FILES)
    return [gr.update(value=path, interactive=True) for path in downloads.make_files(result, session.results)]


def open_files(session: Session) -> list[Any]:
    session.wants_files = True
    return [session, *files(session)]


def leave_files(session: Session, event: gr.SelectData) -> Session:
    session.wants_files = event.value == "Download"
    return session


def pin(session: Session, event: gr.EventData) -> list[Any]:
    session.pinned = (int(event.sequence), int(event.position))
    return [session, *pin_values(session)]


def unpin(session: Session) -> list[Any]:
    session.pinned = None
    return [session, *pin_values(session)]


def pin_values(session: Session) -> list[Any]:
    """The pinned token's table, its plots, and the choice of what to take instead."""
    result = session.current
    hidden = [gr.update(visible=False)] * 3 + [gr.skip()]
    if result is None or session.pinned is None:
        return [detail.HINT, *hidden]
    text = detail.pinned_html(result.report, *session.pinned)
    choices = detail.choices(result.report, *session.pinned)
    if not choices:
        return [text, *hidden]
    figures = detail.pinned_figures(result.report, *session.pinned)
    return [
        text,
        *(gr.update(value=f, visible=True) for f in figures),
        gr.update(visible=True),
        gr.update(choices=choices, value=choices[0][1]),
    ]


def steps(host: ModelHost, session: Session) -> str:
    """The pipeline at the pinned token, step by step; the model that made the result has to be the loaded one."""
    result = session.current
    if result is None or session.pinned is None or session.pinned == (0, 0) or host.inspector is None:
        return ""
    try:
        return detail.steps_html(host.inspector.pipeline_steps(result.report, *session.pinned))
    except InspectorError as error:
        return detail.no_steps_html(str(error))


def share(address: str, mode: str, model: str, *values: Any) -> str:
    """A link to this form. Raises gr.Error for one that would be too long."""
    try:
        return f"{address}#{encode(*_forms(values), mode, model)}"
    except InspectorError as error:
        raise gr.Error(str(error), print_exception=False) from None


def restore(code: str) -> list[Any]:
    """The mode, the model's name and the form of a link; nothing changes where the page was opened without one."""
    unchanged = [gr.skip()] * (2 + len(TEXT_FIELDS) + len(SAMPLER_FIELDS))
    if not code.startswith(PREFIX):
        return unchanged
    try:
        text, sampler, mode, model = decode(code)
    except InspectorError as error:
        gr.Warning(str(error))
        return unchanged
    values = [*(getattr(text, n) for n in TEXT_FIELDS), *(getattr(sampler, n) for n in SAMPLER_FIELDS)]
    return [mode, model or gr.skip(), *values]


def _of_ids(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that say how a text becomes ids."""
    about_text = ("chat", "completion", "add_generation_prompt", "add_bos", "parse_special")
    return {name: value for name, value in arguments.items() if name not in about_text}


def _forms(values: tuple[Any, ...]) -> tuple[TextForm, SamplerForm]:
    text = len(TEXT_FIELDS)
    return TextForm(*values[:text]), SamplerForm(*values[text : text + len(SAMPLER_FIELDS)])
