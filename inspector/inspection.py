"""Text in, report out: the parts put together."""

import platform
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

import pandas as pd
import torch
import transformers

import logit_kernels
from inspector.errors import Cancelled, InputError
from inspector.events import Running, T, finish
from inspector.forward import Prefill, check_context, prefill
from inspector.models import EMBEDDED, LoadedModel, OnProgress, load_model
from inspector.modes import LogprobsMode
from inspector.params import MAX_SEED, SamplingParams, check_seed
from inspector.processors import ResolvedParams, active_processors, resolve, text_context
from inspector.prompt_cache import Entry, PromptCache, shortened
from inspector.report import Report, ScoredSequence, build_report
from inspector.sampling import Continuation, sample
from inspector.scoring import ScoredRows, Wanted, score_text, steps_table
from inspector.tokens import TokenizedText, check_ids, pieces_text, tokenize, tokenize_chat
from inspector.version import VERSION

PROMPT_PROCESSING = ("as_sampled", "off")
MAX_TOP_N = 100
CACHE_BYTES = 1 << 30
MAX_CONTINUATIONS = 64
MAX_NEW_TOKENS = 1_000_000
Text = str | Sequence[int]


@dataclass(frozen=True)
class Request:
    """A checked inspection of one model: what `Inspector.stream` runs."""

    text: TokenizedText
    resolved: ResolvedParams
    mode: LogprobsMode
    wanted: Wanted
    seeds: tuple[int, ...]
    max_new_tokens: int
    process_prompt: bool


class Inspector:
    """A loaded model that can be asked about texts.

    kernel_path: auto, or one of logit_kernels.PATHS. cache_bytes: bound on what is kept of earlier prompts (hidden states, keys
    and values, scored rows), so that changing a parameter or the end of a prompt runs only what changed; 0 keeps nothing.
    """

    def __init__(self, loaded: LoadedModel, kernel_path: str = "auto", cache_bytes: int = CACHE_BYTES) -> None:
        self._cache = PromptCache(cache_bytes)
        self.loaded = loaded
        chosen = _kernel_path(kernel_path, loaded.device)
        self.kernel_path, self.kernel_warning = chosen.name, chosen.warning

    @classmethod
    def load(
        cls,
        model: str = EMBEDDED,
        *,
        dtype: str = "auto",
        device: str = "auto",
        kernel_path: str = "auto",
        cache_bytes: int = CACHE_BYTES,
        on_progress: OnProgress | None = None,
    ) -> "Inspector":
        """Load `embedded`, a Hub id, a folder or a GGUF file; see `models.load_model`. Raises ModelError."""
        if kernel_path not in logit_kernels.PATHS:  # told before the model is read
            raise InputError(f"kernels must be one of {', '.join(logit_kernels.PATHS)}, got {kernel_path!r}")
        return cls(load_model(model, dtype=dtype, device=device, on_progress=on_progress), kernel_path, cache_bytes)

    def inspect(self, prompt: Text | None = None, **options: Any) -> Report:
        """Score every token of a text in all four modes, and sample continuations beside it.

        prompt: text or token ids. chat: messages instead of a prompt. completion: text or ids that follow the prompt.
        params: SamplingParams. mode: what `score` shows. top_n: alternatives a token, 0 to 100. token_ids: ids whose
        values are wanted everywhere. continuations: how many to sample after the prompt (beside the completion),
        max_new_tokens each; the i-th is drawn from seed + i − 1. seed: drawn and recorded if None.
        prompt_processing: `as_sampled`, or `off` as the engine does. add_bos: None leaves it to the tokenizer.
        parse_special: whether special tokens typed in the text are special. add_generation_prompt: for chat.
        is_cancelled: asked at each step; sampling then ends with what it has, and before that Cancelled is raised.

        Raises InputError, ParameterError, EmptyRowError or Cancelled, each naming what was wrong.
        """
        return finish(self.stream(prompt, **options))

    def stream(
        self,
        prompt: Text | None = None,
        *,
        chat: Sequence[dict[str, str]] | None = None,
        completion: Text | None = None,
        params: SamplingParams | None = None,
        mode: LogprobsMode | str = LogprobsMode.RAW_LOGPROBS,
        top_n: int = 10,
        token_ids: Sequence[int] = (),
        continuations: int = 0,
        max_new_tokens: int = 32,
        seed: int | str | None = None,
        prompt_processing: str = "as_sampled",
        add_bos: bool | None = None,
        parse_special: bool = True,
        add_generation_prompt: bool = True,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Running[Report]:
        """`inspect` as a generator: yields Progress and SampledTokens, returns the report."""
        vocabulary = self.loaded.vocabulary
        if (prompt is None) == (chat is None):
            raise InputError("give either prompt or chat, " + ("got neither" if prompt is None else "got both"))
        if chat is not None:
            text = tokenize_chat(vocabulary, chat, completion, add_generation_prompt=add_generation_prompt)
        else:
            text = tokenize(vocabulary, prompt, completion, add_bos=add_bos, parse_special=parse_special)
        top_n = _whole("top_n", top_n, 0, MAX_TOP_N)
        count = _whole("continuations", continuations, 0, MAX_CONTINUATIONS)
        request = Request(
            text=text,
            resolved=resolve(_params(params), vocabulary, self.loaded.eos_ids),
            mode=LogprobsMode.parse(mode),
            wanted=Wanted(top_n, tuple(dict.fromkeys(check_ids(vocabulary, token_ids, "token_ids"))), self.kernel_path),
            seeds=_seeds(seed, count),
            max_new_tokens=_whole("max_new_tokens", max_new_tokens, 1, MAX_NEW_TOKENS),
            process_prompt=_choice("prompt_processing", prompt_processing, PROMPT_PROCESSING) == "as_sampled",
        )
        return (yield from self._run(request, is_cancelled))

    def _run(self, request: Request, is_cancelled: Callable[[], bool]) -> Running[Report]:
        text, loaded = request.text, self.loaded
        _check_lengths(request, loaded)
        started, clock = datetime.now(timezone.utc), time.perf_counter()
        entry, rows, facts = yield from self._score(text.ids, text.boundary, request, is_cancelled)
        drawn: list[Continuation] = []
        if request.seeds:
            start = shortened(entry.keys_values, text.boundary)
            if start is None:  # a sliding window has moved past the boundary: the prompt is run by itself
                start = (yield from _until(is_cancelled, prefill(loaded.model, text.ids[: text.boundary]))).cache
            drawn = yield from sample(
                loaded, text.ids[: text.boundary], Prefill(entry.hidden[: text.boundary], start), request.resolved, request.wanted,
                seeds=request.seeds, max_new_tokens=request.max_new_tokens, is_cancelled=is_cancelled,
            )  # fmt: skip
        sequences = [ScoredSequence(text.text, text, 0, rows), *(self._sequence(text.boundary, c) for c in drawn)]
        facts["times"]["total_seconds"] = time.perf_counter() - clock
        return build_report(sequences, loaded.vocabulary, self._record(request, drawn) | {"started": started.isoformat(), **facts})

    def rescore(self, report: Report, params: SamplingParams) -> Report:
        """The tokens of a report, its continuations' too, scored with other parameters; nothing is drawn again.

        `run` keeps the parameters that the continuations were drawn with as `drawn_with`. Raises InputError for a report
        read from files or made by another model.
        """
        self.check_made_here(report)
        started, clock, run = datetime.now(timezone.utc), time.perf_counter(), report.run
        text = report.sequences[0].tokenized
        request = Request(
            text=text,
            resolved=resolve(_params(params), self.loaded.vocabulary, self.loaded.eos_ids),
            mode=report.mode,
            wanted=Wanted(run["top_n"], tuple(run["token_ids"]), self.kernel_path),
            seeds=(),
            max_new_tokens=1,
            process_prompt=run["prompt_processing"] == "as_sampled",
        )
        sequences = []
        for number in reversed(range(len(report.sequences))):  # the text last, so that it is the newest in the cache
            ids = self._ids(report, number)
            _, rows, facts = finish(self._score(ids, text.boundary, request, lambda: False))
            sequences.append(replace(report.sequences[number], rows=rows[text.boundary :] if number else rows))
        facts["times"]["total_seconds"] = time.perf_counter() - clock
        record = self._record(request, []) | {name: run[name] for name in ("seed", "max_new_tokens", "continuations")}
        if run["continuations"]:
            record["drawn_with"] = run.get("drawn_with", run["params"])
            record["notes"].append("the continuations were drawn with other parameters (drawn_with) and scored with these")
        return build_report(sequences[::-1], self.loaded.vocabulary, record | {"started": started.isoformat(), **facts})

    def pipeline_steps(self, report: Report, sequence: int, position: int, token_ids: Sequence[int] | None = None) -> pd.DataFrame:
        """What each step of the sampler's pipeline makes of some tokens at one place of a report.

        token_ids: the place's own token if None. One row a step and token: step (`raw`, then the active ones in their
        order), token_id, logit after the step (-inf where cut), logprob (its log-softmax over what is left), kept_tokens.
        Raises InputError for a place without a prediction, a report read from files or made by another model.
        """
        self.check_made_here(report)
        ids = self._ids(report, sequence)
        position = _whole("position (the first token has no prediction)", position, 1, len(ids) - 1)
        chosen = [ids[position]] if token_ids is None else check_ids(self.loaded.vocabulary, token_ids, "token_ids")
        boundary, run = report.sequences[0].tokenized.boundary, report.run
        params = SamplingParams(**run["params"]) if position >= boundary or run["prompt_processing"] == "as_sampled" else SamplingParams()
        resolved = resolve(params, self.loaded.vocabulary, self.loaded.eos_ids)
        entry, *_ = finish(self._states(ids[:position]))
        raw = self.loaded.head(entry.hidden[position - 1 :]).float()
        context = text_context(resolved, torch.tensor(ids, device=raw.device), boundary, position, position + 1)
        return steps_table(raw, context, chosen)

    def _ids(self, report: Report, sequence: int) -> tuple[int, ...]:
        """Every id before and in a sequence of a report."""
        text = report.sequences[0].tokenized
        sequence = _whole("sequence", sequence, 0, len(report.sequences) - 1)
        return (*text.ids[: text.boundary], *report.sequences[sequence].tokenized.ids) if sequence else text.ids

    def check_made_here(self, report: Report) -> None:
        """Raises InputError for a report that the loaded model did not make, or that was read from files."""
        if not isinstance(report, Report):
            raise InputError(f"report must be a Report, got {type(report).__name__}")
        if not report.sequences:
            raise InputError("a report read from files has no model behind it; inspect the text again")
        made_by, dtype = report.run["model"], report.run["dtype"]
        if made_by != asdict(self.loaded.source) or dtype != str(self.loaded.dtype).removeprefix("torch."):
            raise InputError(f"this report was made by {made_by['name']} in {dtype}, which is not the loaded model")

    def _score(
        self, ids: Sequence[int], boundary: int, request: Request, is_cancelled: Callable[[], bool]
    ) -> Running[tuple[Entry, ScoredRows, dict[str, Any]]]:
        """-> the text's states, its scored rows, and how long that took and what was reused."""
        clock = time.perf_counter()
        entry, earlier, common, run_tokens = yield from _until(is_cancelled, self._states(ids))
        times = {"model_seconds": time.perf_counter() - clock}
        key = (request.resolved.params.model_dump_json(), request.process_prompt, request.wanted)
        known = earlier.known_rows(key, boundary, common) if earlier else None
        reused = {"model_tokens": len(ids) - run_tokens, "scored_rows": len(known) if known is not None else 0}
        tensor = torch.tensor(ids, dtype=torch.long, device=self.loaded.device)
        scoring = score_text(
            self.loaded.head, entry.hidden, tensor, boundary, request.resolved, request.wanted,
            process_prompt=request.process_prompt, known=known,
        )  # fmt: skip
        rows = yield from _until(is_cancelled, scoring)
        times["scoring_seconds"] = time.perf_counter() - clock - times["model_seconds"]
        self._cache.add(entry, key, boundary, rows)
        return entry, rows, {"times": times, "reused": reused}

    def _states(self, ids: Sequence[int]) -> Running[tuple[Entry, Entry | None, int, int]]:
        """Hidden states and keys and values of a text, running only what no earlier prompt has.

        -> its entry, the earlier one it shares a beginning with, the length of that, and how many tokens were run.
        """
        earlier, common = self._cache.find(ids)
        if earlier and common == len(earlier.ids) == len(ids):
            return earlier, earlier, common, 0
        hidden = earlier.hidden[:common] if earlier else torch.empty(0)
        keys_values = shortened(earlier.keys_values, common) if earlier else None
        if keys_values is None:
            hidden = hidden[:0]
        if len(hidden) < len(ids):
            rest = yield from prefill(self.loaded.model, ids[len(hidden) :], keys_values)
            run_tokens = len(rest.hidden)
            hidden, keys_values = torch.cat([hidden, rest.hidden]) if len(hidden) else rest.hidden, rest.cache
        else:
            run_tokens = 0
        return Entry(tuple(ids), hidden, keys_values), earlier, common, run_tokens

    def _sequence(self, first: int, continuation: Continuation) -> ScoredSequence:
        pieces = tuple(self.loaded.vocabulary.bytes_of(i) for i in continuation.ids)
        text, starts, ends = pieces_text(pieces)
        tokenized = TokenizedText(text, continuation.ids, pieces, tuple(starts), tuple(ends), 0)
        return ScoredSequence(text, tokenized, first, continuation.rows)

    def _record(self, request: Request, drawn: Sequence[Continuation]) -> dict[str, Any]:
        """run.json: everything needed to repeat the run, as JSON values."""
        text, loaded, params = request.text, self.loaded, request.resolved.params
        notes = [*([self.kernel_warning] if self.kernel_warning else []), *text.notes, *request.resolved.notes, *loaded.notes]
        if not request.process_prompt:
            notes.append("prompt rows are not processed (prompt_processing=off): processed equals raw there, as in the engine")
        return {
            "model": asdict(loaded.source),
            "dtype": str(loaded.dtype).removeprefix("torch."),
            "device": str(loaded.device),
            "vocab_size": loaded.vocab_size,
            "kernel_path": self.kernel_path,
            "mode": request.mode.value,
            "params": params.model_dump(mode="json"),
            "pipeline": list(active_processors(params)),
            "prompt_processing": "as_sampled" if request.process_prompt else "off",
            "top_n": request.wanted.top_n,
            "token_ids": list(request.wanted.token_ids),
            "seed": request.seeds[0] if request.seeds else None,
            "max_new_tokens": request.max_new_tokens if request.seeds else None,
            "prompt_ids": list(text.ids[: text.boundary]),
            "completion_ids": list(text.ids[text.boundary :]),
            "continuations": [
                {"seed": c.seed, "ids": list(c.ids), "finish_reason": c.finish_reason, "stop_reason": c.stop_reason} for c in drawn
            ],
            "notes": notes,
            "versions": {
                "logit_inspector": VERSION,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        }


def _until(is_cancelled: Callable[[], bool], running: Running[T]) -> Running[T]:
    """`running`, stopped at its next step when the caller asks. Raises Cancelled."""
    while True:
        try:
            event = next(running)
        except StopIteration as end:
            return end.value
        if is_cancelled():
            raise Cancelled("the inspection was cancelled before all tokens were scored")
        yield event


def _check_lengths(request: Request, loaded: LoadedModel) -> None:
    text = request.text
    if not len(text):
        raise InputError("the prompt is empty and this model adds no beginning-of-sequence token: there is nothing to score; type a text")
    if request.seeds and not text.boundary:
        raise InputError("continuations need at least one prompt token, and the prompt is empty; type a text or set add_bos")
    check_context(len(text), 0, loaded.context_length, "the text")
    if request.seeds:
        check_context(text.boundary, request.max_new_tokens, loaded.context_length, "the prompt")


def _seeds(seed: int | str | None, count: int) -> tuple[int, ...]:
    first = check_seed(seed)
    if first is None:
        first = secrets.randbelow(2**31)
    if first + count - 1 > MAX_SEED:
        raise InputError(f"seed must be at most {MAX_SEED - count + 1} for {count} continuations (one seed each), got {first}")
    return tuple(range(first, first + count))


def _kernel_path(path: str, device: torch.device) -> logit_kernels.KernelPath:
    try:
        return logit_kernels.choose_path(path, device)
    except ValueError as error:
        raise InputError(str(error)) from None


def _params(params: SamplingParams | None) -> SamplingParams:
    if params is not None and not isinstance(params, SamplingParams):
        raise InputError(f"params must be SamplingParams, got {type(params).__name__}; write SamplingParams(temperature=0.8)")
    return params or SamplingParams()


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not low <= value.__index__() <= high:
        raise InputError(f"{name} must be a whole number in [{low}, {high}], got {value!r}")
    return value.__index__()


def _choice(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    return value
