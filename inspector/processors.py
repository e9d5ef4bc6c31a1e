"""The sampler's pipeline: one pure function per processor, and the ordered list of them.

A processor takes rows of logits `[rows, V]` and returns rows of the same shape; it never writes to what it was given.
A token is cut by the first processor that makes it −inf. Definitions and order: the vLLM V1 sampler
(`vllm/v1/sample/sampler.py`), as laid down in the project's semantics.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inspector.errors import EmptyRowError, InputError
from inspector.params import SamplingParams
from inspector.tokens import Vocabulary, check_ids, encode_after


@dataclass(frozen=True)
class ResolvedParams:
    """Sampling parameters in terms of one model's ids.

    stop_ids: end-of-sequence and stop ids, which min_tokens holds back. end_ids: those of them that end a continuation.
    bad_words: token sequences. notes: what was limited.
    """

    params: SamplingParams
    stop_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    bad_words: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RowContext:
    """What each row of a chunk has before it.

    seen_ids: [S] and seen: [rows, S] bool, whether the row's prompt or generated tokens hold the id.
    generated_ids: [G] and generated_counts: [rows, G], how often the row's generated tokens hold the id.
    generated: the generated tokens of each row.
    """

    resolved: ResolvedParams
    seen_ids: Tensor
    seen: Tensor
    generated_ids: Tensor
    generated_counts: Tensor
    generated: tuple[Sequence[int], ...]

    @property
    def params(self) -> SamplingParams:
        return self.resolved.params


@dataclass(frozen=True)
class Processor:
    """One step. is_active: whether the parameters make it do anything."""

    name: str
    apply: Callable[[Tensor, RowContext], Tensor]
    is_active: Callable[[SamplingParams], bool]


@dataclass(frozen=True)
class Processed:
    """logits: [rows, V], cut tokens −inf. cut_by: [rows, V] int8, 1 + index into `names` of the step that cut, else 0."""

    logits: Tensor
    cut_by: Tensor
    names: tuple[str, ...]


def allowed_token_ids(logits: Tensor, context: RowContext) -> Tensor:
    keep = torch.zeros(logits.shape[1], dtype=torch.bool, device=logits.device)
    keep[list(context.params.allowed_token_ids or ())] = True
    return logits.masked_fill(~keep, -torch.inf)


def bad_words(logits: Tensor, context: RowContext) -> Tensor:
    rows, ids = [], []
    for row, generated in enumerate(context.generated):
        for word in context.resolved.bad_words:
            rest = list(word[:-1])
            if len(generated) >= len(rest) and list(generated[len(generated) - len(rest) :]) == rest:
                rows.append(row)
                ids.append(word[-1])
    if not rows:
        return logits
    cut = logits.clone()
    cut[rows, ids] = -torch.inf
    return cut


def min_tokens(logits: Tensor, context: RowContext) -> Tensor:
    early = [row for row, generated in enumerate(context.generated) if len(generated) < context.params.min_tokens]
    if not early or not context.resolved.stop_ids:
        return logits
    cut = logits.clone()
    cut[torch.tensor(early)[:, None], torch.tensor(context.resolved.stop_ids)[None, :]] = -torch.inf
    return cut


def logit_bias(logits: Tensor, context: RowContext) -> Tensor:
    bias = context.params.logit_bias
    ids = torch.tensor(list(bias), device=logits.device)
    amounts = torch.tensor(list(bias.values()), dtype=logits.dtype, device=logits.device)
    return logits.index_add(1, ids, amounts.expand(logits.shape[0], -1))


def repetition_penalty(logits: Tensor, context: RowContext) -> Tensor:
    """Source: CTRL (Keskar et al. 2019), eq. in section 4.1; the sign rule keeps it lowering negative logits."""
    r = context.params.repetition_penalty
    values = logits[:, context.seen_ids]
    lowered = torch.where(values > 0, values / r, values * r)
    return logits.index_copy(1, context.seen_ids, torch.where(context.seen, lowered, values))


def frequency_penalty(logits: Tensor, context: RowContext) -> Tensor:
    amounts = context.params.frequency_penalty * context.generated_counts.to(logits.dtype)
    return logits.index_add(1, context.generated_ids, amounts, alpha=-1)


def presence_penalty(logits: Tensor, context: RowContext) -> Tensor:
    amounts = context.params.presence_penalty * (context.generated_counts > 0).to(logits.dtype)
    return logits.index_add(1, context.generated_ids, amounts, alpha=-1)


def temperature(logits: Tensor, context: RowContext) -> Tensor:
    return logits / context.params.temperature


def min_p(logits: Tensor, context: RowContext) -> Tensor:
    """probability < min_p · the largest one, as a bound on the logit: x < max + ln min_p, in float64.

    Source: min-p sampling, Nguyen et al. 2024.
    """
    floor = logits.amax(dim=1, keepdim=True).double() + math.log(context.params.min_p)
    return logits.masked_fill(logits < floor, -torch.inf)


def top_k(logits: Tensor, context: RowContext) -> Tensor:
    k = min(context.params.top_k, logits.shape[1])
    return logits.masked_fill(logits < logits.topk(k, dim=1).values[:, -1:], -torch.inf)


def top_p(logits: Tensor, context: RowContext) -> Tensor:
    """Keeps a token while the mass before it is below p, ties by lower id; so the best one always stays.

    Source: nucleus sampling, Holtzman et al. 2020.
    """
    ranked, order = logits.sort(dim=1, descending=True, stable=True)
    # summed in float64: a float32 total over a whole vocabulary is off by more than the border needs
    weights = (ranked - ranked[:, :1]).exp().double()
    mass = weights.cumsum(dim=1)
    cut = torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, mass - weights >= context.params.top_p * mass[:, -1:])
    return logits.masked_fill(cut, -torch.inf)


def _sampled(active: Callable[[SamplingParams], bool]) -> Callable[[SamplingParams], bool]:
    """Greedy decoding skips temperature and truncation."""
    return lambda p: not p.is_greedy and active(p)


VLLM_PIPELINE: tuple[Processor, ...] = (
    Processor("allowed_token_ids", allowed_token_ids, lambda p: p.allowed_token_ids is not None),
    Processor("bad_words", bad_words, lambda p: bool(p.bad_words)),
    Processor("min_tokens", min_tokens, lambda p: p.min_tokens > 0),
    Processor("logit_bias", logit_bias, lambda p: bool(p.logit_bias)),
    Processor("repetition_penalty", repetition_penalty, lambda p: p.repetition_penalty != 1.0),
    Processor("frequency_penalty", frequency_penalty, lambda p: p.frequency_penalty != 0.0),
    Processor("presence_penalty", presence_penalty, lambda p: p.presence_penalty != 0.0),
    Processor("temperature", temperature, _sampled(lambda p: p.temperature != 1.0)),
    Processor("min_p", min_p, _sampled(lambda p: p.min_p > 0.0)),
    Processor("top_k", top_k, _sampled(lambda p: p.top_k > 0)),
    Processor("top_p", top_p, _sampled(lambda p: p.top_p < 1.0)),
)
PROCESSOR_NAMES = tuple(step.name for step in VLLM_PIPELINE)


def active_processors(params: SamplingParams, pipeline: Sequence[Processor] = VLLM_PIPELINE) -> tuple[str, ...]:
    """Names of the steps that do something, in their order."""
    return tuple(step.name for step in pipeline if step.is_active(params))


def run_pipeline(
    raw: Tensor,
    context: RowContext,
    row_names: Sequence[str],
    pipeline: Sequence[Processor] = VLLM_PIPELINE,
) -> Processed:
    """Every active step in order. raw: [rows, V], float, not written to.

    row_names: what an error calls each row. Raises EmptyRowError if a step leaves nothing in a row.
    """
    logits = raw
    cut_by = torch.zeros(raw.shape, dtype=torch.int8, device=raw.device)
    for index, step in enumerate(pipeline):
        if not step.is_active(context.params):
            continue
        after = step.apply(logits, context)
        cut = after.isneginf() & ~logits.isneginf()
        cut_by[cut] = index + 1
        empty = after.isneginf().all(dim=1)
        if empty.any():
            row = int(empty.nonzero()[0])
            earlier = sorted({int(c) for c in cut_by[row].unique()} - {0})
            names = ", ".join(pipeline[c - 1].name for c in earlier)
            raise EmptyRowError(f"{row_names[row]}: no token is left; {step.name} cut the last ones (cut so far by: {names})")
        logits = after
    return Processed(logits, cut_by, tuple(step.name for step in pipeline))


def resolve(params: SamplingParams, vocabulary: Vocabulary, eos_ids: Sequence[int]) -> ResolvedParams:
    """Bad words as ids, ids checked against the head's width. Raises InputError naming the field and the id."""
    check_ids(vocabulary, list(params.logit_bias), "logit_bias")
    check_ids(vocabulary, list(params.allowed_token_ids or ()), "allowed_token_ids")
    check_ids(vocabulary, list(params.stop_token_ids), "stop_token_ids")
    words: list[tuple[int, ...]] = []
    for word in params.bad_words:
        for text in (word.lstrip(" "), " " + word.lstrip(" ")):
            ids = tuple(encode_after(vocabulary, text, "bad_words"))
            if not ids:
                why = "is only spaces" if not word.strip(" ") else "has no tokens in this model's vocabulary"
                raise InputError(f"bad_words: {word!r} {why}")
            if ids not in words:
                words.append(ids)
    notes = []
    if params.top_k >= vocabulary.head_width and not params.is_greedy:
        notes.append(f"top_k {params.top_k} is not below the vocabulary's {vocabulary.head_width} tokens, so it cuts nothing")
    stop = tuple(sorted({*eos_ids, *params.stop_token_ids}))
    end = tuple(sorted({*(() if params.ignore_eos else eos_ids), *params.stop_token_ids}))
    return ResolvedParams(params, stop, end, tuple(words), tuple(notes))


def text_context(resolved: ResolvedParams, ids: Tensor, boundary: int, first: int, last: int) -> RowContext:
    """Context of rows [first, last) of a given text. ids: [T].

    A prompt row is processed as if the ids before it were the whole prompt and its own token were sampled next; a row
    after the boundary has seen the prompt and counts the completion before it as generated.
    """
    before = ids[:last]
    rows = torch.arange(first, last, device=ids.device)
    seen_ids, seen_at = _first_places(before)
    made_ids, inverse = before[boundary:].unique(return_inverse=True)
    places = torch.arange(boundary, boundary + inverse.shape[0], device=ids.device)
    is_earlier = places[None, :] < rows[:, None]  # [rows, generated]
    counts = torch.zeros(rows.shape[0], made_ids.shape[0], dtype=torch.long, device=ids.device)
    counts.index_add_(1, inverse, is_earlier.long())
    made = ids.tolist()
    generated = tuple(made[boundary:t] if t > boundary else [] for t in range(first, last))
    return RowContext(resolved, seen_ids, seen_at[None, :] < rows[:, None], made_ids, counts, generated)


def batch_context(resolved: ResolvedParams, prompt: Tensor, generated: Sequence[Sequence[int]]) -> RowContext:
    """Context of the next token of several continuations of one prompt. prompt: [T]; generated: one list a row."""
    device = prompt.device
    flat = torch.tensor([i for row in generated for i in row], dtype=torch.long, device=device)
    owner = torch.tensor([r for r, row in enumerate(generated) for _ in row], dtype=torch.long, device=device)
    made_ids, inverse = flat.unique(return_inverse=True)
    counts = torch.zeros(len(generated), made_ids.shape[0], dtype=torch.long, device=device)
    counts.index_put_((owner, inverse), torch.ones_like(flat), accumulate=True)
    seen_ids = torch.cat([prompt, flat]).unique()
    seen = torch.isin(seen_ids, prompt).expand(len(generated), -1).clone()
    seen[owner, torch.searchsorted(seen_ids, flat)] = True
    return RowContext(resolved, seen_ids, seen, made_ids, counts, tuple(generated))


def _first_places(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct ids and the place where each first stands."""
    unique, inverse = ids.unique(return_inverse=True)
    places = torch.full_like(unique, ids.shape[0])
    places.scatter_reduce_(0, inverse, torch.arange(ids.shape[0], device=ids.device), reduce="amin")
    return unique, places
