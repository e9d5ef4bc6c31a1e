"""The pipeline in the sparse form that the kernels take: the few logits that change, then temperature and filters.

The steps before the temperature touch few ids (those named by a parameter or seen in the text), so they are run, by the
same functions, on a block of just these columns.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from inspector.processors import VLLM_PIPELINE, RowContext
from logit_kernels import Adjustment, FilterCodes

CODE_OF = {step.name: index + 1 for index, step in enumerate(VLLM_PIPELINE)}
FILTER_CODES = FilterCodes(CODE_OF["min_p"], CODE_OF["top_k"], CODE_OF["top_p"])

# the ids that each step before the temperature may touch
TOUCHED: dict[str, Callable[[RowContext], Tensor | list[int]]] = {
    "allowed_token_ids": lambda c: list(c.params.allowed_token_ids or ()),
    "bad_words": lambda c: [word[-1] for word in c.resolved.bad_words],
    "min_tokens": lambda c: list(c.resolved.stop_ids),
    "logit_bias": lambda c: list(c.params.logit_bias),
    "repetition_penalty": lambda c: c.seen_ids,
    "frequency_penalty": lambda c: c.generated_ids,
    "presence_penalty": lambda c: c.generated_ids,
}


def adjustment_of(raw: Tensor, context: RowContext) -> Adjustment:
    """What the vllm pipeline does to `raw` [rows, V], which is read at the touched ids only."""
    params = context.params
    steps = [step for step in VLLM_PIPELINE if step.name in TOUCHED and step.is_active(params)]
    touched = [torch.as_tensor(TOUCHED[step.name](context), dtype=torch.long, device=raw.device) for step in steps]
    ids = torch.cat(touched).unique() if touched else torch.empty(0, dtype=torch.long, device=raw.device)
    values = raw[:, ids].float()
    codes = torch.zeros(values.shape, dtype=torch.int8, device=raw.device)
    compact = _compact(context, ids)
    for step in steps:
        after = step.apply(values, compact)
        codes[after.isneginf() & ~values.isneginf()] = CODE_OF[step.name]
        values = after
    sampled = not params.is_greedy
    return Adjustment(
        edit_ids=ids,
        edit_values=values,
        edit_codes=codes,
        outside_code=CODE_OF["allowed_token_ids"] if params.allowed_token_ids is not None else 0,
        temperature=params.temperature if sampled else 1.0,
        min_p=params.min_p if sampled else 0.0,
        top_k=params.top_k if sampled else 0,
        top_p=params.top_p if sampled else 1.0,
        codes=FILTER_CODES,
    )


def _compact(context: RowContext, ids: Tensor) -> RowContext:
    """The same context for rows that hold only the columns `ids` (ascending)."""
    place = {token: index for index, token in enumerate(ids.tolist())}
    params = context.params
    params = params.model_copy(
        update={
            "logit_bias": {place[t]: bias for t, bias in params.logit_bias.items()},
            "allowed_token_ids": tuple(place[t] for t in params.allowed_token_ids or ()),
        }
    )
    resolved = replace(
        context.resolved,
        params=params,
        stop_ids=tuple(place[t] for t in context.resolved.stop_ids if t in place),
        bad_words=tuple((*word[:-1], place[word[-1]]) for word in context.resolved.bad_words if word[-1] in place),
    )
    # a step that is not active has ids without a column; it does not run, so their places mean nothing
    seen_ids, generated_ids = (torch.searchsorted(ids, tokens) for tokens in (context.seen_ids, context.generated_ids))
    return replace(context, resolved=resolved, seen_ids=seen_ids, generated_ids=generated_ids)
