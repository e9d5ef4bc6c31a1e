"""Plain torch, obviously right, any float dtype; what the fast paths are compared with.

Half-precision logits are reduced in float32, float64 logits in float64.
"""

from dataclasses import dataclass

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
    values = x.topk(n, dim=1).values
    last = values[:, -1:]
    # everything above the n-th value is in; of those equal to it, the lowest ids fill what is left
    above = x > last
    level = x == last
    room = n - above.sum(dim=1, keepdim=True)
    chosen = above | (level & (level.cumsum(dim=1) <= room))
    ids = (
        chosen.nonzero()[:, 1].reshape(x.shape[0], n)
        if bool((chosen.sum(dim=1) == n).all())
        else x.topk(n, dim=1).indices.sort(dim=1).values
    )
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
