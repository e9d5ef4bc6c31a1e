"""The Gradio page: one module a region, `layout` puts them together."""

from inspector.page.layout import build_page, launch_options

__all__ = ["build_page", "launch_options"]
