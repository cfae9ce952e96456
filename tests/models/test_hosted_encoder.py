"""An encoder behind a URL: what is asked, what is refused, and where its key goes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepworth import Memory
from keepworth.base.model_errors import BadAnswer, EngineRefused, EngineUnreachable, InvalidEncoder
from keepworth.encoders.hosted import HostedEncoder
from keepworth.encoders.local import encoder
from keepworth.memory.errors import EncoderMismatch
from keepworth.records import EncoderIdentity
from tests.memory.stub_encoder import WordEncoder
from tests.serving.scripted import scripted


def embeddings(asked: dict[str, Any]) -> dict[str, Any]:
    """What a server answers: twice the length, and in another order."""
    vectors = 2.0 * WordEncoder(asked.get("dimensions", 16)).encode(asked["input"])
    rows = [{"index": place, "embedding": vector.tolist()} for place, vector in enumerate(vectors)]
    return {"object": "list", "data": rows[::-1], "model": asked["model"]}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "KEEPWORTH_ENCODER_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_texts_go_in_batches_and_each_vector_comes_back_to_its_text() -> None:
    with scripted((200, embeddings)) as server:
        hosted = HostedEncoder(server.url, "small", api_key="k3y", batch=2)
        texts = ["likes tofu", "plays chess", "likes tofu", "half \ud800 a sign"]
        vectors = hosted.encode(texts)
        assert hosted.identity == EncoderIdentity(f"{server.url}/v1#small", 16, True)
        np.testing.assert_allclose(vectors[:3], WordEncoder(16).encode(texts[:3]), atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
        assert [each["input"] for each in server.asked] == [["likes tofu", "plays chess"], ["half \ufffd a sign"]]
        expected = ("/v1/embeddings", "Bearer k3y", "small")
        assert all((each["path"], each["key"], each["model"]) == expected for each in server.asked)
        hosted.encode(texts)
        assert len(server.asked) == 2


def test_a_server_may_be_busy_and_one_that_is_not_there_is_named() -> None:
    with scripted((429, {"error": "slow down"}), (0, None), (200, embeddings)) as server:
        assert HostedEncoder(server.url, "small").encode(["tea"]).shape == (1, 16)
        assert len(server.asked) == 3, "what the dimension is, the answer says"
    with pytest.raises(EngineUnreachable, match=server.url):
        HostedEncoder(server.url, "small").encode(["tea"])


BAD: dict[str, tuple[Any, str]] = {
    "too few": ({"data": []}, "gave 0 vectors for 2 texts"),
    "no vectors": ({"choices": []}, "gave no vectors for 2 texts"),
    "ragged": ({"data": [{"embedding": [1.0]}, {"embedding": [1.0, 2.0]}]}, "no list of numbers for each"),
    "no numbers": ({"data": [{"embedding": "AAA"}, {"embedding": "AAA"}]}, "no list of numbers for each"),
    "one place twice": ({"data": [{"index": 0, "embedding": [1.0]}] * 2}, "no list of numbers for each"),
    "zero": ({"data": [{"embedding": [0.0, 0.0]}] * 2}, "empty, zero or not finite"),
    "other dimension": ({"data": [{"embedding": [3.0, 4.0]}] * 2}, "2 dimensions where 16 are needed"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_answer_is_named_with_the_url(name: str) -> None:
    answer, message = BAD[name]
    with scripted((200, answer)) as server, pytest.raises(BadAnswer, match=message) as caught:
        HostedEncoder(server.url, "small", dimension=16).encode(["tea", "milk"])
    assert f"{server.url}/v1/embeddings" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("https://host/v1", "names no model"),
        ("https://host/v1#", "names no model"),
        ("https://host/v1#m?dimensions=0", "names no model"),
        ("https://host/v1#m?size=3", "names no model"),
        ("https:///v1#m", "is not the URL of a server"),
        ("https://ana:s3cret@host/v1#m", "holds a password or a query"),
        ("https://host/v1?key=s3cret#m", "holds a password or a query"),
    ],
)
def test_malformed_encoder_name_is_refused_with_its_form(name: str, message: str) -> None:
    with pytest.raises(InvalidEncoder, match=message) as caught:
        encoder(name)
    assert "s3cret" not in str(caught.value)


def test_memory_records_the_hosted_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.mem"
    with scripted((200, embeddings)) as server:
        name = f"{server.url}/v1#small?dimensions=32"
        with Memory(path, encoder=name) as m:
            m.add_many(["Ana likes tofu", "Bo plays chess"])
            assert m.search("likes tofu", mode="dense")[0].text == "Ana likes tofu"
            assert m.store.encoder_identity() == EncoderIdentity(name, 32, True)
        assert {each.get("dimensions") for each in server.asked} == {32}
        with pytest.raises(EncoderMismatch, match="no server is called because a file says so"):
            Memory(path)
        with pytest.raises(EncoderMismatch, match="hashing"):
            Memory(path, encoder="hashing")
        with pytest.raises(EncoderMismatch, match="reembed"):
            Memory(path, encoder=f"{server.url}/v1#small")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1/")
        asked = len(server.asked)
        with Memory(path) as m:
            assert len(server.asked) == asked, "the dimension is on file"
            assert m.search("plays chess", mode="dense")[0].text == "Bo plays chess"
    moved = HostedEncoder("http://127.0.0.1:9", "small", dimension=32, name=name)
    with Memory(path, encoder=moved) as m:
        assert len(m) == 2


def test_a_key_goes_where_it_belongs_and_is_never_said(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret-openai")
    with scripted((401, {"error": {"message": "wrong key s3cret-own"}})) as server:
        with pytest.raises(EngineRefused, match="KEEPWORTH_ENCODER_KEY"):
            encoder(f"{server.url}#small").encode(["tea"])
        assert server.asked[-1]["key"] is None, "it is OpenAI's"
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with pytest.raises(EngineRefused):
            encoder(f"{server.url}#small").encode(["tea"])
        assert server.asked[-1]["key"] == "Bearer s3cret-openai"
        monkeypatch.setenv("KEEPWORTH_ENCODER_KEY", "s3cret-own")
        with pytest.raises(EngineRefused, match="status 401") as caught:
            encoder(f"{server.url}#small").encode(["tea"])
        assert server.asked[-1]["key"] == "Bearer s3cret-own"
    with scripted((200, embeddings)) as server, Memory(tmp_path / "a.mem", encoder=f"{server.url}#small") as m:
        m.add("Ana likes tofu")
        assert "s3cret" not in repr(m.store.embedder) + repr(encoder(f"{server.url}#small"))
    assert "s3cret" not in str(caught.value) + caplog.text
    assert all(b"s3cret" not in file.read_bytes() for file in tmp_path.iterdir())
