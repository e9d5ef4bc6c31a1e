"""An inspection while it runs: what the page says meanwhile, and how it is cancelled."""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from html import escape
from typing import Any

from inspector.errors import Cancelled
from inspector.events import Progress, SampledTokens
from inspector.inspection import Inspector
from inspector.page.cards import figure
from inspector.page.host import ModelHost
from inspector.page.session import CancelFlag
from inspector.report import Report
from inspector.tokens import pieces_text, visible

SAY_EVERY = 0.15  # seconds between two messages to the page


@dataclass
class _Live:
    """Continuations as far as they are drawn."""

    pieces: dict[int, list[bytes]] = field(default_factory=dict)
    logprobs: dict[int, list[float]] = field(default_factory=dict)

    def add(self, event: SampledTokens, bytes_of: Callable[[int], bytes]) -> None:
        for number, token_id, logprob in zip(event.sequences, event.ids, event.raw_logprobs):
            self.pieces.setdefault(number, []).append(bytes_of(token_id))
            self.logprobs.setdefault(number, []).append(logprob)

    def html(self) -> str:
        parts = []
        for number, pieces in sorted(self.pieces.items()):
            total = sum(self.logprobs[number])
            length = f"{len(pieces):,} token{'s' if len(pieces) > 1 else ''}"
            head = f"<header><h3>Continuation {number}</h3><span>{length} · {figure(total, 2)} nats</span></header>"
            text = f"<div class='li-text li-growing'>{_spans(pieces, self.logprobs[number])}</div>"
            parts.append(f"<section class='li-section'>{head}{text}</section>")
        return "".join(parts)


def run(host: ModelHost, arguments: dict[str, Any], flag: CancelFlag) -> Generator[tuple[str, str], None, Report]:
    """Yields (status, live text) as HTML; returns the report. Raises InspectorError."""
    inspector = yield from _loaded(host.get())
    events = inspector.stream(**arguments, is_cancelled=lambda: flag.asked)
    return (yield from _followed(events, inspector))


def _loaded(waiting: Generator[Progress, None, Inspector]) -> Generator[tuple[str, str], None, Inspector]:
    while True:
        try:
            event = next(waiting)
        except StopIteration as end:
            return end.value
        yield progress_html(event), ""


def _followed(events: Generator[Any, None, Report], inspector: Inspector) -> Generator[tuple[str, str], None, Report]:
    live, said, began, latest = _Live(), 0.0, {}, Progress("starting", 0, 0)
    while True:
        try:
            event = next(events)
        except StopIteration as end:
            return end.value
        if isinstance(event, SampledTokens):
            live.add(event, inspector.loaded.vocabulary.bytes_of)
        else:
            latest = event
            began.setdefault(event.stage, time.perf_counter())
        if time.perf_counter() - said > SAY_EVERY:
            yield progress_html(latest, time.perf_counter() - began.get(latest.stage, time.perf_counter())), live.html()
            said = time.perf_counter()


def progress_html(event: Progress, seconds: float = 0.0) -> str:
    """A bar with counts and, once there is something to go by, the time left."""
    if not event.total:
        return f"<div class='li-progress' role='status'><span>{escape(event.stage)}…</span><progress></progress></div>"
    left = seconds * (event.total - event.done) / event.done if event.done else 0.0
    remaining = f" · about {left:.0f} s left" if left >= 1 else ""
    return (
        f"<div class='li-progress' role='status'><span>{escape(event.stage)}: {event.done:,} of {event.total:,}{remaining}</span>"
        f"<progress max='{event.total}' value='{event.done}' aria-label='{escape(event.stage)}'></progress></div>"
    )


def done_html(report: Report, words: str = "") -> str:
    count = len(report.tokens)
    cancelled = any(c["finish_reason"] == "cancelled" for c in report.run["continuations"])
    seconds = report.run["times"]["total_seconds"]
    words = words or ("Cancelled; what was sampled so far is below" if cancelled else "Done")
    unit = "token" if count == 1 else "tokens"
    kept = ", kept from before" if report.run["reused"]["scored_rows"] >= count else ""
    return f"<p class='li-done' role='status'>{words}: {count:,} {unit} in {seconds:.2f} s{kept}</p>"


def error_html(error: Exception) -> str:
    kind = "li-done" if isinstance(error, Cancelled) else "li-message"
    return f"<p class='{kind}' role='alert'>{escape(str(error))}</p>"


def _spans(pieces: list[bytes], logprobs: list[float]) -> str:
    text, starts, ends = pieces_text(pieces)
    spans, done = [], 0
    for start, end, logprob in zip(starts, ends, logprobs):
        if start < done:  # part of a character that is there already
            continue
        value = min(1.0, -logprob / 12)
        strong = int(value > 0.615)
        shown = escape(text[start:end]) if text[start:end].isprintable() else escape(visible(text[start:end])).replace("↵", "↵\n")
        spans.append(f"<span class='li-token' data-state='even' data-strong='{strong}' style='--v:{value:.3f}'>{shown}</span>")
        done = end
    return "".join(spans)
