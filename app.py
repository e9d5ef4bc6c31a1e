"""The web app: `python app.py`, and the entry of the Hugging Face Space."""

import os

from inspector.page import build_page, launch_options
from inspector.page.host import ModelHost


def main() -> None:
    host = ModelHost(os.environ.get("LOGIT_INSPECTOR_MODEL", "embedded"))
    host.preload()
    page = build_page(host)
    name = os.environ.get("GRADIO_SERVER_NAME") or ("0.0.0.0" if os.environ.get("SPACE_ID") else "127.0.0.1")
    port = int(os.environ.get("GRADIO_SERVER_PORT") or 7860)
    page.queue(max_size=32).launch(server_name=name, server_port=port, **launch_options())


if __name__ == "__main__":
    main()
