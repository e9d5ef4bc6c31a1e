"""The HTTP API: one named endpoint, `/inspect`, for `gradio_client` and plain requests."""

import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from inspector.errors import InspectorError
from inspector.events import finish
from inspector.page.downloads import FILES, make_files
from inspector.page.host import ModelHost
from inspector.page.session import Result
from inspector.params import SamplingParams


def endpoint(host: ModelHost) -> Callable[..., Any]:
    """The function behind `/inspect`, with `Inspector.inspect`'s arguments; its hints become the API's schema."""

    def inspect(
        prompt: str | None = None,
        completion: str | None = None,
        chat: list[dict] | None = None,
        prompt_ids: list[int] | None = None,
        params: dict | None = None,
        mode: str = "raw_logprobs",
        top_n: int = 10,
        token_ids: list[int] | None = None,
        continuations: int = 0,
        max_new_tokens: int = 32,
        seed: str | None = None,
        prompt_processing: str = "as_sampled",
        add_bos: bool | None = None,
        parse_special: bool = True,
        add_generation_prompt: bool = True,
    ) -> tuple[dict, gr.FileData]:
        """Score every token of a text. Returns the report as JSON, and a zip of its files.

        seed is text, since JSON numbers lose digits above 2**53 in many clients.
        """
        try:
            given = [x for x in (prompt, prompt_ids) if x is not None]
            if len(given) == 2:
                raise gr.Error("give either prompt or prompt_ids, got both", print_exception=False)
            if params is not None and not isinstance(params, dict):
                raise gr.Error(f"params must be an object of sampling parameters, got {params!r}", print_exception=False)
            inspector = finish(host.get())
            report = inspector.inspect(
                given[0] if given else None, chat=chat, completion=completion, params=SamplingParams(**(params or {})), mode=mode,
                top_n=top_n, token_ids=token_ids or (), continuations=continuations, max_new_tokens=max_new_tokens, seed=seed,
                prompt_processing=prompt_processing, add_bos=add_bos, parse_special=parse_special,
                add_generation_prompt=add_generation_prompt,
            )  # fmt: skip
        except InspectorError as error:
            raise gr.Error(str(error), print_exception=False) from None
        files = dict(zip(FILES, make_files(Result(1, "result", report))))
        return json.loads(report.to_json()), gr.FileData(path=files["report.zip"], orig_name="report.zip")

    return inspect
