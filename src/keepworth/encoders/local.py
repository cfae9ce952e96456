"""Encoders by name, which convert text to vectors: sentence encoders or hashed counts."""

from __future__ import annotations

import hashlib
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import UnknownEncoder
from keepworth.base.json_values import read_json
from keepworth.base.model_errors import CorruptModel, IncompleteModel, InvalidEncoder, UnknownModel
from keepworth.base.model_files import DEFAULT_ENCODER, KNOWN, ModelKind, path_of, sha256_of
from keepworth.base.onnx_graph import GRAPH, TOKENIZER, build_graph
from keepworth.base.vectors import RecentVectors, without_lone_surrogates
from keepworth.records.model import Encoder, EncoderIdentity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import onnxruntime
    from tokenizers import Tokenizer

_ALIASES = {"minilm": DEFAULT_ENCODER, "default": DEFAULT_ENCODER}


def encoder(name: str = "minilm") -> Encoder:
    """Returns the encoder of a name. The name is `minilm` (all-MiniLM-L6-v2, fetched once), `hashing`, `hashing:DIMENSION`, a
    folder or a Hugging Face id of a BERT encoder, or a server's `https://HOST/v1#MODEL` (`keepworth.encoders.hosted`).
    The case of a known name does not matter. Raises InvalidEncoder for an invalid dimension, and what `files.path_of` raises."""
    plain = name.lower()
    if plain == "hashing":
        return HashingEncoder()
    if plain.startswith("hashing:"):
        dimension = plain.removeprefix("hashing:")
        if not dimension.isdecimal():
            raise InvalidEncoder(
                f"The encoder {name!r:.80} has no number of dimensions after `hashing:`.",
                "Write, for example, hashing:512.",
            )
        return HashingEncoder(int(dimension))
    if name.startswith(("http://", "https://")):
        from keepworth.encoders.hosted import from_name

        return from_name(name)

    model = _ALIASES.get(plain, name)
    folder = Path(model).expanduser()
    if plain in KNOWN and not folder.is_dir():
        model = plain
    if not model or model in KNOWN or not folder.is_dir():  # no name is the folder that one stands in
        folder = path_of(model, kind=ModelKind.ENCODER)
    return open_sentence_encoder(folder, model if model in KNOWN else _own_name(folder))


def encoder_of(identity: EncoderIdentity) -> Encoder:
    """Returns the encoder that made vectors. Raises UnknownEncoder where it has no known name.

    One behind a URL is opened only where the environment also names its server, so that a memory's file alone cannot make this
    program send queries to a server."""
    from keepworth.base.chat import BASE_URL
    from keepworth.encoders.hosted import from_name, trusts

    if identity.model.startswith("hashing"):
        return HashingEncoder(identity.dimension)
    try:
        if not identity.model.startswith(("http://", "https://")):
            return encoder(identity.model)
    except UnknownModel as error:
        raise UnknownEncoder(
            f"the vectors of this memory are of the encoder {identity.model!r}, which has no name here.",
            "Open it with that encoder, or with encoder=None to search by words; `keepworth memory reembed` makes new ones.",
        ) from error
    if not trusts(identity.model):
        raise UnknownEncoder(
            f"the vectors of this memory are of the encoder {identity.model}, and no server is called because a file says so.",
            f"Name it, Memory(path, encoder={identity.model!r}), or set {BASE_URL} to its server; encoder=None searches by "
            "words.",
        )
    return from_name(identity.model, identity.dimension)


def _own_name(folder: Path) -> str:
    """Returns a name that changes with the weights, so that vectors of two encoders in folders of one name are never compared."""
    weights = next((folder / file for file in ("model.safetensors", GRAPH) if (folder / file).is_file()), None)
    return f"{folder.resolve().name}@{sha256_of(weights)[:12]}" if weights else folder.name


# An encoder without weights, for tests and for machines where no weights can be fetched.
#
# It knows spelling, not meaning: texts are near where they share words, word pairs or parts of words.
#
# Sources: signed feature hashing (Weinberger et al., arXiv 0902.2206); character n-grams of bounded words (Bojanowski et al.,
# arXiv 1607.04606).


# A match is a word, or one sign of punctuation.
_WORDS = re.compile(r"\w+|[^\w\s]")
_CHARACTERS = range(3, 6)
# Each word has several n-grams: their lower weights keep the word itself dominant.
_WORD, _PAIR, _PART = 1.0, 0.7, 0.3
MOST_DIMENSIONS = 65_536


class HashingEncoder:
    """Encodes texts as signed hashed counts of unit length, the same in every process and on every machine. `dimension` is 2 to
    MOST_DIMENSIONS, else InvalidEncoder. A text without any feature (empty, or only white space) gets one fixed vector of its
    own."""

    def __init__(self, dimension: int = 256) -> None:
        if not 2 <= dimension <= MOST_DIMENSIONS:
            raise InvalidEncoder(
                f"A hashing encoder has between 2 and {MOST_DIMENSIONS:,} dimensions, not {dimension}.", "Try 256."
            )
        self.identity = EncoderIdentity(model="hashing-v1", dimension=dimension, normalised=True)

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns vectors [len(texts), dimension], float32, of unit length. Lone surrogates count as U+FFFD."""
        import numpy as np

        if isinstance(texts, str):
            raise TypeError("encode takes a sequence of texts, not one text: write encode([text])")
        dimension = self.identity.dimension
        vectors = np.zeros((len(texts), dimension), dtype=np.float64)
        for row, text in zip(vectors, texts, strict=True):
            sums = [0.0] * dimension
            for feature, weight in features(text).items():
                index, sign = (_known_place if len(feature) <= _SHORT else _place)(feature, dimension)
                sums[index] += sign * weight
            row[:] = sums
            length = math.sqrt(float(row @ row))
            if length < 1e-9:  # no features, or all cancelled
                row[:] = 0.0
                row[_place("", dimension)[0]] = length = 1.0
            row /= length
        return vectors.astype(np.float32)


def features(text: str) -> dict[str, float]:
    """Returns words, pairs of neighbours and parts of words with their weights: the kind's weight times the square root of the
    count."""
    words = _WORDS.findall(unicodedata.normalize("NFKC", without_lone_surrogates(text)).casefold())
    counts: Counter[tuple[float, str]] = Counter((_WORD, f"w {word}") for word in words)
    counts.update((_PAIR, f"p {left} {right}") for left, right in pairwise(words))
    for word in words:
        bounded = f"<{word}>"
        counts.update((_PART, f"c {bounded[i : i + n]}") for n in _CHARACTERS for i in range(len(bounded) - n + 1))
    return {feature: weight * math.sqrt(count) for (weight, feature), count in counts.items()}


def _place(feature: str, dimension: int) -> tuple[int, float]:
    digest = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "little")
    return (digest >> 1) % dimension, 1.0 if digest & 1 else -1.0


_SHORT = 16
"""The characters of a feature whose place is cached: parts of words, and most words."""
_known_place = lru_cache(maxsize=65_536)(_place)


# Sentence vectors from a BERT encoder, by onnxruntime and `tokenizers`: no torch at run time.
#
# Sources: Sentence-BERT (Reimers and Gurevych, arXiv 1908.10084); MiniLM (Wang et al., arXiv 2002.10957).


# all-MiniLM-L6-v2 was tuned on up to 256 word pieces, the two marks at the ends included.
MAX_TOKENS = 256
# Throughput is flat from 8 to 64 texts of 27 tokens, and longer batches only pad more.
_BATCH = 32
# A WordPiece word is at most 100 pieces (longer ones become one unknown), so cutting a text can change no more than its last 100.
_LONGEST_WORD = 100
_PREFIX = 4096


class SentenceEncoder:
    """Mean-pooled, unit-length vectors of a BERT sentence encoder.

    Texts are cut at `max_tokens` word pieces, as the original model does. An empty text has a vector too (that of its two end
    marks). A text without a known piece, such as an emoji, has a row of zeros, which is near nothing; lone surrogates count as
    U+FFFD. A text's vector does not depend on what else is encoded with it, except for rounding. Vectors of recent texts are
    cached, by a hash of their content. Thread-safe."""

    def __init__(
        self, graph: Path | bytes, tokenizer: Path, name: str, *, max_tokens: int = MAX_TOKENS, remember: int = 8192
    ) -> None:
        """Opens `graph`, an ONNX file of `onnx_graph` or its bytes. `remember` is how many vectors are cached (1.5 KB each)."""
        self._tokenizer = _open_tokenizer(tokenizer)
        self._first, self._last = (_mark(self._tokenizer, mark, tokenizer) for mark in ("[CLS]", "[SEP]"))
        self._unknown = self._tokenizer.token_to_id("[UNK]")
        self._session = _open_session(graph)
        self._content_tokens = max_tokens - 2
        shape = self._session.get_outputs()[0].shape
        if len(shape) != 2 or not isinstance(shape[1], int):
            raise CorruptModel(f"The graph of the encoder {name} gives vectors of no fixed length: {shape}.", _AGAIN)
        self.identity = EncoderIdentity(model=name, dimension=shape[1], normalised=True)
        self._recent = RecentVectors(remember)

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns vectors [len(texts), dimension], float32, of unit length, or rows of zeros."""
        return self._recent.encode(texts, self._encode_new, lambda: self.identity.dimension)

    def _encode_new(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], npt.NDArray[np.float32]]]:
        ids = [self._ids(text) for text in texts]
        # The shortest texts come first, so that a batch pads little.
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            vectors = self._run([ids[index] for index in batch])
            # All texts without a known piece would have the same vector.
            vectors[[self._unread(ids[index]) for index in batch]] = 0
            yield batch, vectors

    def _run(self, rows: Sequence[list[int]]) -> npt.NDArray[np.float32]:
        import numpy as np

        ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int32)
        mask = np.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        try:
            vectors: npt.NDArray[np.float32] = self._session.run(
                ["vectors"], {"input_ids": ids, "attention_mask": mask}
            )[0]
        except Exception as error:  # onnxruntime has bare types of its own
            raise CorruptModel(
                f"The encoder {self.identity.model} cannot encode a text: its files do not fit one another ({error}).",
                _AGAIN,
            ) from error
        return vectors

    def _unread(self, row: Sequence[int]) -> bool:
        return len(row) > 2 and set(row[1:-1]) == {self._unknown}

    def _ids(self, text: str) -> list[int]:
        """Returns word pieces between the two end marks. Of a long text only the part that can matter is read."""
        clean = without_lone_surrogates(text)
        length = _PREFIX
        pieces: list[int] = self._tokenizer.encode(clean[:length], add_special_tokens=False).ids
        while length < len(clean) and len(pieces) < self._content_tokens + _LONGEST_WORD:
            length *= 4
            pieces = self._tokenizer.encode(clean[:length], add_special_tokens=False).ids
        return [self._first, *pieces[: self._content_tokens], self._last]


_AGAIN = "Copy or download the folder again."
_LEAST_TOKENS = 3  # a text's first and last mark, and a piece between them


def open_sentence_encoder(folder: Path, name: str) -> SentenceEncoder:
    """Opens the encoder in `folder`: a graph that `keepworth` wrote, or a BERT sentence encoder's published checkpoint. Raises
    IncompleteModel where files are missing, CorruptModel where they are of another kind (other pooling, other model)."""
    if not (folder / TOKENIZER).is_file():
        raise IncompleteModel(f"{folder} is no encoder folder: it lacks {TOKENIZER}")
    if (folder / "model.safetensors").is_file() and (folder / "config.json").is_file():
        _require_mean_pooling(folder)
        config = read_json(folder / "config.json", _AGAIN, CorruptModel)
        graph = build_graph(folder)
        return SentenceEncoder(graph, folder / TOKENIZER, name, max_tokens=_max_tokens(folder, config))
    if (folder / GRAPH).is_file():
        return SentenceEncoder(folder / GRAPH, folder / TOKENIZER, name)
    raise IncompleteModel(f"{folder} is no encoder folder: it lacks {GRAPH}, or config.json and model.safetensors")


def _require_mean_pooling(folder: Path) -> None:
    pooling = folder / "1_Pooling" / "config.json"
    if pooling.is_file():
        settings = read_json(pooling, _AGAIN, CorruptModel)
        modes = {name for name, on in settings.items() if name.startswith("pooling_mode") and on is True}
        if modes != {"pooling_mode_mean_tokens"}:
            raise CorruptModel(
                f"{folder} pools by {', '.join(sorted(modes)) or 'nothing'}; only the mean over tokens is supported"
            )


def _max_tokens(folder: Path, config: dict[str, Any]) -> int:
    """Returns how many tokens a text may have, of what the files of a folder say. Raises CorruptModel."""
    settings = folder / "sentence_bert_config.json"
    stated = read_json(settings, _AGAIN, CorruptModel).get("max_seq_length") if settings.is_file() else None
    limits: dict[str, Any] = {
        "max_seq_length": stated or MAX_TOKENS,
        "max_position_embeddings": config.get("max_position_embeddings"),
    }
    for name, limit in limits.items():
        if not isinstance(limit, int) or limit < _LEAST_TOKENS:
            raise CorruptModel(f"{folder} says {name} {limit!r:.40}: no number of tokens of a text.", _AGAIN)
    return min(map(int, limits.values()))


def _open_tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise CorruptModel(f"{path} cannot be read as a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _mark(tokenizer: Tokenizer, mark: str, path: Path) -> int:
    index: int | None = tokenizer.token_to_id(mark)
    if index is None:
        raise IncompleteModel(f"{path} has no {mark}: it is not a BERT encoder's tokenizer.")
    return index


def _open_session(graph: Path | bytes) -> onnxruntime.InferenceSession:
    # From 1.29 on the library sends telemetry when it is imported; only this variable, set before, prevents that.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that spin while idle would take the cores that the language model needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = graph if isinstance(graph, bytes) else str(graph)
    try:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's own exception types share no public base
        raise CorruptModel(
            f"{'the graph' if isinstance(graph, bytes) else graph} cannot be opened by onnxruntime: {error}"
        ) from error
    if {node.name for node in session.get_inputs()} != {"input_ids", "attention_mask"} or [
        node.name for node in session.get_outputs()
    ] != ["vectors"]:
        raise CorruptModel(f"{graph!r} is not a graph that keepworth wrote: it has other inputs or outputs")
    return session
