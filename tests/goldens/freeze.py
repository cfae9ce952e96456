"""Writes the frozen files of this folder: what an earlier version put on disk and computed. Tests beside it compare.

    python -m tests.goldens.freeze FOLDER [memories streams updates run]

Each part is made by public calls, so that the same call of a later version can be compared with it. Files are replaced on
purpose only: a change of what is computed is said in the commit that replaces them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import itertools
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
STREAMS = ("near-miss", "noisy-reward", "drift", "tool-graph", "t-maze", "repeat-previous")
TASKS = 48
QUERIES = ("where does Ana live", "tea or coffee", "train at nine", "nothing like it 7131")
RUN = (
    *("threads=1", "precision=fp32", "checkpoint_every=2", "evaluate_every=4", "learning_rate=0.01", "steps=4"),
    *("entropy=0.1", "questions=2", "tasks_per_step=2", "group_size=4", "memories=1", "words=12", "max_tokens=4"),
    *("rank=2", "model=model"),
)


def write(path: Path, facts: Any) -> None:
    path.write_text(json.dumps(facts, indent=1) + "\n")


def listed(items: Any) -> list[dict[str, Any]]:
    return [{"id": item.id, "text": item.text, "status": str(item.status.value)} for item in items]


def pack(path: Path) -> None:
    with gzip.GzipFile(f"{path}.gz", "wb", mtime=0) as packed:
        packed.write(path.read_bytes())
    for left in path.parent.glob(f"{path.name}*"):
        if left.suffix != ".gz":
            left.unlink()


def memory_facts(memory: Any) -> dict[str, Any]:
    """What a memory says of itself through its verbs."""
    everything = memory.get_all(limit=1000)
    items = sorted(listed(everything), key=lambda each: each["id"])
    changes = {item.id: memory.history(item.id) for item in everything}
    history = {name: [[each.kind, each.after and each.after.text] for each in own] for name, own in changes.items()}
    hits = {query: memory.search(query, top_k=4) for query in QUERIES}
    search = {query: [(hit.item.id, round(float(hit.score), 9)) for hit in own] for query, own in hits.items()}
    return {"items": items, "history": history, "search": search}


def freeze_memories(folder: Path) -> None:
    from keepworth.encoders.local import HashingEncoder
    from keepworth.memory.memory import Memory
    from keepworth.memory.store.transfer import exported

    path = folder / "store.mem"
    with Memory(path, encoder=HashingEncoder(64)) as memory:
        ana = memory.add("Ana lives in Porto.", user_id="ana")
        memory.add("Ana drinks tea in the morning.", user_id="ana", metadata={"day": 3})
        moved = memory.supersede(ana.id, "Ana lives in Lisbon since May.")
        memory.add("Bob takes the train at nine.", user_id="bob", source="calendar")
        wrong = memory.add("Bob drinks coffee.", user_id="bob", source="a stranger")
        memory.update(wrong.id, "Bob drinks coffee at noon.")
        with memory.episode(task="plan the visit", user_id="ana") as episode:
            episode.search("where does Ana live", top_k=2)
            episode.remember("Visits to Lisbon go well on Sundays.")
            episode.reward(1.0)
        memory.rollback(source="a stranger")
        memory.add("Trains to Lisbon are cheap.", user_id="ana")
        memory.delete(memory.add("A note to take away.", user_id="ana").id)
        facts = {**memory_facts(memory), "moved": moved.id, "episode": episode.id}
        (folder / "store.jsonl").write_text("\n".join(exported(memory.store)) + "\n")
    pack(path)
    write(folder / "store.json", facts)


def freeze_order_of_writing(folder: Path) -> None:
    """A memory in which the order of writing counted, not that in which things were said. `order-of-writing.mem.gz` was made by
    this function with version 1 of the rules of operations, as no later version can make it."""
    from keepworth.encoders.local import HashingEncoder
    from keepworth.memory.memory import Memory
    from keepworth.records.episode import Operation, OperationKind

    path = folder / "order-of-writing.mem"
    with Memory(path, encoder=HashingEncoder(64), writer="rules") as memory:
        for text, source in (("I live in Bonn.", ""), ("I moved to Kiel.", ""), ("I moved to Ulm.", "a guest")):
            memory.add([{"role": "user", "content": text}], infer=True, user_id="ana", source=source)
        rome = memory.add("Eva lives in Rome.", user_id="eva", event_time="2024-01-01")
        oslo = memory.supersede(rome.id, "Eva lives in Oslo.", event_time="2025-01-01", source="calendar")
        paris = memory.supersede(oslo.id, "Eva lives in Paris.", event_time="2023-05-01", source="told late")
        tea = memory.add("Eva likes tea.", user_id="eva", source="one")
        assert memory.add("Eva likes tea.", user_id="eva", source="two").id == tea.id
        memory.rollback(memory.rollback(source="one").id)
        memory.update(tea.id, "Eva likes green tea.")
        dogs = [
            memory.add("Eva has a dog.", user_id="eva", event_time="2025-03-03"),
            memory.add("A dog lives with Eva.", user_id="eva", event_time="2025-02-02"),
        ]
        # The merged text says when it happened, before one of the two was said.
        merge = Operation(OperationKind.MERGE, tuple(dog.id for dog in dogs), "Eva has one dog.")
        memory.apply(merge, user_id="eva", event_time="2024-04-04", source="told late")
        delete = Operation(
            OperationKind.DELETE, (memory.add("Eva has a cat.", event_time="2025-01-01", user_id="eva").id,)
        )
        memory.apply(delete, user_id="eva", event_time="2024-01-01")
        reword = Operation(OperationKind.UPDATE, (paris.id,), "Eva lives in Paris, France.")
        memory.apply(reword, user_id="eva", event_time="2020-01-01", source="atlas")
        with memory.episode(task="plan the visit", user_id="eva") as episode:
            episode.search("where does Eva live", top_k=2)
            episode.remember("Visits go well on Sundays.")
            episode.reward(1.0)
        memory.rollback(memory.rollback(source="told late").id)
    pack(path)


def played(learning: Any, tasks: range) -> list[list[Any]]:
    """Episodes with a fixed rule (every third shop takes a card): what memory showed, and what came of it."""
    shown = []
    for number in tasks:
        kind = ("corner", "market", "station")[number % 3]
        right = {"corner": "cash", "market": "card", "station": "token"}[kind]
        with learning.episode(f"pay at the {kind} shop number {number}") as episode:
            presented = episode.search(actions=("cash", "card", "token"))
            action = ("cash", "card", "token")[(number * 7) % 3] if number < 12 else right
            episode.act(action)
            shown.append([presented.text, action])
            if number % 10 != 9:
                episode.reward(float(action == right))
    return shown


def freeze_learning(folder: Path) -> None:
    from keepworth.memory.choose.hashed_words import HashedWords
    from keepworth.memory.memory import Memory

    path, copy = folder / "learning-memrl.mem", folder / "copy.mem"
    with Memory(path, policy="memrl", encoder=HashedWords(), seed=5) as learning:
        before, pending = played(learning, range(30)), len(learning.pending())
    shutil.copy(path, copy)
    with Memory(copy, policy="memrl", encoder=HashedWords(), seed=5) as again:
        after = played(again, range(30, 40))
    for left in folder.glob("copy.mem*"):
        left.unlink()
    pack(path)
    write(folder / "learning.json", {"memrl": {"before": before, "pending": pending, "after": after}})


def stream_facts(stream_name: str, method_name: str, seed: int) -> dict[str, Any]:
    """A fingerprint of every choice: success depends on what was shown, and so do the words that the agent read."""
    from keepworth.memory.by_name import seeded
    from keepworth.memory.choose.hashed_words import HashedWords
    from keepworth.worlds.simulated import LinearAgent, TabularAgent
    from keepworth.worlds.stream import run_stream
    from keepworth.worlds.streams import open_stream

    agent = TabularAgent() if stream_name in ("t-maze", "repeat-previous") else LinearAgent()
    stream = open_stream(stream_name, seed=seed, length=TASKS)
    run = run_stream(stream, seeded(method_name, seed), agent, HashedWords(), seed=seed)
    arrays = (run.success, run.words, run.held_out, run.calls)
    text = json.dumps([np.round(np.nan_to_num(array, nan=-1.0), 7).tolist() for array in arrays])
    return {
        "success": round(float(np.nanmean(run.success)), 7),
        "held_out": round(float(np.nanmean(run.held_out)), 7) if len(run.held_out) else None,
        "items": run.items,
        "choices": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def freeze_streams(folder: Path) -> None:
    from keepworth.memory.by_name import policies_of_cases

    # A network's last digits depend on the number of threads, and then choices do: memento-p is left out.
    names = [name for name in policies_of_cases() if name != "memento-p"]
    cases = itertools.product(STREAMS, names, (0, 1))
    write(folder / "streams.json", {" ".join(map(str, case)): stream_facts(*case) for case in cases})


def update_facts(name: str) -> list[str]:
    """Some weights and their sum after two updates with an objective, as exact hexadecimal numbers."""
    import torch

    from keepworth.models.adapter import unfreeze
    from keepworth.training.learner import Learner, Optimisation
    from keepworth.training.objective.options import ObjectiveError
    from keepworth.training.objective.presets import preset
    from tests.learning.test_learner import groups_of
    from tests.models.tiny import tiny_model

    model = tiny_model(precision="fp64")
    weights = unfreeze(model)
    try:
        learner = Learner(model, weights, preset(name), Optimisation(passes=2), "speaker")
    except ObjectiveError:  # without a clip a second pass is refused
        learner = Learner(model, weights, preset(name), Optimisation(), "speaker")
    for _ in range(2):
        learner.update(groups_of(model))
    flat = torch.cat([value.detach().flatten() for value in model.network.parameters()])
    picked = [flat.sum(), *flat[:: max(1, len(flat) // 6)][:6]]
    return [float(value).hex() for value in picked]


def freeze_updates(folder: Path) -> None:
    from keepworth.base.errors import KeepworthError
    from keepworth.training.objective.presets import presets

    facts: dict[str, Any] = {}
    for name in presets():
        try:
            facts[name] = update_facts(name)
        except KeepworthError as refused:
            facts[name] = f"refused: {type(refused).__name__}"
    write(folder / "updates.json", facts)


def training(runs: str) -> list[str]:
    """To be run in the folder that holds `model`."""
    assigned = [part for setting in RUN for part in ("--set", setting)]
    return [sys.executable, "-m", "keepworth", "train", "memory_r1", "--runs", runs, "--name", "run", *assigned]


def anywhere(folder: Path) -> None:
    """Take the name of this folder out of the checkpoint: the model of the run lies beside it, wherever that is."""
    for manifest in (folder / "runs").rglob("manifest.json"):
        described = json.loads(manifest.read_text())
        for name, about in described["files"].items():
            path = manifest.parent / name
            content = path.read_bytes().replace(str((folder / "model").resolve()).encode(), b"model")
            path.write_bytes(content)
            about.update(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
        manifest.write_text(json.dumps(described, indent=2))


def freeze_run(folder: Path) -> None:
    """A run that was killed after step 2 of 4, and the rows that a run which was left alone wrote."""
    import time

    from tests.end_to_end.tiny_folder import write_tiny_checkpoint

    write_tiny_checkpoint(folder / "model")
    subprocess.run(training("whole"), cwd=folder, check=True, capture_output=True)
    running = subprocess.Popen(training("runs"), cwd=folder, stdout=subprocess.DEVNULL)
    metrics = folder / "runs" / "run" / "metrics.jsonl"
    while not (metrics.exists() and '"step":3,' in metrics.read_text()):
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    rows = [json.loads(line) for line in (folder / "whole" / "run" / "metrics.jsonl").read_text().splitlines()]
    anywhere(folder)
    kept = [{key: value for key, value in row.items() if not key.startswith(("time", "seconds"))} for row in rows]
    write(folder / "run.json", kept)
    shutil.rmtree(folder / "whole")


PARTS = {"memories": (freeze_memories, freeze_learning), "streams": (freeze_streams,)}
PARTS |= {"updates": (freeze_updates,), "run": (freeze_run,)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="takes the files, and is made where it is not there")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all where none is named")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    options.folder.mkdir(parents=True, exist_ok=True)
    for part in options.parts or PARTS:
        for make in PARTS[part]:
            make(options.folder)


if __name__ == "__main__":
    main()
