"""Checkpoints that several files of tests train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.tiny_folder import write_tiny_checkpoint

TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture(scope="session")
def chat_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a few thousand weights with a chat template."""
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("chat"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without one."""
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model"))
