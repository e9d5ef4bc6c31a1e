"""Plotly figures of a report. Colours read on light and dark alike; the backgrounds are the page's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from inspector.report import Report
from inspector.tokens import visible

# after Okabe and Ito, which colour-blind readers can tell apart, in a lightness that stands out on white and on black
COLOURS = ("#2f8bd0", "#dc6a14", "#16a37b", "#cc79a7", "#c98a00", "#56b4e9")
GREY = "#75829a"
SIDES = (("raw", COLOURS[0]), ("processed", COLOURS[1]))
RANK_EDGES = (1, 10, 100, 1000)
RANK_NAMES = ("1", "2–10", "11–100", "101–1,000", "beyond")


def along_text(report: Report) -> go.Figure:
    figure = _figure(f"{report.mode.value.replace('_', ' ')} along the text", "position", report.mode.unit)
    for name, part, colour in _parts(report.tokens):
        score = part["score"].replace(-np.inf, np.nan)
        figure.add_scatter(
            x=part["position"], y=score, name=name, mode="lines+markers", line={"color": colour, "width": 1.4}, marker={"size": 4},
            **_tokens(part), hovertemplate="%{text}<br>%{y:.4f}<extra>" + name + "</extra>",
        )  # fmt: skip
        cut = part[part["cut_by"] != ""] if report.mode.is_processed else part[:0]
        if len(cut):
            bottom = np.nanmin(score) if score.notna().any() else 0.0
            figure.add_scatter(
                x=cut["position"], y=np.full(len(cut), bottom), name=f"{name}: cut (−∞)", mode="markers",
                marker={"color": colour, "symbol": "x-thin", "line": {"width": 1.6, "color": colour}, "size": 7},
                **_tokens(cut), hovertemplate="%{text}<br>cut<extra></extra>",
            )  # fmt: skip
    return _with_legend(figure)


def surprisal_and_entropy(report: Report) -> go.Figure:
    figure = _figure("surprisal (bars) and entropy (dotted), raw", "position", "nats")
    for name, part, colour in _parts(report.tokens):
        figure.add_bar(
            x=part["position"], y=-part["raw_logprob"], name=name, marker={"color": colour, "line": {"width": 0}}, opacity=0.65,
            **_tokens(part), textposition="none", hovertemplate="%{text}<br>surprisal %{y:.4f}<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=part["position"], y=part["raw_entropy"], name=f"{name}: entropy", showlegend=False, mode="lines",
            line={"color": colour, "width": 1.6, "dash": "dot"}, **_tokens(part),
            hovertemplate="%{text}<br>entropy %{y:.4f}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="overlay")
    return _with_legend(figure)


def cumulative(report: Report) -> go.Figure:
    figure = _figure("cumulative surprisal, raw", "position", "nats")
    for name, part, colour in _parts(report.tokens):
        figure.add_scatter(
            x=part["position"], y=(-part["raw_logprob"].astype("float64").fillna(0.0)).cumsum(), name=name, mode="lines",
            line={"color": colour, "width": 1.6, "shape": "hv"}, **_tokens(part), hovertemplate="%{text}<br>%{y:.3f}<extra></extra>",
        )  # fmt: skip
    return _with_legend(figure)


def histogram(report: Report) -> go.Figure:
    figure = _figure("distribution of the score", report.mode.value.replace("_", " ") + f", {report.mode.unit}", "tokens")
    for name, part, colour in _parts(report.tokens):
        finite = part["score"][np.isfinite(part["score"])]
        figure.add_histogram(
            x=finite, name=name, marker={"color": colour}, opacity=0.65, nbinsx=40, bingroup="score", meta="tokens",
            customdata=finite.index.tolist(),
        )  # fmt: skip
    figure.update_layout(barmode="overlay")
    return _with_legend(figure)


def rank_buckets(report: Report) -> go.Figure:
    figure = _figure("raw rank", "rank", "share of the scored tokens")
    figure.update_layout(yaxis={"tickformat": ".0%"})
    for name, part, colour in _parts(report.tokens):
        ranks = part["raw_rank"].dropna().astype("int64")
        buckets = np.searchsorted(RANK_EDGES, ranks)
        rows = [ranks.index[buckets == k].tolist() for k in range(len(RANK_NAMES))]
        figure.add_bar(
            x=RANK_NAMES, y=[len(r) / max(len(ranks), 1) for r in rows], name=name, marker={"color": colour},
            meta="tokens", customdata=[[len(r), r] for r in rows],
            hovertemplate="rank %{x}: %{customdata[0]} tokens, %{y:.1%}<extra>" + name + "</extra>",
        )  # fmt: skip
    return _with_legend(figure)


def pinned_bars(rows: pd.DataFrame) -> go.Figure:
    """Raw against processed probability of one token's listed alternatives."""
    figure = _figure("the alternatives", "probability", "")
    names = _plain([f"{visible(t)}  {i}" for t, i in zip(rows["token"], rows["token_id"])])
    for side, colour in SIDES:
        figure.add_bar(
            y=names, x=np.exp(rows[f"{side}_logprob"].to_numpy(np.float64)), name=side, orientation="h", marker={"color": colour},
            hovertemplate="%{y}<br>%{x:.3%}<extra>" + side + "</extra>",
        )  # fmt: skip
    figure.update_layout(barmode="group", height=_pinned_height(rows))
    figure.update_xaxes(tickformat=".3~p", rangemode="tozero", nticks=6)
    figure.update_yaxes(autorange="reversed", type="category", automargin=True)
    return _with_legend(figure)


def pinned_mass(rows: pd.DataFrame, top_p: float) -> go.Figure:
    """The mass of one token's best alternatives added up, raw and processed, with the top_p line."""
    figure = _figure("cumulative mass", "the n best", "probability")
    top = rows[rows["listed_as"].str.contains("top")]
    for side, colour in SIDES:
        mass = np.cumsum(np.sort(np.exp(top[f"{side}_logprob"].to_numpy(np.float64)))[::-1])
        figure.add_scatter(
            x=np.arange(1, len(mass) + 1), y=mass, name=side, mode="lines+markers", line={"color": colour, "shape": "hv"},
            hovertemplate="best %{x}: %{y:.2%}<extra>" + side + "</extra>",
        )  # fmt: skip
    figure.update_layout(height=_pinned_height(rows))
    figure.update_yaxes(tickformat=".0%", range=[0, 1.03])
    if top_p < 1.0:
        figure.add_hline(y=top_p, line={"color": COLOURS[3], "dash": "dash"}, annotation_text=f"top_p {top_p:g}")
    return _with_legend(figure)


def _pinned_height(rows: pd.DataFrame) -> int:
    return max(300, 110 + 24 * len(rows))


def _parts(tokens: pd.DataFrame) -> list[tuple[str, pd.DataFrame, str]]:
    parts = []
    for (sequence, source), part in tokens.groupby(["sequence", "source"], sort=False):
        name = f"continuation {sequence}" if sequence else str(source)
        parts.append((name, part, COLOURS[len(parts) % len(COLOURS)]))
    return parts


def _tokens(part: pd.DataFrame) -> dict[str, Any]:
    """A trace's texts, and the rows of its points in the table of tokens, which lead a click to the token (page.js)."""
    return {"text": _labels(part), "meta": "tokens", "customdata": part.index.tolist()}


def _labels(part: pd.DataFrame) -> list[str]:
    return _plain([f"{position}: {visible(token)}" for position, token in zip(part["position"], part["token"])])


def _plain(texts: Sequence[str]) -> list[str]:
    """Plotly reads a small HTML in its texts; a token is never markup."""
    return [t.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for t in texts]


def _figure(title: str, x: str, y: str) -> go.Figure:
    figure = go.Figure()
    _style(figure, title)
    figure.update_xaxes(title={"text": x, "standoff": 6})
    figure.update_yaxes(title={"text": y})
    return figure


def _with_legend(figure: go.Figure) -> go.Figure:
    """Room below the axis for as many lines as the legend takes in a narrow window."""
    named = sum(trace.showlegend is not False for trace in figure.data)
    return figure.update_layout(margin_b=54 + 20 * -(-named // 2))


def _style(figure: go.Figure, title: str) -> None:
    axis = {"gridcolor": "rgba(138,148,166,0.22)", "zerolinecolor": "rgba(138,148,166,0.45)", "linecolor": "rgba(138,148,166,0.45)"}
    figure.update_layout(
        template="none", modebar={"bgcolor": "rgba(0,0,0,0)", "color": GREY},
        title={"text": title, "font": {"size": 13}, "x": 0.01, "xanchor": "left"}, height=340,
        margin={"l": 52, "r": 14, "t": 36, "b": 74}, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        font={"color": GREY, "size": 11, "family": "system-ui, sans-serif"}, showlegend=True, hovermode="closest",
        legend={"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom", "x": 0, "xanchor": "left", "font": {"size": 10}},
    )  # fmt: skip
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)


# in the page's order, and whether a plot depends on the mode
FIGURES = ((along_text, True), (surprisal_and_entropy, False), (cumulative, False), (histogram, True), (rank_buckets, False))
