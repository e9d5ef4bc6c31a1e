"""Two results token by token: which tokens are the same, and how their scores differ."""

import math
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd

from inspector.page.cards import figure
from inspector.report import Report
from inspector.tokens import visible

SAME = 5e-5  # what four digits do not show: rounding, which depends on what was cached


@dataclass(frozen=True)
class Comparison:
    """match: for each token of this report the row of the same token in the other, or −1. difference: other − this of
    the mode's score, NaN where either is missing or cut."""

    match: np.ndarray
    difference: np.ndarray
    changed_first: int
    compared_first: int


def compare(this: Report, other: Report) -> Comparison:
    """Tokens are the same where sequence, characters and bytes are; so two tokenizers can be compared where they agree."""
    index = pd.Index(_keys(other.tokens))
    match = index.get_indexer(pd.Index(_keys(this.tokens)))
    scores = other.tokens["score"].to_numpy(np.float64)
    found = np.where(match >= 0, scores[match], np.nan) if len(scores) else np.full(len(match), np.nan)
    own = this.tokens["score"].to_numpy(np.float64)
    difference = np.full(len(own), np.nan)
    both = np.isfinite(found) & np.isfinite(own)
    difference[both] = found[both] - own[both]
    mine, theirs = _first(this), _first(other)
    first_of = pd.Series(theirs, dtype="float64").reindex(np.where(match >= 0, match, -1)).to_numpy()
    known = ~np.isnan(first_of) & ~np.isnan(mine)
    return Comparison(match, difference, int((first_of[known] != mine[known]).sum()), int(known.sum()))


def comparison_html(this: Report, other: Report, result: Comparison, names: tuple[str, str]) -> str:
    """The summary below the heatmap."""
    known = result.difference[~np.isnan(result.difference)]
    same = int((result.match >= 0).sum())
    head = f"<h3>{escape(names[1])} compared with {escape(names[0])}</h3>"
    if not len(known):
        words = f"{same:,} tokens are the same; none has a score in both."
        return f"<section class='li-compare'>{head}<p class='li-facts'>{words}</p></section>"
    largest = int(np.nanargmax(np.abs(result.difference)))
    token = this.tokens.iloc[largest]
    place = f"at <code class='li-code'>{escape(visible(token['token']))}</code> ({token['position']})"
    if np.abs(known).max() < SAME:
        place = "every score is the same in this mode"
    mode, other_mode = (report.mode.value.replace("_", " ") for report in (this, other))
    what = "other − this" if mode == other_mode else f"{other_mode} − {mode}"
    unit = this.mode.unit if this.mode.unit == other.mode.unit else f"{other.mode.unit} against {this.mode.unit}"
    facts = (
        ("Tokens the same", f"{same:,} of {len(result.match):,}", "by place, characters and bytes"),
        ("Mean difference", _signed(known.mean()), f"{what}, over the {len(known):,} scored in both"),
        ("Mean absolute difference", figure(np.abs(known).mean(), 4), f"{unit} a token" if unit == this.mode.unit else unit),
        ("Largest difference", _signed(result.difference[largest]), place),
        ("First choice changed", f"{result.changed_first:,} of {result.compared_first:,}", "places where rank 1 is another token"),
    )
    cards = "".join(
        f"<div class='li-card-box'><dt>{title}</dt><dd>{value}</dd><dd class='li-card-note'>{note}</dd></div>"
        for title, value, note in facts
    )
    return f"<section class='li-compare li-summary'>{head}<dl>{cards}</dl></section>"


def _keys(tokens: pd.DataFrame) -> list[tuple[int, int, int, str, int]]:
    """A key a token; the last part counts tokens that share all else, so that keys are unique."""
    columns = ["sequence", "start", "end", "token_bytes"]
    return list(zip(*(tokens[c] for c in columns), tokens.groupby(columns, sort=False).cumcount()))


def _first(report: Report) -> np.ndarray:
    """The best id of each token's row in the report's mode, NaN where none was listed."""
    best = report.alternatives[report.alternatives["place"] == 1].set_index(["sequence", "position"])["token_id"]
    at = pd.MultiIndex.from_frame(report.tokens[["sequence", "position"]])
    return best.astype("float64").reindex(at).to_numpy()


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + figure(value, 4)


def reach(difference: np.ndarray) -> float:
    """The end of the colour scale: the 98th percentile of the differences' size, so that one token does not hide the others."""
    known = np.abs(difference[~np.isnan(difference)])
    largest = float(np.percentile(known, 98)) if len(known) else 0.0
    return max(round(largest, 1 - math.floor(math.log10(largest))) if largest > 0 else 0.0, 1e-4)
