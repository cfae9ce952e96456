"""An encoder behind an OpenAI-compatible URL (`POST /embeddings`): hosted services, and servers such as vLLM and Ollama.

Memory(path, encoder="https://api.openai.com/v1#text-embedding-3-small?dimensions=512")
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from keepworth.base.chat import API_KEY, BASE_URL
from keepworth.base.http_client import JsonClient
from keepworth.base.model_errors import BadAnswer, EngineRefused, InvalidEncoder
from keepworth.base.vectors import RecentVectors, without_lone_surrogates
from keepworth.records.model import EncoderIdentity

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors

ENCODER_KEY = "KEEPWORTH_ENCODER_KEY"
"""The environment variable with the key of an encoder's server."""
OPENAI = "https://api.openai.com/v1"
BATCH = 32
"""Texts in one request: the smallest of common servers' default limits."""
_NAME = re.compile(r"(?P<model>.+?)(\?dimensions=(?P<dimensions>[1-9][0-9]{0,4}))?")
_FORM = "https://HOST/v1#MODEL, or https://HOST/v1#MODEL?dimensions=NUMBER"


def from_name(name: str, dimension: int | None = None) -> HostedEncoder:
    """Returns the encoder called URL#MODEL or URL#MODEL?dimensions=NUMBER. Raises InvalidEncoder. `dimension` is that of its
    vectors, where it is known."""
    url, _, rest = name.partition("#")
    match = _NAME.fullmatch(rest)
    if match is None or "?" in match["model"]:
        raise InvalidEncoder(f"The encoder {_shown(name)!r} names no model behind its URL.", f"Write {_FORM}.")
    asked = match["dimensions"]
    return HostedEncoder(url, match["model"], dimensions=int(asked) if asked else None, dimension=dimension)


def trusts(name: str) -> bool:
    """Whether the environment names the server of this encoder. A name in a memory's file alone is no reason to call a server."""
    named = os.environ.get(BASE_URL) or os.environ.get(API_KEY)
    return bool(named) and _base(name.partition("#")[0]) == _environment_url()


class HostedEncoder:
    """Unit vectors from a server. Vectors of recent texts are cached. Thread-safe. Raises InvalidEncoder.

    Args:
        url: The URL including `/v1`.
        dimensions: How many the server should return, for models that support fewer; None for all.
        dimension: How many there are; None to ask the server once.
        api_key: None for that of the environment: KEEPWORTH_ENCODER_KEY, or OPENAI_API_KEY where the URL is OpenAI's or that in
            OPENAI_BASE_URL. The key is in no message, log, repr or file.
        name: The name of the vectors in a memory's file, for a server that has moved; by default URL#MODEL.
        batch: Texts in one request.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        dimensions: int | None = None,
        dimension: int | None = None,
        api_key: str | None = None,
        name: str = "",
        batch: int = BATCH,
    ) -> None:
        if not model or batch < 1 or (dimensions is not None and dimensions < 1):
            raise InvalidEncoder(
                f"An encoder behind a URL needs a model's name, and batch and dimensions of at least 1: got {model!r:.60}, "
                f"{batch!r:.20} and {dimensions!r:.20}.",
                f"Write {_FORM}.",
            )
        base = _base(url)
        key = api_key if api_key is not None else _key_for(base)
        self._client = JsonClient(base, key, seconds=60.0, attempts=5)
        self.model = model
        self._dimensions = dimensions
        self._batch = batch
        self._name = name or f"{base}#{model}" + (f"?dimensions={dimensions}" if dimensions else "")
        self._dimension = dimension
        self._recent = RecentVectors(8192)

    def __repr__(self) -> str:
        return f"HostedEncoder({self._client.url!r}, {self.model!r})"

    def close(self) -> None:
        self._client.close()

    @property
    def identity(self) -> EncoderIdentity:
        """The encoder's identity. Asks the server, the first time, where the dimension is not known."""
        if self._dimension is None:
            self._asked(["dimension"])
        assert self._dimension is not None
        return EncoderIdentity(model=self._name, dimension=self._dimension, normalised=True)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Returns vectors [len(texts), dimension], float32, of unit length. Lone surrogates count as U+FFFD, an empty text as a
        space. Raises EngineUnreachable, EngineTimeout, EngineDied and EngineRefused for a server that does not answer, and
        BadAnswer for an invalid answer."""
        return self._recent.encode(texts, self._encode_new, lambda: self.identity.dimension)

    def _encode_new(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], Vectors]]:
        for start in range(0, len(texts), self._batch):
            places = range(len(texts))[start : start + self._batch]
            yield places, self._asked([texts[index] for index in places])

    def _asked(self, texts: Sequence[str]) -> Vectors:
        """Encodes the texts in one request."""
        import numpy as np

        body: dict[str, Any] = {"model": self.model, "input": [without_lone_surrogates(text) or " " for text in texts]}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        try:
            answer = self._client.post("/embeddings", body, idempotent=True)
        except EngineRefused as error:
            if error.status not in (401, 403):
                raise
            fix = f"Set {ENCODER_KEY} to a key of this server; {API_KEY} is sent to the server of {BASE_URL} and to OpenAI alone."
            raise EngineRefused(error.message, fix, status=error.status, detail=error.detail) from error
        where = f"{self._client.url}/embeddings"
        rows = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(rows, list) or len(rows) != len(texts):
            count = len(rows) if isinstance(rows, list) else "no"
            raise BadAnswer(
                f"{where} gave {count} vectors for {len(texts)} texts.", f"Is {self.model!r} a model for embeddings?"
            )
        try:
            placed = {row.get("index", index): row["embedding"] for index, row in enumerate(rows)}
            vectors = np.array([placed[index] for index in range(len(texts))], dtype=np.float64)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadAnswer(f"{where} gave no list of numbers for each text ({error}).") from error
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        if vectors.ndim != 2 or not np.isfinite(lengths).all() or not lengths.all():
            raise BadAnswer(
                f"{where} gave vectors that are empty, zero or not finite.", "Look at the server's log and its dtype."
            )
        wanted = self._dimension if self._dimension is not None else self._dimensions
        if wanted is not None and vectors.shape[1] != wanted:
            raise BadAnswer(
                f"{where} gave vectors of {vectors.shape[1]} dimensions where {wanted} are needed.",
                "Is another model served under this name? To go on with it, make new vectors: `keepworth memory reembed`."
                if self._dimension is not None
                else f"{self.model!r} cannot be cut: leave out dimensions.",
            )
        self._dimension = vectors.shape[1]
        made: Vectors = (vectors / lengths).astype(np.float32)
        return made


def _base(url: str) -> str:
    """Normalises the URL. Raises InvalidEncoder for an invalid one, or one that holds a password or a query."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise InvalidEncoder(f"{_shown(url)!r} is no URL: {error}.", f"Write {_FORM}.") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidEncoder(f"{_shown(url)!r} is not the URL of a server.", f"Write {_FORM}.")
    if parsed.userinfo or parsed.query:
        raise InvalidEncoder(
            f"The URL of an encoder at {parsed.host} holds a password or a query, and it is kept in the memory's file.",
            f"Leave them out: a key goes into the environment variable {ENCODER_KEY}.",
        )
    return f"{parsed.scheme}://{parsed.netloc.decode()}{parsed.path.rstrip('/') or '/v1'}"


def _environment_url() -> str:
    return _base(os.environ.get(BASE_URL) or OPENAI)


def _key_for(base: str) -> str | None:
    """Returns the key for this server, so that a key is sent only to the server that it is for."""
    key = os.environ.get(ENCODER_KEY)
    if key:
        return key
    return os.environ.get(API_KEY) or None if base in (_environment_url(), OPENAI) else None


def _shown(url: str) -> str:
    """Returns the URL without a possible password."""
    return re.sub(r"//[^/@#]*@", "//...@", url)[:100]
