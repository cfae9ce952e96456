"""What is exported as Portable AI Memory is what that format's own package takes, and what this package writes is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.adapters.formats import FORMATS, take, write_pam

pytest.importorskip("portable_ai_memory", reason="portable-ai-memory is not installed: make test-hosts")

import portable_ai_memory as pam
from portable_ai_memory.core.io import load_memory_store, save
from portable_ai_memory.core.validator import validate_memory_store


def test_an_export_is_a_sound_document_by_the_package_of_the_format(tmp_path: Path) -> None:
    with Memory(encoder=None, policy=None) as memory:
        memory.add("Ana likes  TEA \u0130 \u1e9e", user_id="ana", event_time="2024-05-06", trust=0.25)
        memory.add(
            "Ask first.\n\n  Then act.", kind="lesson", valid_from="2024-01-01", valid_to="2030-01-01T00:00:00.5"
        )
        memory.add("Answer in Norwegian.", kind="core", metadata={"topic": {"<!--": [1, None]}})
        memory.add("Ask first.", kind="case", key="a question", agent_id="b", session_id="c")
        memory.supersede(memory.add("Bob is in Rome").id, "Bob is in Oslo")
        items = memory.get_all()
        document = write_pam(items, owner="ana", now=memory.store.clock())
    file = tmp_path / "memory-store.json"
    file.write_text(document, encoding="utf-8")
    store = load_memory_store(file)
    result = validate_memory_store(store)
    assert (result.errors, result.warnings) == ([], [])
    assert [memory.content for memory in store.memories] == [item.text for item in items]
    with Memory(encoder=None, policy=None) as twin:  # also as that package writes it
        take(twin, FORMATS["pam"](save(store, tmp_path / "again.json").read_text(encoding="utf-8")))
        assert [(item.text, item.kind, item.scope, item.event_time, item.trust) for item in twin.get_all()] == [
            (item.text, item.kind, item.scope, item.event_time, item.trust) for item in items
        ]


def test_documents_of_the_pam_package_are_read(tmp_path: Path) -> None:
    made = pam.MemoryObject.create(
        id="a", type=pam.MemoryType.PREFERENCE, content="Likes  TEA", platform="chatgpt", tags=["drink"]
    )
    store = pam.MemoryStore(schema_version="1.0", owner=pam.Owner(id="ana"), memories=[made])
    with Memory(encoder=None, policy=None) as memory:
        (item,), left_out = take(memory, FORMATS["pam"](save(store, tmp_path / "a.json").read_text(encoding="utf-8")))
    assert (item.text, left_out) == ("Likes  TEA", [])
    assert item.metadata == {"type": "preference", "tags": ["drink"]}
