"""Summary cards, notes and the line about the model."""

import math
from html import escape

import pandas as pd

from inspector.report import Report

# title, what it says, its definition
CARDS = (
    ("tokens", "Scored", "tokens with a score, of all", "The first token has no prediction and counts in no mean."),
    ("total", "Total logprob", "nats, raw", "The sum of the raw logprobs of the scored tokens."),
    ("mean", "Mean logprob", "nats a token", "Total logprob divided by the number of scored tokens."),
    ("perplexity", "Perplexity", "lower is less surprising", "exp(mean surprisal over the scored tokens)."),
    ("bits", "Bits per byte", "comparable across tokenizers", "Total surprisal in bits divided by the UTF-8 bytes of the scored tokens."),
    ("rank", "Mean rank", "1 is the model's favourite", "Mean of 1 + the number of tokens with a greater raw logit."),
    ("top", "In top 1 · 10 · 100", "percent of the scored tokens", "How many scored tokens were among the model's 1, 10 or 100 best."),
    ("cut", "Cut by the sampler", "tokens it could not have drawn", "Scored tokens that a processor made −inf."),
)  # fmt: skip


def summary_html(report: Report) -> str:
    """One row of cards a sequence and source."""
    names, rows = [], []
    for part in report.summary.itertuples(index=False):
        name = f"Continuation {part.sequence}" if part.sequence else str(part.source).capitalize()
        values = _values(part)
        cards = "".join(
            f"<div class='li-card-box' title='{escape(definition)}'><dt>{title}</dt>"
            f"<dd>{values[key]}</dd><dd class='li-card-note'>{note}</dd></div>"
            for key, title, note, definition in CARDS
        )
        rows.append(f"<section class='li-summary' aria-label='Summary of {name}'><h3>{name}</h3><dl>{cards}</dl></section>")
        names.append(name)
    return _folded(names, rows)


def _folded(names: list[str], rows: list[str]) -> str:
    """The first sequence at once, the others on demand, so that the heatmap stays in sight."""
    more = "".join(rows[1:])
    return rows[0] + (f"<details class='li-more'><summary>{_others(names)}</summary>{more}</details>" if more else "")


def _others(names: list[str]) -> str:
    words = ", ".join(names[1:]) if len(names) <= 4 else f"{names[1]} to {names[-1]}"
    return f"Summary of {words}"


def _values(part: object) -> dict[str, str]:
    share = " · ".join("—" if math.isnan(x) else f"{100 * x:.0f}" for x in (part.top_1, part.top_10, part.top_100))
    return {
        "tokens": f"{part.scored:,} / {part.tokens:,}",
        "total": figure(part.total_logprob, 2),
        "mean": figure(part.mean_logprob, 3),
        "perplexity": figure(part.perplexity, 2),
        "bits": figure(part.bits_per_byte, 3),
        "rank": figure(part.mean_rank, 1),
        "top": share,
        "cut": f"{part.cut:,}",
    }


def figure(value: float, digits: int) -> str:
    """A number for people: a dash for missing, a power of ten where it would not fit."""
    if pd.isna(value):
        return "—"
    if abs(value) >= 1e6:
        return f"{value:.2e}".replace("e+0", "e").replace("e+", "e").replace("-", "−")
    return f"{value:,.{digits}f}".replace("-", "−")


def notes_html(report: Report) -> str:
    """What a reader of the scores should know: the active processors, the reading of prompt rows, the run's notes."""
    run = report.run
    lines = []
    if run["pipeline"]:
        lines.append("Processors, in order: " + " → ".join(f"{step}{_amount(run['params'].get(step))}" for step in run["pipeline"]) + ".")
        if run["prompt_processing"] == "as_sampled":
            lines.append("Processed prompt scores are read as if each token had been sampled here.")
    else:
        lines.append("No processor is active: processed scores equal raw ones.")
    if run["seed"] is not None:
        lines.append(f"First seed {run['seed']}.")
    lines += [_sentence(note) for note in run["notes"]]
    return "<ul class='li-notes'>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _amount(value: object) -> str:
    return f" {value}" if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def _sentence(note: str) -> str:
    return note[:1].upper() + note[1:] + ("" if note.endswith((".", "?")) else ".")


def run_html(report: Report) -> str:
    """The line below a result: what was run, on what, and how long it took."""
    run = report.run
    revision = run["model"]["revision"] or "no revision"
    parts = [
        f"<b>{escape(run['model']['name'])}</b>", f"<span title='{escape(revision)}'>{escape(revision[:18])}</span>", escape(run["dtype"]),
        escape(run["device"]), f"kernels: {escape(run['kernel_path'])}", f"{run['vocab_size']:,} logits a row",
        f"{run['times']['total_seconds']:.2f} s",
    ]  # fmt: skip
    return "<p class='li-run'>" + " · ".join(parts) + "</p>"
