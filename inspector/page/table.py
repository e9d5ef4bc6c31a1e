"""The table of all tokens, as far as a page should carry it; the files have every row."""

from typing import Any

import gradio as gr
import numpy as np
import pandas as pd

from inspector.page.cards import figure
from inspector.report import Report
from inspector.tokens import visible

MAX_ROWS = 1000
HEADERS = (
    "seq", "source", "pos", "id", "token", "score", "raw logit", "raw logprob", "proc. logit", "proc. logprob", "raw rank", "proc. rank",
    "raw entropy", "proc. entropy", "kept", "kept mass", "cut by",
)  # fmt: skip
WIDTHS = (54, 116, 60, 76, 140, 104, 104, 120, 120, 136, 104, 112, 124, 136, 84, 112, 140)
COLUMNS = (
    "sequence", "source", "position", "token_id", "token", "score", "raw_logit", "raw_logprob", "processed_logit", "processed_logprob",
    "raw_rank", "processed_rank", "raw_entropy", "processed_entropy", "kept_tokens", "kept_mass", "cut_by",
)  # fmt: skip
GROUPED = ("raw_rank", "processed_rank", "kept_tokens")
TEXTS = ("source", "token", "cut_by")
STYLES = tuple("" if name in TEXTS else "text-align: right" for name in COLUMNS)


def table_component() -> gr.Dataframe:
    return gr.Dataframe(
        headers=list(HEADERS), datatype=["str" if c in TEXTS else "number" for c in COLUMNS], type="array",
        interactive=False, max_height=460, show_search="search", column_widths=list(WIDTHS), elem_id="tokens", label="Tokens",
        line_breaks=False, buttons=[],
    )  # fmt: skip


def rows(report: Report) -> dict[str, Any]:
    """The first MAX_ROWS tokens: numbers as numbers, which sort, and how they are shown: missing as an empty cell, cut as −∞."""
    part = report.tokens.head(MAX_ROWS)
    values, shown = [], []
    for name in COLUMNS:
        column = part[name]
        if name == "token":
            cells = texts = [visible(t) for t in column]
        elif column.dtype == np.float32:
            cells = ["−∞" if x == -np.inf else None if pd.isna(x) else round(float(x), 4) for x in column]
            texts = [figure(x, 4) if isinstance(x, float) else x or "" for x in cells]
        else:
            cells = [None if x is pd.NA else x for x in column.tolist()]
            texts = [f"{x:,}" if name in GROUPED and x is not None else "" if x is None else str(x) for x in cells]
        values.append(cells)
        shown.append(texts)
    metadata = {"display_value": _transposed(shown), "styling": [list(STYLES)] * len(part)}
    return {"headers": list(HEADERS), "data": _transposed(values), "metadata": metadata}


def _transposed(columns: list[list[Any]]) -> list[list[Any]]:
    return [list(row) for row in zip(*columns)]


def note(report: Report) -> str:
    total = len(report.tokens)
    if total <= MAX_ROWS:
        return f"{total:,} rows. Empty: not scored. −∞: cut."
    return f"The first {MAX_ROWS:,} of {total:,} rows; tokens.csv has all of them. Empty: not scored. −∞: cut."
