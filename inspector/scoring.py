"""Rows of logits to scored rows: all four modes, ranks, entropies and alternatives at once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

import kernels
from inspector.errors import EmptyRowError
from inspector.events import Progress, Running
from inspector.forward import Head, chunk_rows, chunks
from inspector.processors import Processed, ResolvedParams, run_pipeline, text_context

NO_RANK = -1


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
    before = kernels.row_statistics(raw, own_ids, wanted.top_n, wanted.path)
    _check_rows(before, row_names)
    after = before if processed.logits is raw else kernels.row_statistics(processed.logits, own_ids, wanted.top_n, wanted.path)
    if after is not before:
        _check_rows(after, row_names)
    ids = _candidates(before.top_ids, after.top_ids, own_ids, wanted)
    real = ids.clamp_min(0)
    raw_values, processed_values = raw.gather(1, real), processed.logits.gather(1, real)
    raw_ranks = _ranks(raw, raw_values, ids, before, wanted)
    processed_ranks = raw_ranks if after is before else _ranks(processed.logits, processed_values, ids, after, wanted)
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
) -> Running[ScoredRows]:
    """Every token of a given text. hidden: [T, H], ids: [T] int64; boundary: where the completion begins.

    process_prompt: False leaves prompt rows as the engine does, processed equal to raw. Holds one chunk of logits at a
    time.
    """
    parts = [ScoredRows.unscored(ids[:1].tolist(), wanted.candidates(head.width))]
    for first, last in _text_chunks(ids.shape[0], boundary, chunk_rows(head.width)):
        yield Progress("scoring", first, ids.shape[0])
        raw = head(hidden[first - 1 : last - 1])
        names = [f"token {t}" for t in range(first, last)]
        if last <= boundary and not process_prompt:
            processed = unprocessed(raw)
        else:
            processed = run_pipeline(raw, text_context(resolved, ids, boundary, first, last), names)
        parts.append(score_rows(raw, processed, ids[first:last], wanted, names))
    return ScoredRows.concatenate(parts)


def unprocessed(raw: Tensor) -> Processed:
    """Rows that no processor touches."""
    return Processed(raw, torch.zeros(raw.shape, dtype=torch.int8, device=raw.device), ())


def _text_chunks(length: int, boundary: int, rows: int) -> list[tuple[int, int]]:
    """Chunks of rows 1…T−1, none across the boundary."""
    middle = min(max(boundary, 1), length)
    return [*chunks(1, middle, rows), *chunks(middle, length, rows)]


def _check_rows(statistics: kernels.RowStatistics, row_names: Sequence[str]) -> None:
    if statistics.has_nan.any():
        row = int(statistics.has_nan.nonzero()[0])
        raise EmptyRowError(f"{row_names[row]}: the logits hold NaN or +inf, so nothing can be scored (try dtype float32)")
    if (statistics.finite == 0).any():
        row = int((statistics.finite == 0).nonzero()[0])
        raise EmptyRowError(f"{row_names[row]}: no valid token, every logit is -inf")


def _logprobs(values: Tensor, statistics: kernels.RowStatistics) -> Tensor:
    """values: [rows, K]. The order of the subtractions keeps digits; rounding may leave +1e-8, which is probability 1."""
    return ((values - statistics.maximum[:, None]) - statistics.log_sum[:, None]).clamp_max(0.0)


def _candidates(raw_top: Tensor, processed_top: Tensor, own_ids: Tensor, wanted: Wanted) -> Tensor:
    """[rows, K], every id once (its first place), −1 for the rest."""
    requested = torch.tensor(wanted.token_ids, dtype=torch.long, device=own_ids.device).expand(own_ids.shape[0], -1)
    ids = torch.cat([raw_top, processed_top, requested, own_ids[:, None]], dim=1)
    same = ids[:, :, None] == ids[:, None, :]
    repeated = same.tril(diagonal=-1).any(dim=2)
    return ids.masked_fill(repeated, -1)


def _ranks(logits: Tensor, values: Tensor, ids: Tensor, statistics: kernels.RowStatistics, wanted: Wanted) -> Tensor:
    """Rank of each candidate. Values at or above the n-th best are counted within the top n, the others in the row."""
    top = statistics.top_values
    ranks = 1 + (top[:, None, :] > values[:, :, None]).sum(dim=2)
    outside = values < top[:, -1:] if top.shape[1] else torch.ones_like(ids, dtype=torch.bool)
    rows, places = (outside & (ids >= 0) & ~values.isneginf()).nonzero(as_tuple=True)
    ranks[rows, places] = 1 + kernels.count_greater(logits, rows, values[rows, places], wanted.path)
    return ranks
