"""The command line: parse, call, save. Exit code 0, 2 for wrong usage, 1 for an inspection that cannot be done."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from inspector.errors import InputError, InspectorError
from inspector.modes import LogprobsMode
from inspector.params import SamplingParams, check_seed

MODES = ", ".join(mode.value for mode in LogprobsMode)


class _Parser(argparse.ArgumentParser):
    """One clear line instead of the usage block."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `arguments` (default: the process's own) and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _score(options)
    except InspectorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; nothing was written", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m inspector", description="What a language model's numbers mean.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    score = commands.add_parser("score", help="score every token of a text, and sample continuations beside it")
    text = score.add_mutually_exclusive_group(required=True)
    text.add_argument("--text", help="the prompt")
    text.add_argument("--text-file", type=Path, metavar="F", help="a UTF-8 file with the prompt, taken byte for byte; - is standard input")
    text.add_argument("--prompt-ids", metavar="1,2,3", help="the prompt as token ids")
    text.add_argument("--chat", type=Path, metavar="F.json", help='a JSON list of {"role", "content"} messages')
    after = score.add_mutually_exclusive_group()
    after.add_argument("--completion", help="text that follows the prompt, scored with the true counts of generated tokens")
    after.add_argument("--completion-ids", metavar="1,2,3", help="the same as token ids")
    score.add_argument("--mode", default=LogprobsMode.RAW_LOGPROBS.value, help=f"what the score column shows: {MODES}")
    score.add_argument("--params", type=Path, metavar="F.json", help="sampling parameters as a JSON object")
    score.add_argument("--model", default="embedded", help="embedded, a Hub id (owner/name[@revision]), a folder or a .gguf file")
    score.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    score.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    score.add_argument("--kernels", default="auto", help="path of the kernels: auto or one of those that logit_kernels.PATHS lists")
    score.add_argument("--top-n", default="10", metavar="N", help="alternatives a token, 0 to 100")
    score.add_argument("--token-ids", default="", metavar="1,2,3", help="ids whose values are listed at every token")
    score.add_argument("--continuations", default="0", metavar="N", help="how many to sample after the prompt")
    score.add_argument("--max-new-tokens", default="32", metavar="N")
    score.add_argument("--seed", help="of the first continuation; drawn and recorded if left out")
    score.add_argument("--add-bos", choices=("auto", "yes", "no"), default="auto", help="a beginning-of-sequence token before the prompt")
    score.add_argument("--no-parse-special", action="store_true", help="take special tokens typed in the text as plain characters")
    score.add_argument("--no-generation-prompt", action="store_true", help="end a chat with its last message")
    score.add_argument("--prompt-processing", default="as_sampled", help="as_sampled, or off as the engine does")
    score.add_argument("--spreadsheet-safe", action="store_true", help="mark text cells that a spreadsheet would take for formulas")
    score.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for tokens.csv, alternatives.csv and run.json")
    return parser


def _score(options: argparse.Namespace) -> int:
    request = _request(options)
    mode, params = LogprobsMode.parse(options.mode), _params(options.params)
    check_seed(options.seed)  # before the model is loaded, as all that can be checked without it
    if options.out.exists() and not options.out.is_dir():
        raise InputError(f"--out must be a folder, but {options.out} is a file")
    # these take seconds: not needed for --help and usage errors
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    from inspector.inspection import Inspector

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
    bar = _Bar()
    inspector = Inspector.load(options.model, dtype=options.dtype, device=options.device, kernel_path=options.kernels, on_progress=bar.show)
    running = inspector.stream(**request, mode=mode, params=params)
    while True:
        try:
            event = next(running)
        except StopIteration as end:
            report = end.value
            break
        if hasattr(event, "stage"):
            bar.show(event.stage, event.done, event.total)
    bar.close()
    report.save(options.out, spreadsheet_safe=options.spreadsheet_safe)
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(report.summary.to_string(index=False))
    return 0


def _request(options: argparse.Namespace) -> dict[str, Any]:
    request: dict[str, Any] = {
        "top_n": _number("--top-n", options.top_n),
        "token_ids": _ids("--token-ids", options.token_ids),
        "continuations": _number("--continuations", options.continuations),
        "max_new_tokens": _number("--max-new-tokens", options.max_new_tokens),
        "seed": options.seed,
        "prompt_processing": options.prompt_processing,
        "add_bos": {"auto": None, "yes": True, "no": False}[options.add_bos],
        "parse_special": not options.no_parse_special,
        "add_generation_prompt": not options.no_generation_prompt,
    }
    if options.chat:
        request["chat"] = _json("--chat", options.chat, list)
    elif options.prompt_ids is not None:
        request["prompt"] = _ids("--prompt-ids", options.prompt_ids)
    else:
        request["prompt"] = options.text if options.text is not None else _read("--text-file", options.text_file)
    if options.completion is not None:
        request["completion"] = options.completion
    elif options.completion_ids is not None:
        request["completion"] = _ids("--completion-ids", options.completion_ids)
    return request


def _params(path: Path | None) -> SamplingParams:
    fields = _json("--params", path, dict) if path else {}
    return SamplingParams(**fields)


def _read(name: str, path: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise InputError(f"{name}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: {path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _json(name: str, path: Path, kind: type) -> Any:
    try:
        value = json.loads(_read(name, path))
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: {path} is not JSON: {error}") from None
    if not isinstance(value, kind):
        raise InputError(f"{name}: {path} must hold a JSON {'list' if kind is list else 'object'}, got {type(value).__name__}")
    return value


def _ids(name: str, text: str) -> list[int]:
    return [_number(name, part) for part in text.split(",")] if text.strip() else []


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{name} must be a whole number, got {text.strip()!r}") from None


class _Bar:
    """A progress bar on standard error, only where a person looks at it and the work has more than one step."""

    WIDTH = 30

    def __init__(self) -> None:
        self._shown = False

    def show(self, stage: str, done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        filled = self.WIDTH * done // max(total, 1)
        print(f"\r\x1b[K{stage} [{'#' * filled}{'.' * (self.WIDTH - filled)}] {done}/{total}", end="", file=sys.stderr, flush=True)
        self._shown = True

    def close(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
