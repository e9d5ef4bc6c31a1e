"""The model's region: which one is loaded, and the choice of another."""

import os
from collections.abc import Generator
from dataclasses import dataclass
from html import escape

import gradio as gr
import torch

from inspector.errors import InspectorError, ModelError
from inspector.inspection import Inspector
from inspector.models import DTYPES, find_source
from inspector.page.host import ModelHost
from inspector.page.running import error_html, progress_html


@dataclass(frozen=True)
class ModelRegion:
    name: gr.Textbox
    dtype: gr.Dropdown
    device: gr.Dropdown
    load: gr.Button
    status: gr.HTML


def model_region() -> ModelRegion:
    devices = ["auto", "cpu"]
    devices += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    with gr.Accordion("Model", open=False, elem_id="model"):
        name = gr.Textbox(
            "embedded",
            label="model",
            elem_id="model-name",
            info="embedded, a Hub id (owner/name or owner/name@revision), a folder, or a .gguf file",
        )
        with gr.Row(elem_classes="li-fields"):
            dtype = gr.Dropdown(["auto", *DTYPES], value="auto", label="dtype", elem_id="model-dtype", min_width=110)
            device = gr.Dropdown(devices, value="auto", label="device", elem_id="model-device", min_width=110)
        load = gr.Button("Load model", size="sm", elem_id="model-load")
        status = gr.HTML(elem_id="model-status", apply_default_css=False)
    return ModelRegion(name, dtype, device, load, status)


def chip_html(inspector: Inspector | None) -> str:
    """The header's line about the model."""
    if inspector is None:
        return "<span class='li-chip li-wait'>loading the model…</span>"
    loaded = inspector.loaded
    words = [loaded.source.name, str(loaded.dtype).removeprefix("torch."), str(loaded.device)]
    if loaded.context_length:
        words.append(f"context {loaded.context_length:,}")
    return "<span class='li-chip'>" + " · ".join(escape(w) for w in words) + "</span>"


def first_load(host: ModelHost) -> Generator[str, None, None]:
    """The chip while the first model is loaded."""
    try:
        for event in host.get():
            count = f" {event.done}/{event.total}" if event.total else "…"
            yield f"<span class='li-chip li-wait'>{escape(event.stage)}{count}</span>"
    except InspectorError as error:
        yield f"<span class='li-chip li-bad' title='{escape(str(error))}'>no model: {escape(str(error))}</span>"
        return
    yield chip_html(host.inspector)


def change_model(host: ModelHost, name: str, dtype: str, device: str) -> Generator[tuple[str, str], None, None]:
    """(status, chip) while another model is loaded; after a failure the old one is still there."""
    try:
        _check_place(name.strip())
        for event in host.change(name.strip(), dtype, device):
            yield progress_html(event), chip_html(host.inspector)
    except InspectorError as error:
        kept = f". The model in use is still {host.inspector.loaded.source.name}." if host.inspector else ""
        yield error_html(InspectorError(str(error).removesuffix(".") + kept)), chip_html(host.inspector)
        return
    yield "<p class='li-done' role='status'>Loaded.</p>", chip_html(host.inspector)


def _check_place(name: str) -> None:
    """On a public Space a visitor may not open what lies on the server's disk. Raises ModelError."""
    if os.environ.get("SPACE_ID") and find_source(name).kind in ("folder", "gguf"):
        raise ModelError("on a Space the model must be embedded or a Hub id; folders and files of the server are not opened")
