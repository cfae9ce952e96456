"""Other people's memories as systems of the harness, each as it ships, over the lines of `keepworth.evaluation.foreign`.

    keepworth eval run longmemeval none keepworth "command:PYTHON -I benchmarks/evaluation/rivals.py mem0"

The file runs in the Python in which the packages are installed, and imports nothing of ours. Vectors come from the harness.

mem0 stores each entry as it is (infer=False, no language model), in its local Qdrant, with its defaults otherwise. It searches by
words too where fastembed is installed, whose file of stop words is on a hub: it is handed the 179 of NLTK that bm25s carries.
LangGraph's store needs a `sqlite3` module that loads extensions; where Python's own does not, pysqlite3 takes its place. bm25s is
BM25 by a package of its own (Lucene's form, k1 = 1.5, b = 0.75, English stop words, no stemming): a check of our own search by
words.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Embed = Callable[[list[str]], list[list[float]]]

PACKAGES: dict[str, tuple[str, ...]] = {
    "mem0": ("mem0ai", "qdrant-client"),
    "langgraph": ("langgraph-checkpoint-sqlite", "sqlite-vec"),
    "bm25s": ("bm25s",),
}
"""Distributions that each rival takes, by which it is installed."""
ALSO = {"mem0": ("fastembed", "spacy")}
"""Those that change what it does where they are there."""


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# Opening each as its own documents say, with our vectors.


def mem0_memory(folder: Path, dimensions: int, embed: Embed) -> Any:
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ["MEM0_DIR"] = str(folder / "mem0")
    os.environ.setdefault("OPENAI_API_KEY", "not used: infer=False and the embedder is replaced")
    mem0: Any = importlib.import_module("mem0")
    config = {
        "vector_store": {
            "provider": "qdrant",
            "config": {"path": str(folder / "qdrant"), "embedding_model_dims": dimensions, "on_disk": True},
        },
        "history_db_path": str(folder / "history.db"),
    }
    memory = mem0.Memory.from_config(config)

    class Given:
        config = type("Config", (), {"embedding_dims": dimensions})()

        def embed(self, text: str, memory_action: str | None = None) -> list[float]:
            return embed([text])[0]

        def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
            return embed(texts)

    memory.embedding_model = Given()
    return memory


def langgraph_store(file: Path, dimensions: int, embed: Embed) -> Any:
    sqlite3 = sqlite3_with_extensions()
    package: Any = importlib.import_module("langgraph.store.sqlite")
    connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
    # The second name of the same option is the one this version reads.
    index = {"dims": dimensions, "embed": embed, "fields": ["text"], "text_fields": ["text"]}
    store = package.SqliteStore(connection, index=index)
    store.setup()
    return store


def sqlite3_with_extensions() -> Any:
    """Python's sqlite3, or in its place pysqlite3, for this process."""
    import sqlite3

    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    pysqlite3: Any = importlib.import_module("pysqlite3")
    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
    return pysqlite3


# As systems.


class Rival:
    """What they have in common. embed: texts to vectors, asked of the harness; each is asked for once a haystack."""

    name = ""

    def __init__(self, embed: Embed) -> None:
        self._ask_for = embed
        self._known: dict[str, list[float]] = {}
        self._folder = Path()
        self._places: dict[str, Any] = {}

    def begin(self, seed: int, folder: str) -> dict[str, Any]:
        self._folder, self._known, self._places = Path(folder), {}, {}
        self.open()
        names = (*PACKAGES[self.name], *ALSO.get(self.name, ()))
        return {"versions": {name: installed for name in names if (installed := version(name)) is not None}}

    def write(self, entries: list[dict[str, str]]) -> None:
        self.embed([entry["text"] for entry in entries])
        self._places.update(zip((entry["id"] for entry in entries), self.add(entries)))  # noqa: B905

    def ask(self, question: str, most: int, asked_at: str, options: list[str]) -> dict[str, Any]:
        shown = self.search(question, most) if self._places else []
        return {"shown": [{"id": id, "score": score} for id, score in shown]}

    def learn(self, reward: float, shown: list[str]) -> None:
        """None of these has a place for it."""

    def holds(self, ids: list[str]) -> dict[str, Any]:
        return {"holds": [id for id in ids if id in self._places and self.has(id)]}

    def size(self) -> dict[str, Any]:
        return {"bytes": sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file())}

    def embed(self, texts: list[str]) -> list[list[float]]:
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            self._known.update(zip(fresh, self._ask_for(fresh)))  # noqa: B905  (also of an older Python)
        return [self._known[text] for text in texts]

    def open(self) -> None: ...
    def add(self, entries: list[dict[str, str]]) -> list[Any]:
        """Keep them; returns what they are called here, in order."""
        raise NotImplementedError

    def search(self, question: str, most: int) -> list[tuple[str, float]]:
        raise NotImplementedError

    def has(self, id: str) -> bool:
        return True


class Mem0System(Rival):
    name = "mem0"
    memory: Any = None

    def open(self) -> None:
        if self.memory is not None:
            self.memory.close()
            self.memory.vector_store.client.close()
        self.memory = mem0_memory(self._folder, len(self.embed(["."])[0]), self.embed)
        if version("fastembed") is not None and version("bm25s") is not None:
            words = importlib.import_module("bm25s.stopwords").STOPWORDS_EN_PLUS
            sparse = importlib.import_module("fastembed").SparseTextEmbedding
            encoder = sparse("Qdrant/bm25", specific_model_path=str(self._folder), stopwords=set(words))
            self.memory.vector_store._bm25_encoder = encoder

    def add(self, entries: list[dict[str, str]]) -> list[Any]:
        """One by one: what is said about a call's messages, here their place, is the same for all of them."""
        done = [
            self.memory.add(entry["text"], user_id="user", infer=False, metadata={"place": entry["id"]})
            for entry in entries
        ]
        return [response["results"][0]["id"] for response in done]

    def search(self, question: str, most: int) -> list[tuple[str, float]]:
        hits = self.memory.search(question, filters={"user_id": "user"}, top_k=most, threshold=0.0)
        return [(result["metadata"]["place"], float(result["score"])) for result in hits["results"]]

    def has(self, id: str) -> bool:
        return self.memory.get(self._places[id]) is not None


class LangGraphSystem(Rival):
    name = "langgraph"
    store: Any = None

    def open(self) -> None:
        if self.store is not None:
            self.store.conn.close()
        self.store = langgraph_store(self._folder / "langgraph.db", len(self.embed(["."])[0]), self.embed)

    def add(self, entries: list[dict[str, str]]) -> list[Any]:
        put = importlib.import_module("langgraph.store.base").PutOp
        self.store.batch([put(("memories",), entry["id"], {"text": entry["text"]}) for entry in entries])
        return [entry["id"] for entry in entries]

    def search(self, question: str, most: int) -> list[tuple[str, float]]:
        hits = self.store.search(("memories",), query=question, limit=most)
        return [(hit.key, float(hit.score)) for hit in hits]

    def has(self, id: str) -> bool:
        return self.store.get(("memories",), id) is not None


class Bm25sSystem(Rival):
    name = "bm25s"

    def open(self) -> None:
        self._package: Any = importlib.import_module("bm25s")
        self._texts: list[str] = []
        self._index: Any = None

    def embed(self, texts: list[str]) -> list[list[float]]:
        return []

    def add(self, entries: list[dict[str, str]]) -> list[Any]:
        self._texts += [entry["text"] for entry in entries]
        self._index = None
        return [entry["id"] for entry in entries]

    def search(self, question: str, most: int) -> list[tuple[str, float]]:
        if self._index is None:
            self._index = self._package.BM25()
            self._index.index(self._words(self._texts), show_progress=False)
        ids = list(self._places)
        asked = self._words([question])
        rows, scores = self._index.retrieve(asked, k=min(most, len(ids)), show_progress=False)
        return [(ids[row], float(score)) for row, score in zip(rows[0], scores[0]) if score > 0]  # noqa: B905

    def _words(self, texts: list[str]) -> Any:
        return self._package.tokenize(texts, stopwords="en", show_progress=False)

    def size(self) -> dict[str, Any]:
        return {}


RIVALS: dict[str, type[Rival]] = {rival.name: rival for rival in (Mem0System, LangGraphSystem, Bm25sSystem)}


def main(name: str) -> None:
    # What a package prints is no answer of ours.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(record: dict[str, Any]) -> None:
        answers.write(json.dumps(record) + "\n")
        answers.flush()

    def embed(texts: list[str]) -> list[list[float]]:
        say({"embed": texts})
        vectors: list[list[float]] = json.loads(sys.stdin.readline())["vectors"]
        return vectors

    rival = RIVALS[name](embed)
    while line := sys.stdin.readline():
        request = json.loads(line)
        try:
            answer = getattr(rival, request.pop("op"))(**request) or {}
        except Exception as error:  # whatever it is, the harness is to know it
            answer = {"error": f"{type(error).__name__}: {error}"}
        say(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
