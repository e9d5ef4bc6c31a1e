"""Whole rows scored with the Triton kernels: the statistics in one pass, the filters by their thresholds, and what is
looked up for the candidates, which are few."""

import torch
from torch import Tensor

from logit_kernels.interface import Adjustment, LinearHead, RowScores
from logit_kernels.reference import RowStatistics, count_greater
from logit_kernels.triton_filters import filter_thresholds
from logit_kernels.triton_fused_head import fused_head, logits_at
from logit_kernels.triton_row_statistics import row_statistics


def score_rows(logits: Tensor, own_ids: Tensor, requested_ids: Tensor, top_n: int, adjustment: Adjustment) -> RowScores:
    """logits: [rows, V] float32, float16 or bfloat16; own_ids: [rows], requested_ids: [R] int64 -> RowScores.

    Takes, beside the logits, one float32 copy of them where they are adjusted.
    """
    a = adjustment
    adjusted = logits if a.is_neutral else adjusted_rows(logits, a)
    if a.outside_code:  # nearly every column is edited: the adjusted rows are what there is to look at
        before, _ = row_statistics(logits, own_ids, top_n)
        after, _ = row_statistics(adjusted, own_ids, top_n)
    else:
        has_edits = a.edit_ids.shape[0] > 0
        edits = {"edit_ids": a.edit_ids, "edit_values": a.edit_values} if has_edits else {}
        before, after = row_statistics(logits, own_ids, top_n, temperature=a.temperature, **edits)
    left = filter_thresholds(adjusted, a.min_p, a.top_k, a.top_p, raw=logits, raw_maximum=before.maximum, raw_log_sum=before.log_sum)
    ids = distinct(torch.cat([before.top_ids, after.top_ids, requested_ids.expand(len(own_ids), -1), own_ids[:, None]], dim=1))
    real = ids.clamp_min(0)
    raw, processed = logits.gather(1, real).float(), adjusted.gather(1, real).float()
    codes = cut_codes(real, processed, a, left)
    is_cut = (codes != 0) | processed.isneginf()
    missing = ids < 0
    raw_rank = ranks(logits, raw, missing, before)
    processed_rank = raw_rank if a.is_neutral else ranks(adjusted, processed, missing | is_cut, after)
    candidates = {
        "raw_logit": raw,
        "raw_logprob": logprobs(raw, before.maximum, before.log_sum),
        "raw_rank": raw_rank,
        "processed_logit": processed,
        "processed_logprob": logprobs(processed, left.maximum, left.log_sum_kept),
        "processed_rank": processed_rank,
        "cut_by": codes,
    }
    return row_scores(
        ids, own_ids, candidates, is_cut,
        raw_entropy=before.entropy,
        processed_entropy=left.entropy_kept,
        kept_mass=left.kept_mass,
        kept_tokens=left.kept,
        bad=(before.has_nan | after.has_nan).long(),
    )  # fmt: skip


def score_hidden(
    hidden: Tensor,
    head: LinearHead,
    own_ids: Tensor,
    top_n: int,
    *,
    temperature: float = 1.0,
    bias_ids: Tensor | None = None,
    bias_values: Tensor | None = None,
) -> RowScores:
    """The same from hidden states [rows, H], the logits never stored, where nothing but a bias and the temperature is applied.

    bias_ids: [E] int64, distinct, bias_values: [E] float32, finite. A candidate outside both top n that is not the row's
    own costs one more row of the fused kernel, for its rank; there is one where a bias moves tokens out of the top n.
    """
    options = {"softcap": head.softcap, "scale": head.scale}
    adjusting = {"temperature": temperature, "bias_ids": bias_ids, "bias_values": bias_values}
    none = own_ids[:0]
    found = fused_head(hidden, head.weight, own_ids, top_n, none, **options, **adjusting)
    before, after = found.raw, found.adjusted
    ids = distinct(torch.cat([before.top_ids, after.top_ids, own_ids[:, None]], dim=1))
    missing = ids < 0
    raw = logits_at(hidden, head.weight, ids, **options)
    processed = raw
    if bias_ids is not None and bias_values is not None:
        bias = torch.zeros(head.weight.shape[0], device=raw.device).index_copy_(0, bias_ids, bias_values)
        processed = raw + bias[ids.clamp_min(0)]
    processed = processed / torch.tensor(temperature, dtype=torch.float32, device=raw.device)
    raw_rank, raw_beyond = ranks_in_top(raw, before)
    processed_rank, processed_beyond = ranks_in_top(processed, after)
    is_own = ids == own_ids[:, None]
    raw_rank = torch.where(is_own & raw_beyond, before.own_rank[:, None], raw_rank)
    processed_rank = torch.where(is_own & processed_beyond, after.own_rank[:, None], processed_rank)
    rows, places = ((raw_beyond | processed_beyond) & ~is_own & ~missing).nonzero(as_tuple=True)
    if len(rows):
        again = fused_head(hidden[rows], head.weight, ids[rows, places], 0, none, **options, **adjusting)
        raw_rank[rows, places] = torch.where(raw_beyond[rows, places], again.raw.own_rank, raw_rank[rows, places])
        processed_rank[rows, places] = torch.where(processed_beyond[rows, places], again.adjusted.own_rank, processed_rank[rows, places])
    candidates = {
        "raw_logit": raw,
        "raw_logprob": logprobs(raw, before.maximum, before.log_sum),
        "raw_rank": raw_rank,
        "processed_logit": processed,
        "processed_logprob": logprobs(processed, after.maximum, after.log_sum),
        "processed_rank": processed_rank,
        "cut_by": torch.zeros_like(ids),
    }
    return row_scores(
        ids, own_ids, candidates, processed.isneginf(),
        raw_entropy=before.entropy,
        processed_entropy=after.entropy,
        kept_mass=torch.ones_like(before.entropy),
        kept_tokens=after.finite,
        bad=(before.has_nan | after.has_nan).long(),
    )  # fmt: skip


def row_scores(ids: Tensor, own_ids: Tensor, candidates: dict[str, Tensor], is_cut: Tensor, **rows: Tensor) -> RowScores:
    """ids: [rows, K], −1 for none; candidates: columns [rows, K] named as RowScores does, processed ones as if nothing were
    cut; is_cut: [rows, K]; rows: the columns that are not of a token."""
    missing = ids < 0
    columns = {}
    for name, column in candidates.items():
        cut, none = (-1, -1) if name.endswith("rank") else (-torch.inf, torch.nan)
        if name == "cut_by":
            columns[name] = column.masked_fill(missing, 0)
            continue
        if name.startswith("processed"):
            column = column.masked_fill(is_cut, cut)
        columns[name] = column.masked_fill(missing, none)
    own_place = (ids == own_ids[:, None]).long().argmax(dim=1, keepdim=True)
    own = {name: column.gather(1, own_place)[:, 0] for name, column in columns.items()}
    return RowScores(candidate_ids=ids, **own, **{"candidate_" + name: column for name, column in columns.items()}, **rows)


def adjusted_rows(logits: Tensor, a: Adjustment) -> Tensor:
    """[rows, V] float32: the rows with their edits, divided by the temperature, before any filter."""
    rows = torch.full(logits.shape, -torch.inf, device=logits.device) if a.outside_code else logits.float().clone()
    if a.edit_ids.shape[0]:
        rows[:, a.edit_ids] = a.edit_values
    return rows.div_(a.temperature)


def distinct(ids: Tensor) -> Tensor:
    """[rows, K]: every id at its first place, −1 where it stands again."""
    return ids.masked_fill((ids[:, :, None] == ids[:, None, :]).tril(diagonal=-1).any(dim=2), -1)


def cut_codes(ids: Tensor, values: Tensor, a: Adjustment, left) -> Tensor:
    """The first step that cut each candidate, 0 for a survivor. ids, values: [rows, K], adjusted. left: the filters' thresholds."""
    codes = torch.zeros_like(ids)
    if a.codes is not None:
        by_top_p = (values < left.top_p_value[:, None]) | ((values == left.top_p_value[:, None]) & (ids > left.top_p_last_id[:, None]))
        codes[by_top_p] = a.codes.top_p
        codes[values < left.top_k_value[:, None]] = a.codes.top_k
        codes[values < left.min_p_value[:, None]] = a.codes.min_p
    codes[values.isneginf()] = a.outside_code  # 0: the model's own −inf; an edit that cuts comes next
    if a.edit_ids.shape[0]:
        place = torch.searchsorted(a.edit_ids, ids).clamp_max(a.edit_ids.shape[0] - 1)
        edited = a.edit_ids[place] == ids
        codes = torch.where(edited & values.isneginf(), a.edit_codes.gather(1, place).long(), codes)
    return codes


def ranks(logits: Tensor, values: Tensor, skip: Tensor, statistics: RowStatistics) -> Tensor:
    """Rank of each candidate [rows, K]: within the best n where it reaches the last of them, else counted in its row."""
    found, beyond = ranks_in_top(values, statistics)
    rows, places = (beyond & ~skip & ~values.isneginf()).nonzero(as_tuple=True)
    found[rows, places] = 1 + count_greater(logits, rows, values[rows, places])
    return found


def ranks_in_top(values: Tensor, statistics: RowStatistics) -> tuple[Tensor, Tensor]:
    """Rank of each candidate [rows, K] within the best n, and which lie beyond these, so that it is not their rank in the row."""
    top = statistics.top_values
    found = 1 + (top[:, None, :] > values[:, :, None]).sum(dim=2)
    return found, values < top[:, -1:] if top.shape[1] else torch.ones_like(values, dtype=torch.bool)


def logprobs(values: Tensor, maximum: Tensor, log_sum: Tensor) -> Tensor:
    """values: [rows, K]; the order of the subtractions keeps digits."""
    return ((values - maximum[:, None]) - log_sum[:, None]).clamp_max(0.0)
