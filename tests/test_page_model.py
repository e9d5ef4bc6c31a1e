"""The choice of a model on the page."""

import pytest

from inspector.page.host import ModelHost
from inspector.page.model import change_model


@pytest.mark.parametrize("name", ["model.gguf", ""])
def test_a_space_does_not_open_what_lies_on_its_disk(tmp_path, monkeypatch, name):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("SPACE_ID", "owner/space")
    host = ModelHost()
    *_, (status, _chip) = change_model(host, str(tmp_path / name), "auto", "auto")
    assert "the model must be embedded or a Hub id" in status
    assert host.inspector is None
