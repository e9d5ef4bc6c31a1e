"""What the user filled in, and its reading as arguments of `Inspector.stream`. No Gradio here."""

import json
import re
from dataclasses import dataclass, fields
from typing import Any

from inspector.errors import InputError, ParameterError
from inspector.params import SamplingParams

KINDS = {"raw": "Raw text", "chat": "Chat", "completion": "Prompt + completion", "ids": "Token ids"}
NUMBERS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens")
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}
BOS_CHOICES = {"auto": None, "add": True, "leave out": False}


@dataclass(frozen=True)
class SamplerForm:
    """The sampling parameters as their fields hold them; the defaults are neutral."""

    temperature: float | None = 1.0
    top_k: float | None = 0
    top_p: float | None = 1.0
    min_p: float | None = 0.0
    repetition_penalty: float | None = 1.0
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    min_tokens: float | None = 0
    logit_bias: str = ""
    allowed_token_ids: str = ""
    bad_words: str = ""
    stop: str = ""
    stop_token_ids: str = ""
    ignore_eos: bool = False


@dataclass(frozen=True)
class TextForm:
    """The text and what else is asked. seed is text, so that no digit is lost in a floating-point field."""

    kind: str = "raw"
    prompt: str = ""
    completion: str = ""
    chat: str = "[]"
    ids: str = ""
    add_generation_prompt: bool = True
    add_bos: str = "auto"
    parse_special: bool = True
    prompt_processing: str = "as_sampled"
    top_n: float | None = 10
    token_ids: str = ""
    continuations: float | None = 0
    max_new_tokens: float | None = 32
    seed: str = ""


SAMPLER_FIELDS = tuple(f.name for f in fields(SamplerForm))
TEXT_FIELDS = tuple(f.name for f in fields(TextForm))


def read_params(form: SamplerForm) -> SamplingParams:
    """Raises ParameterError or InputError, which name the field and its range."""
    values: dict[str, Any] = {}
    for name in NUMBERS:
        values[name] = getattr(form, name)
        if values[name] is None:
            raise ParameterError(f"{name} must be a number, and its field is empty")
    allowed = read_ids(form.allowed_token_ids, "allowed_token_ids")
    return SamplingParams(
        **values,
        logit_bias=read_bias(form.logit_bias),
        allowed_token_ids=allowed or None,
        bad_words=read_lines(form.bad_words),
        stop=read_lines(form.stop),
        stop_token_ids=read_ids(form.stop_token_ids, "stop_token_ids"),
        ignore_eos=form.ignore_eos,
    )


def read_arguments(text: TextForm, sampler: SamplerForm, mode: str) -> dict[str, Any]:
    """Keyword arguments of `Inspector.stream`. Raises InputError or ParameterError."""
    arguments: dict[str, Any] = {
        "params": read_params(sampler),
        "mode": mode,
        "top_n": _whole(text.top_n, "top_n"),
        "token_ids": read_ids(text.token_ids, "token_ids"),
        "continuations": _whole(text.continuations, "continuations"),
        "max_new_tokens": _whole(text.max_new_tokens, "max_new_tokens"),
        "seed": text.seed.strip() or None,
        "prompt_processing": text.prompt_processing,
    }
    if text.kind == "chat":
        return arguments | {"chat": read_chat(text.chat), "add_generation_prompt": text.add_generation_prompt}
    if text.kind == "ids":
        ids = read_ids(text.ids, "prompt")
        if not ids:
            raise InputError("the prompt has no token ids; write some, such as 504, 3575, 282")
        return arguments | {"prompt": ids}
    if text.kind == "completion":
        arguments["completion"] = text.completion
    return arguments | {"prompt": text.prompt, "add_bos": BOS_CHOICES[text.add_bos], "parse_special": text.parse_special}


def read_ids(text: str, name: str) -> tuple[int, ...]:
    """Whole numbers with commas or spaces between them; brackets around them do no harm."""
    words = re.split(r"[\s,;]+", text.strip().strip("[]").strip())
    for word in words:
        if word and not re.fullmatch(r"[0-9]+", word):
            raise InputError(f"{name} must be token ids such as 11, 29, got {word!r}")
    return tuple(int(word) for word in words if word)


def read_bias(text: str) -> dict[int, float]:
    """`id: bias` pairs with commas or line ends between them; braces and quotes as in JSON do no harm."""
    bias = {}
    for part in re.split(r"[,;\n]+", text.strip().strip("{}")):
        if not part.strip():
            continue
        token_id, colon, amount = part.replace('"', "").partition(":")
        try:
            if not colon or not re.fullmatch(r"[0-9]+", token_id.strip()):
                raise ValueError
            amount = float(amount)
        except ValueError:
            raise ParameterError(f"logit_bias must be pairs such as 11: -5, 29: 2.5, got {part.strip()!r}") from None
        if int(token_id) in bias:
            raise ParameterError(f"logit_bias names token id {int(token_id)} twice")
        bias[int(token_id)] = amount
    return bias


def read_lines(text: str) -> tuple[str, ...]:
    """One string a line, spaces kept, `\\n`, `\\t`, `\\r` and `\\\\` read as in code."""
    lines = [line for line in text.split("\n") if line]
    return tuple(re.sub(r"\\[ntr\\]", lambda found: ESCAPES[found.group()], line) for line in lines)


def read_chat(text: str) -> list[dict[str, str]]:
    try:
        messages = json.loads(text or "[]")
    except ValueError as error:
        raise InputError(f"chat must be a JSON list of objects with role and content: {error}") from None
    if not isinstance(messages, list):
        raise InputError(f"chat must be a JSON list of objects with role and content, got {type(messages).__name__}")
    return messages


def _whole(value: float | None, name: str) -> int:
    if value is None or value != int(value):
        raise InputError(f"{name} must be a whole number, got {'an empty field' if value is None else value}")
    return int(value)
