"""Rows of logits to scored rows: all four modes, ranks, entropies and alternatives at once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import pandas as pd
import torch
from torch import Tensor

import logit_kernels
from inspector.adjust import adjustment_of
from inspector.errors import EmptyRowError
from inspector.events import Progress, Running
from inspector.forward import Head, chunk_rows, chunks
from inspector.params import SamplingParams
from inspector.processors import VLLM_PIPELINE, Processed, ResolvedParams, RowContext, active_processors, run_pipeline, text_context

NO_RANK = -1
NOT_NUMBERS = "the logits hold NaN or +inf, so nothing can be scored (try dtype float32)"
BEYOND_FLOAT32 = "the processed logits hold NaN or +inf: a penalty, bias or temperature takes them beyond float32; use a milder value"
HEADLESS_ROWS = 1024  # hidden states at a time, where no logits are held: a step of progress


@dataclass(frozen=True)
class ScoredRows:
    """One entry a token, on the CPU; T rows.

    A row without a prediction (the first) has NaN in every float and −1 in every integer column; it was not scored.
    token_id: [T] int64. raw_logit, raw_logprob, processed_logit, processed_logprob: [T] float32, −inf where cut.
    raw_rank, processed_rank: [T] int64, −1 where missing. raw_entropy, processed_entropy: [T], nats.
    kept_tokens: [T] int64, kept_mass: [T], raw probability of the survivors. cut_by: [T] int8, 0 or 1 + pipeline index.
    candidate_ids: [T, K] int64, the raw top n, the processed top n, the requested ids and the own token, each id once,
    −1 where there is none; candidate_* are [T, K] with the meaning of the columns above.
    """

    token_id: Tensor
    raw_logit: Tensor
    raw_logprob: Tensor
    processed_logit: Tensor
    processed_logprob: Tensor
    raw_rank: Tensor
    processed_rank: Tensor
    raw_entropy: Tensor
    processed_entropy: Tensor
    kept_tokens: Tensor
    kept_mass: Tensor
    cut_by: Tensor
    candidate_ids: Tensor
    candidate_raw_logit: Tensor
    candidate_raw_logprob: Tensor
    candidate_processed_logit: Tensor
    candidate_processed_logprob: Tensor
    candidate_raw_rank: Tensor
    candidate_processed_rank: Tensor
    candidate_cut_by: Tensor

    def __len__(self) -> int:
        return self.token_id.shape[0]

    def __getitem__(self, rows: slice) -> "ScoredRows":
        return ScoredRows(*(getattr(self, f.name)[rows] for f in fields(self)))

    def write(self, first: int, rows: "ScoredRows") -> None:
        """Put `rows` in place of those from `first` on."""
        for f in fields(self):
            getattr(self, f.name)[first : first + len(rows)] = getattr(rows, f.name)

    @staticmethod
    def concatenate(parts: Sequence["ScoredRows"]) -> "ScoredRows":
        return ScoredRows(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(ScoredRows)))

    @staticmethod
    def unscored(token_ids: Sequence[int], candidates: int) -> "ScoredRows":
        """Rows that nothing predicts."""
        T = len(token_ids)
        columns = {}
        for f in fields(ScoredRows):
            shape = (T, candidates) if f.name.startswith("candidate") else (T,)
            whole = f.name.endswith(("rank", "ids", "kept_tokens"))
            columns[f.name] = torch.full(shape, NO_RANK) if whole else torch.full(shape, torch.nan)
            if f.name.endswith("cut_by"):
                columns[f.name] = torch.zeros(shape, dtype=torch.int8)
        columns["token_id"] = torch.tensor(token_ids, dtype=torch.long)
        return ScoredRows(**columns)


@dataclass(frozen=True)
class Wanted:
    """What to gather beside each token's own values: the n best, and requested ids. path: the kernels' path."""

    top_n: int
    token_ids: tuple[int, ...]
    path: str

    def candidates(self, vocab_size: int) -> int:
        """K, the width of the candidate columns."""
        return 2 * min(self.top_n, vocab_size) + len(self.token_ids) + 1


def score_rows(raw: Tensor, processed: Processed, own_ids: Tensor, wanted: Wanted, row_names: Sequence[str]) -> ScoredRows:
    """raw, processed.logits: [rows, V] float32; own_ids: [rows] -> ScoredRows of `rows` entries.

    row_names: what an error calls each row. Raises EmptyRowError for a row with a NaN, +inf or no finite logit.
    """
    before = logit_kernels.row_statistics(raw, own_ids, wanted.top_n)
    _check_rows(before, row_names)
    after = before if processed.logits is raw else logit_kernels.row_statistics(processed.logits, own_ids, wanted.top_n)
    if after is not before:
        _check_rows(after, row_names, BEYOND_FLOAT32)
    ids = _candidates(before.top_ids, after.top_ids, own_ids, wanted)
    real = ids.clamp_min(0)
    raw_values, processed_values = raw.gather(1, real), processed.logits.gather(1, real)
    raw_ranks = _ranks(raw, raw_values, ids, before)
    processed_ranks = raw_ranks if after is before else _ranks(processed.logits, processed_values, ids, after)
    raw_logprobs = _logprobs(raw_values, before)
    missing = ids < 0
    kept = ~processed.logits.isneginf()
    raw_probs = (raw - before.maximum[:, None]).sub_(before.log_sum[:, None]).exp_()
    own_cut = after.own_value.isneginf()
    columns = {
        "token_id": own_ids,
        "raw_logit": before.own_value,
        "raw_logprob": _logprobs(before.own_value[:, None], before)[:, 0],
        "processed_logit": after.own_value,
        "processed_logprob": _logprobs(after.own_value[:, None], after)[:, 0],
        "raw_rank": before.own_rank,
        "processed_rank": after.own_rank.masked_fill(own_cut, NO_RANK),
        "raw_entropy": before.entropy,
        "processed_entropy": after.entropy,
        "kept_tokens": after.finite,
        "kept_mass": raw_probs.mul_(kept).sum(dim=1).clamp_max(1.0),
        "cut_by": processed.cut_by.gather(1, own_ids[:, None])[:, 0],
        "candidate_ids": ids,
        "candidate_raw_logit": raw_values.masked_fill(missing, torch.nan),
        "candidate_raw_logprob": raw_logprobs.masked_fill(missing, torch.nan),
        "candidate_processed_logit": processed_values.masked_fill(missing, torch.nan),
        "candidate_processed_logprob": _logprobs(processed_values, after).masked_fill(missing, torch.nan),
        "candidate_raw_rank": raw_ranks.masked_fill(missing, NO_RANK),
        "candidate_processed_rank": processed_ranks.masked_fill(missing | processed_values.isneginf(), NO_RANK),
        "candidate_cut_by": processed.cut_by.gather(1, real).masked_fill(missing, 0),
    }
    return ScoredRows(**{name: value.cpu() for name, value in columns.items()})


@torch.inference_mode()
def score_text(
    head: Head,
    hidden: Tensor,
    ids: Tensor,
    boundary: int,
    resolved: ResolvedParams,
    wanted: Wanted,
    *,
    process_prompt: bool = True,
    known: ScoredRows | None = None,
) -> Running[ScoredRows]:
    """Every token of a given text. hidden: [T, H], ids: [T] int64; boundary: where the completion begins.

    process_prompt: False leaves prompt rows as the engine does, processed equal to raw. known: the first rows, if they
    were scored before. Holds one chunk of logits at a
    time.
    """
    # the whole table at once: parts that stay between the chunks' own tensors would leave holes in memory
    table = ScoredRows.unscored(ids.tolist(), wanted.candidates(head.width))
    start, length = 1, ids.shape[0]
    if known is not None:
        start = len(known)
        table.write(0, known)
    middle = min(max(boundary, start), length)
    for begin, end, params in (
        (start, middle, resolved.params if process_prompt else SamplingParams()),
        (middle, length, resolved.params),
    ):
        is_headless = _needs_no_logits(head, params, wanted)
        for first, last in chunks(begin, end, HEADLESS_ROWS if is_headless else chunk_rows(head.width, wanted.path != "torch")):
            yield Progress("scoring", first, length)
            rows, own = hidden[first - 1 : last - 1], ids[first:last]
            scored = score_rows_headless(head.linear, rows, params, own, wanted) if is_headless else None
            if scored is None:
                context = None if params is not resolved.params else text_context(resolved, ids, boundary, first, last)
                score = score_rows_plain if wanted.path == "torch" else score_rows_fused
                scored = score(head(rows), context, own, wanted, [f"token {t}" for t in range(first, last)])
            table.write(first, scored)
    return table


def _needs_no_logits(head: Head, params: SamplingParams, wanted: Wanted) -> bool:
    """Whether the fused head can say everything: no filter, nothing that differs from row to row, no further ids."""
    is_simple = set(active_processors(params)) <= {"logit_bias", "temperature"}
    return wanted.path == "triton" and head.linear is not None and is_simple and not wanted.token_ids


def score_rows_headless(
    head: logit_kernels.LinearHead, hidden: Tensor, params: SamplingParams, own_ids: Tensor, wanted: Wanted
) -> ScoredRows | None:
    """Rows of hidden states [rows, H] whose logits are never stored; None where a row cannot be scored."""
    bias_ids = torch.tensor(sorted(params.logit_bias), dtype=torch.long, device=hidden.device)
    bias = torch.tensor([params.logit_bias[i] for i in sorted(params.logit_bias)], dtype=torch.float32, device=hidden.device)
    temperature = 1.0 if params.is_greedy else params.temperature
    return _scored(logit_kernels.score_hidden(hidden, head, own_ids, wanted.top_n, temperature, bias_ids, bias), own_ids)


def score_rows_plain(raw: Tensor, context: RowContext | None, own_ids: Tensor, wanted: Wanted, row_names: Sequence[str]) -> ScoredRows:
    """The obvious way: the pipeline on whole rows, then their statistics. context None leaves the rows unprocessed."""
    raw = raw.float()
    processed = unprocessed(raw) if context is None else run_pipeline(raw, context, row_names)
    return score_rows(raw, processed, own_ids, wanted, row_names)


def score_rows_fused(raw: Tensor, context: RowContext | None, own_ids: Tensor, wanted: Wanted, row_names: Sequence[str]) -> ScoredRows:
    """The same in one visit to each row; raw: any float dtype."""
    adjustment = logit_kernels.Adjustment.neutral(raw.shape[0]) if context is None else adjustment_of(raw, context)
    if not bool((adjustment.edit_values < torch.inf).all()):  # NaN, too; the plain way says in which row
        return score_rows_plain(raw, context, own_ids, wanted, row_names)
    requested = torch.tensor(wanted.token_ids, dtype=torch.long, device=raw.device)
    scores = logit_kernels.score_rows(raw, own_ids, requested, wanted.top_n, adjustment, wanted.path)
    scored = _scored(scores, own_ids)
    # the plain way says what is wrong with which row
    return score_rows_plain(raw, context, own_ids, wanted, row_names) if scored is None else scored


def _scored(scores: logit_kernels.RowScores, own_ids: Tensor) -> ScoredRows | None:
    """What the kernels found, on the CPU; None where a row has nothing that can be scored."""
    if bool((scores.bad != 0).any()) or bool((scores.kept_tokens == 0).any()):
        return None
    columns = {f.name: getattr(scores, f.name) for f in fields(ScoredRows) if f.name != "token_id"}
    return ScoredRows(token_id=own_ids.cpu(), **{name: column.cpu() for name, column in columns.items()})


def steps_table(raw: Tensor, context: RowContext, token_ids: Sequence[int]) -> pd.DataFrame:
    """raw: [1, V] float32. One row a step and token; see Inspector.pipeline_steps."""
    rows, values, ids = [], raw, torch.tensor(token_ids, dtype=torch.long, device=raw.device)
    steps = [step for step in VLLM_PIPELINE if step.is_active(context.params)]
    for name, apply in [("raw", lambda x, _: x), *((step.name, step.apply) for step in steps)]:
        values = apply(values, context)
        logprobs = values.log_softmax(dim=1)[0, ids].tolist()
        kept = int((values > -torch.inf).sum())
        rows += [(name, *row, kept) for row in zip(token_ids, values[0, ids].tolist(), logprobs)]
    return pd.DataFrame(rows, columns=["step", "token_id", "logit", "logprob", "kept_tokens"])


def unprocessed(raw: Tensor) -> Processed:
    """Rows that no processor touches."""
    return Processed(raw, torch.zeros(raw.shape, dtype=torch.int8, device=raw.device), ())


def _check_rows(statistics: logit_kernels.RowStatistics, row_names: Sequence[str], why: str = NOT_NUMBERS) -> None:
    if statistics.has_nan.any():
        row = int(statistics.has_nan.nonzero()[0])
        raise EmptyRowError(f"{row_names[row]}: {why}")
    if (statistics.finite == 0).any():
        row = int((statistics.finite == 0).nonzero()[0])
        raise EmptyRowError(f"{row_names[row]}: no valid token, every logit is -inf")


def _logprobs(values: Tensor, statistics: logit_kernels.RowStatistics) -> Tensor:
    """values: [rows, K]. The order of the subtractions keeps digits; rounding may leave +1e-8, which is probability 1."""
    return ((values - statistics.maximum[:, None]) - statistics.log_sum[:, None]).clamp_max(0.0)


def _candidates(raw_top: Tensor, processed_top: Tensor, own_ids: Tensor, wanted: Wanted) -> Tensor:
    """[rows, K], every id once (its first place), −1 for the rest."""
    requested = torch.tensor(wanted.token_ids, dtype=torch.long, device=own_ids.device).expand(own_ids.shape[0], -1)
    ids = torch.cat([raw_top, processed_top, requested, own_ids[:, None]], dim=1)
    same = ids[:, :, None] == ids[:, None, :]
    repeated = same.tril(diagonal=-1).any(dim=2)
    return ids.masked_fill(repeated, -1)


def _ranks(logits: Tensor, values: Tensor, ids: Tensor, statistics: logit_kernels.RowStatistics) -> Tensor:
    """Rank of each candidate. Values at or above the n-th best are counted within the top n, the others in the row."""
    top = statistics.top_values
    ranks = 1 + (top[:, None, :] > values[:, :, None]).sum(dim=2)
    outside = values < top[:, -1:] if top.shape[1] else torch.ones_like(ids, dtype=torch.bool)
    rows, places = (outside & (ids >= 0) & ~values.isneginf()).nonzero(as_tuple=True)
    ranks[rows, places] = 1 + logit_kernels.count_greater(logits, rows, values[rows, places])
    return ranks
