"""The heatmap: a report as a compact payload, and the component that draws it (assets/heatmap.js)."""

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr
import numpy as np
import pandas as pd

from inspector.page.compare import compare, reach
from inspector.page.look import script
from inspector.page.session import Result
from inspector.processors import PROCESSOR_NAMES
from inspector.report import Report

CARD_ALTERNATIVES = 5  # what the hover card lists; the whole table comes with a pinned token
DIGITS = 4
SCRIPTS = ("scale.js", "tokens.js", "card.js", "heatmap.js")
TEMPLATE = """<div class="li-heatmap">
<div class="li-toolbar"><label>Colour by <select aria-label="Colour by"></select></label>
<label>Show <select aria-label="Show"></select></label>
<div class="li-legend-place"></div></div><div class="li-sections"></div></div>"""


def heatmap_component() -> gr.HTML:
    """Its value is the payload; it triggers `pin` with a sequence and a position, and `unpin`."""
    return gr.HTML(
        value="", html_template=TEMPLATE, js_on_load=script(*SCRIPTS),
        apply_default_css=False, elem_id="heatmap",
    )  # fmt: skip


def payload(this: Result, other: Result | None = None) -> str:
    """A result for the component, and another that it is compared with, in the same mode.

    Columns of all tokens, missing and cut as null (a cut one has `cut` > 0), and each id's text once. The text is escaped
    so that no part of the page on its way can take it for markup.
    """
    data = _data(this)
    if other is not None:
        found = compare(this.report, other.report)
        data |= {
            "other": _data(other),
            "match": found.match.tolist(),
            "difference": rounded(found.difference),
            "reach": reach(found.difference),
        }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _data(result: Result) -> dict[str, Any]:
    report = result.report
    tokens = report.tokens
    alternatives = _alternatives(report)
    ids = {*tokens["token_id"].tolist(), *alternatives["id"]} - {-1}
    names = {**_names(report.alternatives), **_names(tokens)}
    whole = [_is_text(b) for b in tokens["token_bytes"]]
    return {
        "key": result.number,
        "name": f"result {result.number}",
        "mode": report.mode.value,
        "active": report.run["pipeline"],
        "cuts": ["", *PROCESSOR_NAMES],
        "sections": _sections(report),
        "columns": _columns(tokens),
        "hex": {i: b for i, (b, is_text) in enumerate(zip(tokens["token_bytes"], whole)) if not is_text},
        "special": _special(report),
        "names": {i: names[i] for i in sorted(ids)},
        "alternatives": alternatives,
    }


def _columns(tokens: pd.DataFrame) -> dict[str, list[Any]]:
    cut = {name: i for i, name in enumerate(("", *PROCESSOR_NAMES))}
    columns = {"id": tokens["token_id"].tolist(), "cut": [cut[c] for c in tokens["cut_by"]]}
    for name in ("sequence", "position", "start", "end"):
        columns[name] = tokens[name].tolist()
    for name in ("raw_rank", "processed_rank", "kept_tokens"):
        columns[name] = [None if x is pd.NA else x for x in tokens[name].tolist()]
    for name in ("raw_logit", "raw_logprob", "processed_logit", "processed_logprob", "raw_entropy", "processed_entropy", "kept_mass"):
        columns[name] = rounded(tokens[name].to_numpy())
    return columns


def _sections(report: Report) -> list[dict[str, Any]]:
    """Prompt, completion and each continuation: its tokens `first` to `last`, its text, which starts at `offset`."""
    sections = []
    at = 0
    for (sequence, source), part in report.tokens.groupby(["sequence", "source"], sort=False):
        text = report.texts[sequence]
        begin = 0 if source != "completion" else int(part["start"].iloc[0])
        given = report.tokens[(report.tokens["sequence"] == sequence) & (report.tokens["source"] == "completion")]
        stop = int(given["start"].iloc[0]) if source == "prompt" and len(given) else len(text)
        label = f"Continuation {sequence}" if source == "continuation" else source.capitalize()
        about = f"{len(part):,} tokens" if len(part) != 1 else "1 token"
        if source == "continuation":
            about += " · " + _ending(report.run["continuations"][sequence - 1])
        sections.append({
            "label": label, "about": about, "first": at, "last": at + len(part), "text": text[begin:stop], "offset": begin,
        })  # fmt: skip
        at += len(part)
    return sections


def _ending(record: dict[str, Any]) -> str:
    reason = {"length": "ended at max_new_tokens", "cancelled": "cancelled"}.get(record["finish_reason"])
    if reason is None:
        why = record["stop_reason"]
        reason = f"stopped at {why!r}" if isinstance(why, str) else f"stopped at token id {why}"
    return f"seed {record['seed']} · {reason}"


def _alternatives(report: Report) -> dict[str, Any]:
    """The first few listed alternatives of each token, `width` a token, id −1 where there are fewer."""
    table = report.alternatives
    listed = table[table["place"] <= CARD_ALTERNATIVES]
    index = pd.MultiIndex.from_frame(report.tokens[["sequence", "position"]])
    row = index.get_indexer(pd.MultiIndex.from_frame(listed[["sequence", "position"]]))
    at = row * CARD_ALTERNATIVES + listed["place"].to_numpy() - 1
    ids = np.full(len(index) * CARD_ALTERNATIVES, -1)
    ids[at] = listed["token_id"]
    found: dict[str, Any] = {"width": CARD_ALTERNATIVES, "id": ids.tolist()}
    for name in ("raw", "processed"):
        values = np.full(len(ids), np.nan, dtype=np.float32)
        values[at] = listed[f"{name}_logprob"]
        found[name] = rounded(values, 3)
    return found


def _names(table: pd.DataFrame) -> dict[int, str]:
    return dict(zip(table["token_id"].tolist(), table["token"]))


def _special(report: Report) -> list[int]:
    special = report.vocabulary.special_ids if report.vocabulary else frozenset()
    return [i for i, token_id in enumerate(report.tokens["token_id"].tolist()) if token_id in special]


def _is_text(hexed: str) -> bool:
    try:
        bytes.fromhex(hexed).decode()
    except UnicodeDecodeError:
        return False
    return True


def rounded(values: Sequence[float], digits: int = DIGITS) -> list[float | None]:
    """JSON numbers; null for missing and for cut."""
    array = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(array)
    return [x if ok else None for x, ok in zip(np.round(array, digits).tolist(), finite.tolist())]
