"""Theme, styles and scripts. Everything is served by the page itself: no font, script or picture from outside."""

import json
from pathlib import Path

import gradio as gr
import plotly

_PACKAGE = Path(__file__).resolve().parents[1]
# a wheel carries them inside the package
ASSETS = next(place for place in (_PACKAGE / "assets", _PACKAGE.parent / "assets") if place.is_dir())
PLOTLY = Path(plotly.__file__).resolve().parent / "package_data" / "plotly.min.js"
SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Noto Sans", "Liberation Sans", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")


def theme() -> gr.themes.Base:
    """Fonts of the user's own system."""
    base = gr.themes.Base(
        primary_hue="teal", secondary_hue="teal", neutral_hue="slate", text_size="sm", spacing_size="sm", radius_size="md",
        font=SANS, font_mono=MONO,
    )  # fmt: skip
    return base.set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        block_background_fill="white",
        block_background_fill_dark="*neutral_900",
        block_border_width="1px",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_label_border_width="0px",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover_dark="*primary_600",
        button_primary_text_color="white",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_400",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_400",
        input_border_width="1px",
        input_background_fill="white",
        input_background_fill_dark="*neutral_800",
    )


def page_script() -> str:
    """What runs once on load, told where this server has Plotly's script, which goes into saved plots."""
    gr.set_static_paths([PLOTLY])
    address = f"location.pathname.replace(/[/]$/, '') + {json.dumps('/gradio_api/file=' + PLOTLY.as_posix())}"
    return (ASSETS / "page.js").read_text(encoding="utf-8").replace("PLOTLY_SCRIPT", address)


def script(*names: str) -> str:
    """Files of assets/ as one script."""
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)
