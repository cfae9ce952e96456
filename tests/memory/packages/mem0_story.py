"""One story told to mem0 and to our adapter: the same calls in the same order, and what came of each.

Run by a Python with mem0ai it needs nothing of ours: `python mem0_story.py FOLDER` prints the outcomes as JSON. Models are played
by a server in this file.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMENSION = 64
FACTS = {"Ana moved to Oslo in May.": "user", "The assistant booked a table at Pippo.": "assistant"}


def embedding(text: str) -> list[float]:
    """Near where words are shared."""
    vector = [0.0] * DIMENSION
    for word in re.findall(r"\w+", text.lower()) or ["nothing"]:
        digest = hashlib.blake2b(word.encode(), digest_size=DIMENSION).digest()
        vector = [old + byte - 127.5 for old, byte in zip(vector, digest)]  # noqa: B905
    length = sum(each * each for each in vector) ** 0.5
    return [each / length for each in vector]


@contextmanager
def models() -> Iterator[str]:
    """The URL of a server that embeds, and that finds the same facts in whatever it is told."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/embeddings"):
                rows = [{"index": n, "embedding": embedding(text)} for n, text in enumerate(asked["input"])]
                answer: dict[str, Any] = {"object": "list", "data": rows, "model": "fake", "usage": {}}
            else:
                told = json.dumps(asked["messages"])
                if "rocedural memory" in told:
                    text = "The agent opened the page and read the price."
                else:
                    # mem0 reads "memory", our extractor "facts".
                    found = [] if "Hi there" in told else [{"text": t, "attributed_to": w} for t, w in FACTS.items()]
                    text = json.dumps({"memory": found, "facts": [each["text"] for each in found]})
                message = {"role": "assistant", "content": text}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "fake", "choices": [choice]}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def shape(value: Any) -> Any:
    """Types in the place of values; the names of a dictionary stay."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in sorted(value.items())}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__


def outcome(call: Callable[[], Any], look: Callable[[Any], Any]) -> Any:
    try:
        return look(call())
    except Exception as error:  # what is raised is what is compared
        kinds = [each.__name__ for each in type(error).__mro__]
        kind = "NotImplementedError" if "NotImplementedError" in kinds else "an error"
        return {"raises": kind}


def texts(found: Any) -> list[str]:
    return sorted(result["memory"] for result in found["results"])


def pairs(name: str, found: Any) -> list[list[str]]:
    """What is said of each memory under a name, and the memory."""
    return [[result[name], result["memory"]] for result in found["results"]]


def falling(found: Any) -> bool:
    scores = [result["score"] for result in found["results"]]
    return scores == sorted(scores, reverse=True) and all(0.0 <= score <= 1.0 for score in scores)


FILTERS: dict[str, dict[str, Any]] = {
    "equal": {"topic": "food"},
    "eq": {"topic": {"eq": "game"}},
    "ne": {"stars": {"ne": 3}, "topic": {"ne": "x"}},
    "gt": {"stars": {"gt": 3}},
    "gte and lt": {"stars": {"gte": 3, "lt": 5}},
    "lte": {"stars": {"lte": 1}},
    "in": {"topic": {"in": ["game", "music"]}},
    "nin": {"topic": {"nin": ["game"]}, "stars": {"gte": 3}},
    "a list": {"topic": ["game", "music"]},
    "contains": {"topic": {"contains": "game"}},
    "AND": {"AND": [{"topic": "food"}, {"stars": {"gte": 3}}]},
    "OR": {"OR": [{"topic": "game"}, {"stars": {"lte": 1}}]},
    "NOT": {"NOT": [{"topic": "game"}, {"stars": 1}]},
    "all at once": {"stars": {"gte": 1}, "OR": [{"topic": "game"}, {"topic": "food"}], "NOT": [{"stars": 5}]},
}


def told(memory: Any) -> dict[str, Any]:
    """What comes of every call, by name."""
    out: dict[str, Any] = {}

    def see(name: str, call: Callable[[], Any], look: Callable[[Any], Any] = lambda value: value) -> None:
        out[name] = outcome(call, look)

    ana, nobody = {"user_id": "ana"}, "11111111-1111-1111-1111-111111111111"
    said = (("system", "Be brief."), ("user", "I like tofu soup."), ("assistant", "Noted, tofu soup it is."))
    first_talk = [{"role": role, "content": text} for role, text in (*said, ("user", "Look here"))]
    added = memory.add(first_talk, user_id=" ana ", metadata={"topic": "food", "stars": 3}, infer=False)
    see("added", lambda: pairs("event", added))
    for text, metadata in (("I play chess.", {"topic": "game", "stars": 5}), ("I sing in a choir.", {"stars": 1})):
        memory.add(text, user_id="ana", agent_id="coach", run_id="r1", metadata=metadata, infer=False)
    memory.add("I like tofu soup too.", user_id=7, metadata={"topic": "food"}, infer=False)
    first = added["results"][0]["id"]
    see("get", lambda: shape(memory.get(first)))
    see("get: said", lambda: [memory.get(first)[name] for name in ("memory", "hash", "metadata", "role")])
    see("get: nobody's", lambda: memory.get(nobody))
    see("get_all", lambda: memory.get_all(filters=ana), texts)
    see("get_all: shape", lambda: memory.get_all(filters={"user_id": "ana", "run_id": "r1", "stars": 5}), shape)
    see("get_all: a number", lambda: memory.get_all(filters={"user_id": 7}), texts)
    see("get_all: two", lambda: memory.get_all(filters=ana, top_k=2), lambda found: len(found["results"]))
    see("get_all: agent", lambda: memory.get_all(filters={"agent_id": "coach"}), texts)
    see("search: first", lambda: memory.search("tofu soup", filters=ana), lambda f: f["results"][0]["memory"])
    see("search: shape", lambda: memory.search("tofu soup", filters=ana, top_k=1), shape)
    see("search: score from 0 to 1, falling", lambda: memory.search("tofu soup", filters=ana), falling)
    see("search: far", lambda: memory.search("quantum chromodynamics", filters=ana, threshold=0.9), texts)
    see("search: near", lambda: memory.search("I play chess.", filters=ana, threshold=0.9), texts)
    see("search: trimmed", lambda: memory.search("  I play chess. ", filters=ana, threshold=0.9), texts)
    everything = "I like tofu soup choir chess Look here"
    for name, filters in FILTERS.items():
        given = {**ana, **filters}
        see(f"filter {name}", lambda given=given: memory.search(everything, filters=given, threshold=0.0), texts)
    coach = {"user_id": "ana", "agent_id": "coach"}
    see("filter whoever", lambda: memory.search("tofu chess", filters=coach, threshold=0.0), texts)
    see("update", lambda: memory.update(first, "I like tempeh.", metadata={"stars": 4}))
    see("update: after", lambda: memory.get(first), lambda f: [f["memory"], f["metadata"], f["user_id"]])
    see("update: time", lambda: memory.get(first), lambda found: found["updated_at"] > found["created_at"])
    see("update: metadata alone", lambda: memory.update(first, metadata={"sure": True}))
    see("history", lambda: memory.history(first), lambda h: [[e["event"], e["old_memory"], e["new_memory"]] for e in h])
    see("history: nobody's", lambda: memory.history(nobody))
    see("delete", lambda: memory.delete(first))
    see("delete: after", lambda: memory.get(first))
    see("delete: history", lambda: memory.history(first)[-1], lambda e: [e["event"], e["new_memory"], e["is_deleted"]])
    said = (("user", "I moved to Oslo in May."), ("assistant", "I booked a table at Pippo for you."))
    talk, di = [{"role": role, "content": text} for role, text in said], {"user_id": "di"}
    see(
        "infer", lambda: memory.add(talk, user_id="di", metadata={"topic": "home"}), lambda f: sorted(pairs("event", f))
    )
    see("infer: shape", lambda: memory.get_all(filters=di, top_k=1), shape)
    see("infer: who", lambda: memory.get_all(filters=di), lambda found: sorted(pairs("attributed_to", found)))
    see("infer: again", lambda: [memory.add(talk, user_id="di"), memory.get_all(filters=di)][1], texts)
    see("infer: nothing", lambda: memory.add("Hi there!", user_id="di"))
    see("refused add: nobody", lambda: memory.add("x", infer=False))
    see("refused add: blank", lambda: memory.add("x", user_id="  ", infer=False))
    see("refused add: no messages", lambda: memory.add(7, user_id="ana", infer=False))
    see("refused search: nobody", lambda: memory.search("tofu"))
    see("refused search: metadata alone", lambda: memory.search("tofu", filters={"topic": "food"}))
    see("refused search: blank", lambda: memory.search("  ", filters=ana))
    see("refused search: no text", lambda: memory.search(None, filters=ana))
    see("refused get_all: nobody", lambda: memory.get_all())
    see("refused update: nothing", lambda: memory.update(first))
    see("refused update: nobody's", lambda: memory.update(nobody, "x"))
    see("refused delete: twice", lambda: memory.delete(first))
    see("refused delete_all: nobody", lambda: memory.delete_all())
    see("delete_all", lambda: memory.delete_all(user_id="ana"))
    see("delete_all: after", lambda: memory.get_all(filters=ana), texts)
    see("delete_all: others", lambda: memory.get_all(filters={"user_id": 7}), texts)
    see("reset", lambda: memory.reset())
    see("reset: after", lambda: memory.get_all(filters={"user_id": 7}), texts)
    see("close", lambda: memory.close())
    return out


def config(url: str, vector_store: dict[str, Any], **rest: Any) -> dict[str, Any]:
    server = {"openai_base_url": url, "api_key": "k3y"}
    return {
        "vector_store": vector_store,
        "llm": {"provider": "openai", "config": {"model": "fake", **server}},
        "embedder": {"provider": "openai", "config": {"model": "fake", "embedding_dims": DIMENSION, **server}},
        **rest,
    }


if __name__ == "__main__":
    from mem0 import Memory

    folder = sys.argv[1]
    where = {"path": f"{folder}/qdrant", "collection_name": "story", "embedding_model_dims": DIMENSION}
    with models() as url:
        theirs = Memory.from_config(
            config(url, {"provider": "qdrant", "config": where}, history_db_path=f"{folder}/history.db")
        )
        sys.stdout.write("\n" + json.dumps(told(theirs)) + "\n")
