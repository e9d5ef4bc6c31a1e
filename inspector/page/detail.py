"""A pinned token: its alternatives, raw beside processed."""

import math
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from inspector.page.cards import figure
from inspector.page.plots import pinned_bars, pinned_mass
from inspector.report import Report
from inspector.tokens import visible

HINT = "<p class='li-pin-hint'>Click a token, or walk to it with the arrow keys and press Enter, to see what else the model considered.</p>"


def alternatives_of(report: Report, sequence: int, position: int) -> pd.DataFrame:
    table = report.alternatives
    return table[(table["sequence"] == sequence) & (table["position"] == position)]


def pinned_figures(report: Report, sequence: int, position: int) -> tuple[go.Figure, go.Figure]:
    """Raw against processed probability, and the mass of the best added up."""
    rows = alternatives_of(report, sequence, position).head(20)
    return pinned_bars(rows), pinned_mass(rows, report.run["params"]["top_p"])


def choices(report: Report, sequence: int, position: int) -> list[tuple[str, int]]:
    """What could be taken instead: the listed alternatives, the token's own last."""
    rows = alternatives_of(report, sequence, position)
    named = [(f"{visible(r.token)}   {share(r.raw_logprob)}", int(r.token_id), "own" in r.listed_as) for r in rows.itertuples(index=False)]
    return [(name, token_id) for name, token_id, _ in sorted(named, key=lambda n: n[2])]


def pinned_html(report: Report, sequence: int, position: int) -> str:
    """The token and the table of its alternatives."""
    tokens = report.tokens
    found = tokens[(tokens["sequence"] == sequence) & (tokens["position"] == position)]
    if not len(found):
        return HINT
    token = found.iloc[0]
    place = f"Continuation {sequence}" if sequence else token["source"].capitalize()
    title = f"<h3>{place}, position {position}: <code class='li-code'>{escape(visible(token['token']))}</code></h3>"
    facts = f"<p class='li-facts'>id {token['token_id']} · bytes {bytes.fromhex(token['token_bytes']).hex(' ') or 'none'} · "
    if pd.isna(token["raw_rank"]):
        return title + facts + "not scored: nothing precedes it, so the model makes no prediction of it</p>"
    facts += (
        f"raw rank {token['raw_rank']:,} · entropy {figure(token['raw_entropy'], 3)} nats raw, "
        f"{figure(token['processed_entropy'], 3)} processed · "
        f"{token['kept_tokens']:,} token{'s' if token['kept_tokens'] != 1 else ''} kept, {100 * token['kept_mass']:.1f} % of the raw mass"
    )
    if token["cut_by"]:
        facts += f" · <b class='li-cut-word'>cut by {token['cut_by']}</b>"
    return title + facts + "</p>" + _table(alternatives_of(report, sequence, position))


def steps_html(steps: pd.DataFrame) -> str:
    """What each step of the pipeline made of the pinned token."""
    if len(steps) < 2:
        return "<p class='li-note'>No processor is active here: the processed value is the raw one.</p>"
    rows, before = [], None
    for step in steps.itertuples(index=False):
        is_cut = step.logit == -math.inf
        kind = " class='li-cut-word'" if is_cut else ""
        change = "" if before is None or is_cut else figure(step.logit - before, 4)
        cells = "".join(f"<td{kind}>{'−∞' if is_cut else figure(x, 4)}</td>" for x in (step.logit, step.logprob))
        rows.append(f"<tr><th scope='row' class='li-left'>{step.step}</th>{cells}<td>{change}</td><td>{step.kept_tokens:,}</td></tr>")
        if is_cut:
            break  # the steps after it change nothing for this token
        before = step.logit
    head = "<tr><th class='li-left'>after</th><th>logit</th><th>logprob</th><th>change</th><th>tokens left</th></tr>"
    return (
        "<h4>Step by step</h4><div class='li-scroll' tabindex='0' role='region' aria-label='The pipeline at this token'>"
        f"<table class='li-table' id='steps'><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def no_steps_html(reason: str) -> str:
    return f"<p class='li-note'>The pipeline step by step is not at hand: {escape(reason)}.</p>"


def _table(rows: pd.DataFrame) -> str:
    head = (
        "<thead><tr><th rowspan='2'>place</th><th rowspan='2' class='li-left'>token</th><th rowspan='2'>id</th>"
        "<th colspan='4' scope='colgroup'>raw</th><th colspan='4' scope='colgroup' class='li-group'>processed</th>"
        "<th rowspan='2' class='li-left'>cut by</th><th rowspan='2' class='li-left'>listed as</th></tr><tr>"
        + "<th>logit</th><th>logprob</th><th>probability</th><th>rank</th>"
        + "<th class='li-group'>logit</th><th>logprob</th><th>probability</th><th>rank</th></tr></thead>"
    )
    body = "".join(_row(row) for row in rows.itertuples(index=False))
    return (
        "<div class='li-scroll' tabindex='0' role='region' aria-label='Alternatives'>"
        f"<table class='li-table' id='alternatives'>{head}<tbody>{body}</tbody></table></div>"
    )


def _row(row: Any) -> str:
    raw = (figure(row.raw_logit, 4), figure(row.raw_logprob, 4), share(row.raw_logprob), f"{row.raw_rank:,}")
    if row.cut_by:
        processed, kind = ("−∞", "−∞", "0 %", "—"), "li-cut-word"
    else:
        processed = (
            figure(row.processed_logit, 4),
            figure(row.processed_logprob, 4),
            share(row.processed_logprob),
            f"{row.processed_rank:,}",
        )
        kind = ""
    cells = "".join(f"<td>{value}</td>" for value in raw)
    cells += "".join(f"<td class='{kind}{'' if k else ' li-group'}'>{value}</td>" for k, value in enumerate(processed))
    own = "li-own" if "own" in row.listed_as else ""
    token = f"<td class='li-left'><code class='li-code'>{escape(visible(row.token))}</code></td><td>{row.token_id}</td>"
    reason = f"<td class='li-left li-cut-word'>{row.cut_by}</td><td class='li-left'>{row.listed_as}</td>"
    return f"<tr class='{own}'><td>{row.place}</td>{token}{cells}{reason}</tr>"


def share(logprob: float) -> str:
    """A probability in percent."""
    value = 100 * math.exp(logprob)
    return f"{value:.2f} %" if value >= 0.01 else f"{value:.1e} %".replace("e-0", "e−").replace("e-", "e−")
