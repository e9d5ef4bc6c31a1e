"""Share links: a form as a short text after the `#`, which a browser does not send to any server."""

import base64
import binascii
import json
import zlib
from dataclasses import asdict, fields
from typing import Any

from inspector.errors import InputError
from inspector.modes import LogprobsMode
from inspector.page.form import SamplerForm, TextForm

PREFIX = "inspect="
MOST = 6000  # characters of the whole code; chat programs cut longer links
MOST_JSON = 1 << 20  # bytes that a link may unfold to


def encode(text: TextForm, sampler: SamplerForm, mode: str, model: str) -> str:
    """What differs from an empty form. A model on this machine's disk is left out: its path is nobody else's business."""
    fresh = {"text": asdict(TextForm()), "sampler": asdict(SamplerForm())}
    forms = {"text": asdict(text), "sampler": asdict(sampler)}
    changed: dict[str, Any] = {
        part: {name: value for name, value in form.items() if value != fresh[part][name]} for part, form in forms.items()
    }
    changed["mode"] = mode
    if is_shareable(model):
        changed["model"] = model
    packed = zlib.compress(json.dumps(changed, ensure_ascii=False, separators=(",", ":")).encode(), 9)
    code = PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")
    if len(code) > MOST:
        raise InputError(f"the link would have {len(code):,} characters, and programs keep at most {MOST:,} whole; shorten the text")
    return code


def decode(code: str) -> tuple[TextForm, SamplerForm, str, str | None]:
    """The forms, the mode and the model of a link. Raises InputError for a damaged one."""
    try:
        packed = base64.urlsafe_b64decode(code.removeprefix(PREFIX) + "===")
        data = json.loads(zlib.decompressobj().decompress(packed, MOST_JSON))
        text = TextForm(**_known(data["text"], TextForm))
        sampler = SamplerForm(**_known(data["sampler"], SamplerForm))
        model = data.get("model")
        return text, sampler, LogprobsMode.parse(data["mode"]).value, model if isinstance(model, str) and is_shareable(model) else None
    except (binascii.Error, zlib.error, ValueError, KeyError, TypeError, AttributeError):
        raise InputError("this share link is damaged or cut short; ask for it again") from None


def is_shareable(model: str) -> bool:
    """Whether a model's name means the same on another machine: the embedded one, or a Hub id."""
    return model == "embedded" or (model.count("/") == 1 and not model.startswith((".", "/", "~")) and not model.lower().endswith(".gguf"))


def _known(values: dict[str, Any], form: type) -> dict[str, Any]:
    """Values by the form's own names and kinds."""
    fresh = {f.name: f.default for f in fields(form)}
    for name, value in values.items():
        kinds = (int, float) if isinstance(fresh[name], (int, float)) and not isinstance(fresh[name], bool) else type(fresh[name])
        if value is not None and not isinstance(value, kinds):
            raise ValueError
    return values
