"""Whole rows scored with the Triton kernels: the statistics in one pass, the filters by their thresholds, and what is
looked up for the candidates, which are few."""

import torch
from torch import Tensor

from kernels.interface import Adjustment, RowScores
from kernels.reference import RowStatistics, count_greater
from kernels.triton_filters import filter_thresholds
from kernels.triton_row_statistics import row_statistics


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
        "raw_logit": raw.masked_fill(missing, torch.nan),
        "raw_logprob": logprobs(raw, before.maximum, before.log_sum).masked_fill(missing, torch.nan),
        "processed_logit": processed.masked_fill(is_cut, -torch.inf).masked_fill(missing, torch.nan),
        "processed_logprob": logprobs(processed, left.maximum, left.log_sum_kept)
        .masked_fill(is_cut, -torch.inf)
        .masked_fill(missing, torch.nan),
        "raw_rank": raw_rank.masked_fill(missing, -1),
        "processed_rank": processed_rank.masked_fill(missing | is_cut, -1),
        "cut_by": codes.masked_fill(missing, 0),
    }
    own_place = (ids == own_ids[:, None]).long().argmax(dim=1, keepdim=True)
    return RowScores(
        **{name: column.gather(1, own_place)[:, 0] for name, column in candidates.items()},
        raw_entropy=before.entropy,
        processed_entropy=left.entropy_kept,
        kept_mass=left.kept_mass,
        kept_tokens=left.kept,
        bad=(before.has_nan | after.has_nan).long(),
        candidate_ids=ids,
        **{"candidate_" + name: column for name, column in candidates.items()},
    )


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
    top = statistics.top_values
    found = 1 + (top[:, None, :] > values[:, :, None]).sum(dim=2)
    outside = values < top[:, -1:] if top.shape[1] else torch.ones_like(skip)
    rows, places = (outside & ~skip & ~values.isneginf()).nonzero(as_tuple=True)
    found[rows, places] = 1 + count_greater(logits, rows, values[rows, places])
    return found


def logprobs(values: Tensor, maximum: Tensor, log_sum: Tensor) -> Tensor:
    """values: [rows, K]; the order of the subtractions keeps digits."""
    return ((values - maximum[:, None]) - log_sum[:, None]).clamp_max(0.0)
