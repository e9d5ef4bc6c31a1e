"""A GGUF file dequantised once into a safetensors folder, so that the second start is fast.

A cache folder is made beside its final place and renamed into it when whole; its manifest holds every file's size and
CRC-32, so a folder that was cut short or damaged later is noticed and made again.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from inspector.errors import ModelError

MANIFEST = "manifest.json"
ABANDONED_SECONDS = 3600
FORMAT = 1  # raise when what is written changes, so that older folders are left alone


def cache_root() -> Path:
    """`$LOGIT_INSPECTOR_CACHE`, else the user's cache folder."""
    if place := os.environ.get("LOGIT_INSPECTOR_CACHE"):
        return Path(place).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("LOCALAPPDATA") if os.name == "nt" else None)
    return Path(base).expanduser() / "logit-inspector" if base else Path.home() / ".cache" / "logit-inspector"


def converted_folder(gguf: Path, on_progress: Callable[[str, int, int], None] | None = None) -> tuple[Path, str]:
    """The folder with the float32 weights and the tokenizer of `gguf`, made if need be, and the file's SHA-256."""
    on_progress = on_progress or (lambda stage, done, total: None)
    sha256 = _sha256(gguf)
    folder = cache_root() / f"gguf-{sha256[:16]}-v{FORMAT}"
    if is_whole(folder):
        return folder, sha256
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _convert(gguf, partial, on_progress)
        _write_manifest(partial)
        _put(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder, sha256


def _remove_abandoned(folder: Path) -> None:
    """What a process that was killed left beside `folder`; a younger one may still be at work."""
    for partial in folder.parent.glob(f".{folder.name}-*"):
        if time.time() - partial.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(partial, ignore_errors=True)


def is_whole(folder: Path) -> bool:
    """Whether the folder holds exactly the bytes that were written."""
    try:
        files = json.loads((folder / MANIFEST).read_text())
        return "config.json" in files and all(
            (folder / n).stat().st_size == f["size"] and _crc32(folder / n) == f["crc32"] for n, f in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # whatever cannot be read is not whole: it is made again


def _convert(gguf: Path, folder: Path, on_progress: Callable[[str, int, int], None]) -> None:
    place, name = str(gguf.parent), gguf.name
    try:
        on_progress("reading the tokenizer", 0, 3)
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, gguf_file=name)
        on_progress("dequantising the weights", 1, 3)
        model = transformers.AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
    except Exception as error:  # a damaged file makes its reader fail in any way: struct, index, unicode, memory
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"cannot read the GGUF file {gguf}: {reason}") from error
    # transformers marks the model as quantised and would refuse to save it, though its weights are dequantised by now
    model.hf_quantizer = None
    del model.config.quantization_config
    on_progress("writing the cache", 2, 3)
    model.save_pretrained(folder, max_shard_size="5GB")
    tokenizer.save_pretrained(folder)
    on_progress("writing the cache", 3, 3)


def _write_manifest(folder: Path) -> None:
    files = {p.name: {"size": p.stat().st_size, "crc32": _crc32(p)} for p in sorted(folder.iterdir())}
    for name in files:
        _sync(folder / name)
    (folder / MANIFEST).write_text(json.dumps(files, indent=1))
    _sync(folder / MANIFEST)


def _put(partial: Path, folder: Path) -> None:
    """Move a whole folder into place; another process may have been faster, then its folder is as good."""
    try:
        os.replace(partial, folder)
    except OSError:
        if is_whole(folder):
            return
        shutil.rmtree(folder)
        os.replace(partial, folder)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _crc32(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
