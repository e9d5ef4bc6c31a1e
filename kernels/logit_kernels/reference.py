"""Plain torch, obviously right, any float dtype; what the fast paths are compared with.

Half-precision logits are reduced in float32, float64 logits in float64.
"""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

PAIRS_BYTES = 32 << 20  # bound on the rows that `count_greater` gathers at a time


@dataclass(frozen=True)
class RowStatistics:
    """Reductions of `[rows, V]` logits, one value a row; a −inf logit counts as a token that cannot occur.

    maximum, log_sum: logprob of x is (x − maximum) − log_sum, in that order, which keeps its digits when all logits
    share a large offset. entropy: nats. finite: number of logits above −inf.
    own_value, own_rank: the row's own token; rank is 1 + the number of strictly greater logits.
    top_values, top_ids: [rows, n], best first, ties by lower id.
    has_nan: whether the row holds a NaN or +inf, in which case the row's other values mean nothing.
    """

    maximum: Tensor
    log_sum: Tensor
    entropy: Tensor
    finite: Tensor
    own_value: Tensor
    own_rank: Tensor
    top_values: Tensor
    top_ids: Tensor
    has_nan: Tensor


def row_statistics(logits: Tensor, own_ids: Tensor, top_n: int) -> RowStatistics:
    """logits: [rows, V], own_ids: [rows] int64 -> RowStatistics. n is at most V. Takes about three times the logits' memory."""
    x = logits if logits.dtype == torch.float64 else logits.float()
    has_nan = (x.isnan() | x.isposinf()).any(dim=1)
    maximum = x.amax(dim=1)
    centred = x - maximum[:, None]
    weights = centred.exp()
    total = weights.sum(dim=1)
    log_sum = total.log()
    # 0 · −inf is 0 here: a token that cannot occur adds nothing
    weighted = torch.where(weights > 0, weights * centred, 0.0).sum(dim=1)
    own_value = x.gather(1, own_ids[:, None])[:, 0]
    top_values, top_ids = top_by_value(x, min(top_n, x.shape[1]))
    return RowStatistics(
        maximum=maximum,
        log_sum=log_sum,
        entropy=(log_sum - weighted / total).clamp_min(0.0),
        finite=(x > -torch.inf).sum(dim=1),
        own_value=own_value,
        own_rank=1 + (x > own_value[:, None]).sum(dim=1),
        top_values=top_values,
        top_ids=top_ids,
        has_nan=has_nan,
    )


def top_by_value(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n largest of each row with their ids, best first, equal values by lower id (torch.topk leaves ties open)."""
    if n == 0:
        return x.new_empty(x.shape[0], 0), x.new_empty(x.shape[0], 0, dtype=torch.long)
    x = x.masked_fill(x.isnan(), -torch.inf)  # so that a row with a NaN, which is reported, leaves the others' ties alone
    values = x.topk(n, dim=1).values
    last = values[:, -1:]
    # everything above the n-th value is in; of those equal to it, the lowest ids fill what is left
    above = x > last
    level = x == last
    room = n - above.sum(dim=1, keepdim=True)
    chosen = above | (level & (level.cumsum(dim=1) <= room))
    ids = chosen.nonzero()[:, 1].reshape(x.shape[0], n)
    order = x.gather(1, ids).argsort(dim=1, descending=True, stable=True)
    ids = ids.gather(1, order)
    return x.gather(1, ids), ids


def count_greater(logits: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """For each pair (row, value): how many logits of that row are strictly greater. rows, values: [P] -> [P] int64."""
    counts = torch.empty(rows.shape[0], dtype=torch.long, device=logits.device)
    at_once = max(1, PAIRS_BYTES // (logits.shape[1] * logits.element_size()))
    for start in range(0, rows.shape[0], at_once):
        part = slice(start, start + at_once)
        counts[part] = (logits[rows[part]] > values[part][:, None].to(logits.dtype)).sum(dim=1)
    return counts


@dataclass(frozen=True)
class FilterThresholds:
    """What min-p, top-k and top-p leave of `[rows, V]` logits; one value a row.

    A token survives iff x ≥ min_p_value and x ≥ top_k_value and (x > top_p_value, or x = top_p_value and its id ≤
    top_p_last_id); the first condition that fails names the filter that cut it (`cut_reason`). A −inf logit was cut before
    and never counts. A filter that is off has the threshold −inf, and top_p_last_id V − 1.
    min_p_value, top_k_value, top_p_value: in the logits' float type, at least float32. top_p_last_id, kept: int64.
    kept: number of survivors. maximum, log_sum_kept: logprob of a survivor is (x − maximum) − log_sum_kept. entropy_kept: nats.
    kept_mass: raw probability of the survivors, None unless raw logits were given.
    """

    min_p_value: Tensor
    top_k_value: Tensor
    top_p_value: Tensor
    top_p_last_id: Tensor
    kept: Tensor
    maximum: Tensor
    log_sum_kept: Tensor
    entropy_kept: Tensor
    kept_mass: Tensor | None


def filter_thresholds(logits: Tensor, min_p: float, top_k: int, top_p: float, raw: Tensor | None = None) -> FilterThresholds:
    """logits: [rows, V], adjusted and divided by the temperature; raw: [rows, V] or None -> FilterThresholds. Sorts.

    min_p 0, top_k 0 (or ≥ V) and top_p 1 are off. Each filter sees the survivors of the earlier ones, renormalised.
    Masses are float64. Min-p keeps x − maximum ≥ log(min_p), exactly: a token whose probability is min_p of the largest up to
    the rounding of a float32 softmax may fall on the other side there.
    """
    V = logits.shape[1]
    x = logits if logits.dtype == torch.float64 else logits.float()
    maximum = x.amax(dim=1)
    off = torch.full_like(maximum, -torch.inf)
    alive = x > -torch.inf
    min_p_value = off
    if min_p > 0.0:
        bound = maximum.double() + math.log(min_p)
        min_p_value = bound.to(x.dtype)
        above = torch.full_like(min_p_value, torch.inf)
        min_p_value = torch.where(min_p_value.double() < bound, min_p_value.nextafter(above), min_p_value)
        alive &= x >= min_p_value[:, None]
    top_k_value = off
    if 0 < top_k < V:
        top_k_value = torch.where(alive.sum(dim=1) >= top_k, x.topk(top_k, dim=1).values[:, -1], off)
        alive &= x >= top_k_value[:, None]
    top_p_value, top_p_last_id = off, torch.full_like(maximum, V - 1, dtype=torch.long)
    if top_p < 1.0:
        ranked, order = x.masked_fill(~alive, -torch.inf).sort(dim=1, descending=True, stable=True)
        weights = (ranked.double() - maximum.double()[:, None]).exp()
        through = weights.cumsum(dim=1)
        before = torch.cat([torch.zeros_like(through[:, :1]), through[:, :-1]], dim=1)
        survivors = (alive.sum(dim=1, keepdim=True) > torch.arange(V, device=x.device)) & (before < top_p * through[:, -1:])
        last = (survivors.sum(dim=1) - 1).clamp_min(0)[:, None]
        top_p_value = ranked.gather(1, last)[:, 0]
        top_p_last_id = order.gather(1, last)[:, 0]
        alive = torch.zeros_like(alive).scatter(1, order, survivors)
    centred = (x.double() - maximum.double()[:, None]).masked_fill(~alive, -torch.inf)
    weights = centred.exp()
    total = weights.sum(dim=1)
    weighted = torch.where(alive, weights * centred, 0.0).sum(dim=1)
    return FilterThresholds(
        min_p_value=min_p_value,
        top_k_value=top_k_value,
        top_p_value=top_p_value,
        top_p_last_id=top_p_last_id,
        kept=alive.sum(dim=1),
        maximum=maximum,
        log_sum_kept=total.log().to(x.dtype),
        entropy_kept=(total.log() - weighted / total).clamp_min(0.0).to(x.dtype),
        kept_mass=None if raw is None else torch.where(alive, raw.double().softmax(dim=1), 0.0).sum(dim=1).to(x.dtype),
    )


def cut_reason(values: Tensor, ids: Tensor, thresholds: FilterThresholds) -> Tensor:
    """values, ids: [rows, K] logits given to the filters -> int8 [rows, K]: 0 kept or −inf before, 1 min-p, 2 top-k, 3 top-p."""
    last, last_id = thresholds.top_p_value[:, None], thresholds.top_p_last_id[:, None]
    beyond = (values < last) | ((values == last) & (ids > last_id))
    reason = beyond.to(torch.int8) * 3
    reason = reason.masked_fill(values < thresholds.top_k_value[:, None], 2)
    reason = reason.masked_fill(values < thresholds.min_p_value[:, None], 1)
    return reason.masked_fill(values == -torch.inf, 0)


@dataclass(frozen=True)
class FusedScores:
    """What the fused head gives. requested_values: [rows, R], raw logits of the requested ids."""

    raw: RowStatistics
    adjusted: RowStatistics
    requested_values: Tensor

    @staticmethod
    def concatenate(parts: "list[FusedScores]") -> "FusedScores":
        """Rows one below the other; the adjusted statistics stay the raw ones where they are."""
        if len(parts) == 1:
            return parts[0]
        raw = _concatenated([part.raw for part in parts])
        same = parts[0].adjusted is parts[0].raw
        adjusted = raw if same else _concatenated([part.adjusted for part in parts])
        return FusedScores(raw, adjusted, torch.cat([part.requested_values for part in parts]))


def _concatenated(parts: list[RowStatistics]) -> RowStatistics:
    return RowStatistics(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(RowStatistics)))


def fused_head(
    hidden: Tensor,
    weight: Tensor,
    own_ids: Tensor,
    top_n: int,
    requested_ids: Tensor,
    *,
    softcap: float | None = None,
    scale: float = 1.0,
    temperature: float = 1.0,
    bias_ids: Tensor | None = None,
    bias_values: Tensor | None = None,
    rounded: bool = True,
) -> FusedScores:
    """hidden: [rows, H], weight: [V, H] -> FusedScores of all the logits, stored; products and what follows in float64.

    rounded: each of product, scale and soft-cap is rounded to the weight's dtype, as a model in that dtype does.
    """
    dtype = weight.dtype if rounded else torch.float64

    def stored(x: Tensor) -> Tensor:
        return x.to(dtype).double()

    x = stored(hidden.double() @ weight.double().T)
    if scale != 1.0:
        x = stored(x * scale)
    if softcap:
        x = stored(stored(stored(x / softcap).tanh()) * softcap)
    raw = row_statistics(x, own_ids, top_n)
    adjusted = raw
    if (bias_ids is not None and bias_values is not None) or temperature != 1.0:
        biased = x if bias_ids is None or bias_values is None else x.index_add(1, bias_ids, bias_values.double().expand(x.shape[0], -1))
        adjusted = row_statistics(biased / temperature, own_ids, top_n)
    return FusedScores(raw, adjusted, x[:, requested_ids])
