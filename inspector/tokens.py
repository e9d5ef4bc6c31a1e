"""Text to ids, ids to pieces: chat templates, BOS, offsets, bytes, and what a person sees.

A piece is keyed by its id; its bytes come from the vocabulary, never from a decoder that cleans up or merges.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from inspector.errors import InputError

VISIBLE = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍"}
_BYTE_OF_CHAR = {char: byte for byte, char in bytes_to_unicode().items()}


@dataclass(frozen=True)
class TokenizedText:
    """A text as the model sees it.

    ids, pieces, starts, ends: length T. `starts`/`ends` are character offsets into `text`; a token that is part of a
    character has the span of the whole character, one that is not in the text (a BOS) has width 0.
    boundary: the number of prompt tokens; what follows is the completion.
    notes: what a reader of the scores should know (a BOS added, a boundary that splits a token).
    """

    text: str
    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    boundary: int
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.ids)


class Vocabulary:
    """Ids to bytes for one tokenizer, byte-level BPE or SentencePiece, and a head that may be wider than it."""

    def __init__(self, tokenizer: Any, head_width: int) -> None:
        self.tokenizer = tokenizer
        self.head_width = head_width
        self._added = {i: token.content for i, token in tokenizer.added_tokens_decoder.items()}
        self.special_ids = frozenset(i for i, token in tokenizer.added_tokens_decoder.items() if token.special)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        parts = json.loads(backend.to_str()) if backend is not None else {}
        self._byte_level = "ByteLevel" in json.dumps([parts.get("decoder"), parts.get("pre_tokenizer")])
        self._bytes_of = lru_cache(maxsize=None)(self._find_bytes)
        self._text_of = lru_cache(maxsize=None)(self._find_text)

    def bytes_of(self, token_id: int) -> bytes:
        """The UTF-8 bytes that the token stands for; empty for an id without a text."""
        return self._bytes_of(int(token_id))

    def _find_bytes(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        if not self.has_text(token_id):
            return b""
        token = self.tokenizer.convert_ids_to_tokens(token_id)
        if self._byte_level:
            return b"".join(bytes([_BYTE_OF_CHAR[c]]) if c in _BYTE_OF_CHAR else c.encode() for c in token)
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):  # SentencePiece byte fallback
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").encode()

    def has_text(self, token_id: int) -> bool:
        """False for the ids of a padded vocabulary that the tokenizer does not know."""
        return token_id in self._added or (
            0 <= token_id < len(self.tokenizer) and self.tokenizer.convert_ids_to_tokens(token_id) is not None
        )

    def text_of(self, token_id: int) -> str:
        """The token by itself: its text, bytes that are no whole character as `\\xf0`, `<id 49200>` without a text."""
        return self._text_of(int(token_id))

    def _find_text(self, token_id: int) -> str:
        if not self.has_text(token_id):
            return f"<id {token_id}>"
        return self.bytes_of(token_id).decode("utf-8", "backslashreplace")


def visible(text: str) -> str:
    """Text with space, tab, newline and control characters made visible, for display only."""
    return "".join(VISIBLE.get(c) or (f"\\x{ord(c):02x}" if ord(c) < 32 or 127 <= ord(c) < 160 else c) for c in text)


def tokenize(
    vocabulary: Vocabulary,
    prompt: str | Sequence[int],
    completion: str | Sequence[int] | None = None,
    *,
    add_bos: bool | None = None,
    parse_special: bool = True,
) -> TokenizedText:
    """Prompt and completion, each tokenised by itself so that the boundary is exact.

    add_bos: None does what the tokenizer does by itself. parse_special: whether `<|im_end|>` typed in the text is the
    special token (as engines do) or plain characters. Ids are taken as they are, with no BOS.
    """
    notes: list[str] = []
    if isinstance(prompt, str):
        prompt_ids = _encode(vocabulary, prompt, "prompt", parse_special)
        bos = _beginning(vocabulary, add_bos)
        if bos and prompt_ids[: len(bos)] == bos:
            notes.append(f"the prompt already begins with {vocabulary.text_of(bos[0])}; no second one was added")
        elif bos:
            notes.append(f"{vocabulary.text_of(bos[0])} was added before the prompt")
            return _join(vocabulary, prompt, bos, prompt_ids, completion, parse_special, notes)
        return _join(vocabulary, prompt, [], prompt_ids, completion, parse_special, notes)
    return _join(vocabulary, None, [], check_ids(vocabulary, prompt, "prompt"), completion, parse_special, notes)


def tokenize_chat(
    vocabulary: Vocabulary,
    messages: Sequence[dict[str, str]],
    completion: str | Sequence[int] | None = None,
    *,
    add_generation_prompt: bool = True,
) -> TokenizedText:
    """A conversation through the model's own chat template. The template writes BOS itself, so none is added."""
    tokenizer = vocabulary.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("this model has no chat template; give the conversation as a raw prompt instead")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
            raise InputError(f"chat message {i} must be an object with 'role' and 'content', got {message!r}")
        if not isinstance(message["role"], str) or not isinstance(message["content"], str):
            raise InputError(f"chat message {i}: role and content must be strings, got {message!r}")
    if not messages:
        raise InputError("chat must hold at least one message, got none")
    from jinja2.exceptions import TemplateError

    try:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=add_generation_prompt)
    except TemplateError as error:
        raise InputError(f"the model's chat template refuses this conversation: {error}") from error
    return _join(vocabulary, text, [], _encode(vocabulary, text, "chat", True), completion, True, [])


def pieces_text(pieces: Sequence[bytes]) -> tuple[str, list[int], list[int]]:
    """The text of a run of pieces and each piece's character span in it. Bytes that form no character are `\\xNN`."""
    data = b"".join(pieces)
    text: list[str] = []
    first: list[int] = []  # per byte: where its character starts
    after: list[int] = []  # per byte: where its character ends
    length = 0
    for segment in _decoded(data):
        unit, size = segment
        text.append(unit)
        first += [length] * size
        length += len(unit)
        after += [length] * size
    starts, ends, at = [], [], 0
    for piece in pieces:
        end_byte = at + len(piece)
        here = first[at] if at < len(data) else length
        starts.append(here)
        ends.append(after[end_byte - 1] if piece else here)
        at = end_byte
    return "".join(text), starts, ends


def check_ids(vocabulary: Vocabulary, ids: Sequence[int], name: str) -> list[int]:
    """Token ids as ints below the width of the model's head. Raises InputError naming the first bad one."""
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__"):
        raise InputError(f"{name} must be a list of token ids, got {ids!r}")
    checked = []
    for i, token_id in enumerate(ids):
        if isinstance(token_id, bool) or not hasattr(token_id, "__index__"):
            raise InputError(f"{name} must be whole numbers, got {token_id!r} at place {i + 1}")
        value = token_id.__index__()
        if not 0 <= value < vocabulary.head_width:
            raise InputError(f"{name} must be token ids in [0, {vocabulary.head_width - 1}], got {value} at place {i + 1}")
        checked.append(value)
    return checked


def encode_plain(vocabulary: Vocabulary, text: str) -> list[int]:
    """Ids of a text without any special token added."""
    return list(vocabulary.tokenizer(text, add_special_tokens=False)["input_ids"])


def encode_after(vocabulary: Vocabulary, text: str, name: str, parse_special: bool = True) -> list[int]:
    """Ids of a text that goes on from another one: without the space that SentencePiece puts before a text of its own."""
    ids = _encode(vocabulary, text, name, parse_special)
    if _spelling(vocabulary, ids) != b" " + text.encode():
        return ids
    before = _encode(vocabulary, "\n", name, parse_special)  # takes the space in the text's stead
    both = _encode(vocabulary, "\n" + text, name, parse_special)
    rest = both[len(before) :]
    return rest if both[: len(before)] == before and _spelling(vocabulary, rest) == text.encode() else ids


def _spelling(vocabulary: Vocabulary, ids: Sequence[int]) -> bytes:
    return b"".join(vocabulary.bytes_of(i) for i in ids)


def _encode(vocabulary: Vocabulary, text: str, name: str, parse_special: bool) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name} holds a lone surrogate at character {error.start}, which is no text; remove it") from None
    if not parse_special:
        return list(vocabulary.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
    return encode_plain(vocabulary, text)


def _beginning(vocabulary: Vocabulary, add_bos: bool | None) -> list[int]:
    """The ids that go before a raw prompt: what the tokenizer adds by itself, or as told."""
    bos = vocabulary.tokenizer.bos_token_id
    if add_bos is not None and not isinstance(add_bos, bool):
        raise InputError(f"add_bos must be true, false or None (as the tokenizer does), got {add_bos!r}")
    if add_bos is None:
        by_itself = vocabulary.tokenizer("a")["input_ids"]
        return [bos] if bos is not None and by_itself[:1] == [bos] else []
    if add_bos and bos is None:
        raise InputError("add_bos: this tokenizer has no beginning-of-sequence token")
    return [bos] if add_bos else []


def _join(
    vocabulary: Vocabulary,
    prompt: str | None,
    bos: list[int],
    prompt_ids: list[int],
    completion: str | Sequence[int] | None,
    parse_special: bool,
    notes: list[str],
) -> TokenizedText:
    prompt_text, starts, ends = _spans(vocabulary, prompt, prompt_ids, parse_special, notes)
    starts, ends = [0] * len(bos) + starts, [0] * len(bos) + ends
    ids = bos + prompt_ids
    boundary = len(ids)
    text = prompt_text
    if completion is not None and not isinstance(completion, str):
        completion = check_ids(vocabulary, completion, "completion")
    if completion:
        if not ids:
            notes.append("the prompt is empty: the first token of the completion has nothing before it and is not scored")
        given = completion if isinstance(completion, str) else None
        more = list(completion) if given is None else encode_after(vocabulary, given, "completion", parse_special)
        if given is not None and prompt is not None and _encode(vocabulary, prompt + given, "prompt", parse_special) != prompt_ids + more:
            notes.append("prompt and completion were tokenised separately; as one text the tokens at the boundary would differ")
        more_text, more_starts, more_ends = _spans(vocabulary, given, more, parse_special, notes)
        ids += more
        starts += [len(text) + s for s in more_starts]
        ends += [len(text) + e for e in more_ends]
        text += more_text
    pieces = tuple(vocabulary.bytes_of(i) for i in ids)
    return TokenizedText(text, tuple(ids), pieces, tuple(starts), tuple(ends), boundary, tuple(notes))


def _spans(
    vocabulary: Vocabulary, text: str | None, ids: list[int], parse_special: bool, notes: list[str]
) -> tuple[str, list[int], list[int]]:
    pieces = [vocabulary.bytes_of(i) for i in ids]
    decoded, starts, ends = pieces_text(pieces)
    if text is None or decoded == text:
        return decoded, starts, ends
    if decoded == " " + text:  # SentencePiece's synthetic space is not in the text
        return text, [max(s - 1, 0) for s in starts], [max(e - 1, 0) for e in ends]
    if vocabulary.tokenizer.is_fast:  # the tokenizer normalises the text: its own offsets know the way back
        options = {} if parse_special else {"split_special_tokens": True}
        spans = vocabulary.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, **options)["offset_mapping"]
        notes.append("the tokenizer normalises this text; tokens do not spell it exactly")
        return text, [s for s, _ in spans], [e for _, e in spans]
    notes.append("the tokenizer changes this text; offsets are into the text that its tokens spell")
    return decoded, starts, ends


def _decoded(data: bytes) -> list[tuple[str, int]]:
    """Characters with their byte lengths; each byte that belongs to none is a unit of its own."""
    units: list[tuple[str, int]] = []
    at = 0
    while at < len(data):
        try:
            good, bad_end = data[at:].decode(), None
        except UnicodeDecodeError as error:
            good, bad_end = data[at : at + error.start].decode(), at + error.end
        units += [(char, len(char.encode())) for char in good]
        at += len(good.encode())
        while bad_end is not None and at < bad_end:
            units.append((f"\\x{data[at]:02x}", 1))
            at += 1
    return units
