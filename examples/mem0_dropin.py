"""mem0's calls with one changed import: below the configuration everything is as for mem0. A fact that changed is replaced."""

import json

from keepworth.adapters.mem0 import Memory  # from mem0 import Memory
from stand_in import endpoint


def facts(messages):
    """What the stand-in says where a model would find facts, and say which older ones they make untrue."""
    told = messages[-1]["content"]
    if told.startswith("Notes on a person"):
        return '{"F0": [0]}'
    return json.dumps(
        {"facts": [line.removeprefix("user: ") for line in told.splitlines() if line.startswith("user: ")]}
    )


with endpoint(facts) as (url, key, model):
    config = {
        "llm": {"provider": "openai", "config": {"model": model, "openai_base_url": url, "api_key": key}},
        "embedder": {"provider": "keepworth", "config": {"model": "hashing"}},
        "vector_store": {"provider": "keepworth", "config": {"path": "mem0.mem"}},
    }
    with Memory.from_config(config) as m:
        talk = [{"role": "user", "content": "Ana lives in Bergen."}, {"role": "assistant", "content": "Noted!"}]
        m.add(talk, user_id="ana", metadata={"topic": "home"})
        changed = m.add("Ana lives in Oslo now.", user_id="ana", metadata={"topic": "home"})
        print("what became of it:", [result["event"] for result in changed["results"]])
        found = m.search("Where does Ana live?", filters={"user_id": "ana", "topic": {"in": ["home", "work"]}})
        print("found:", [result["memory"] for result in found["results"]])
