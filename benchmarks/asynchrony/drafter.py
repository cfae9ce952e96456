"""Would a drafter pay? How often it is right, what checking its proposals costs, and what follows for few sequences.

A drafter proposes tokens; the model checks all of them in one pass and keeps them by a rule that leaves its distribution as it is
(`benchmarks.asynchrony.drafted`). The speed-up is the tokens of a pass over what a pass with drafting costs. Both are measured
with the model, at temperature 1:

* n-gram: what followed the last tokens where they last stood in the text;
* head: one layer, from the last hidden state and the last token to the next hidden state, proposing among the most frequent
  tokens. Trained on hidden states that decoding computes anyway: of people's texts alone (static), or of what was served.

Prompts: excerpts of real conversations to continue, questions behind the memories that answer them, and problems of GSM8K.
Held-out prompts of a kind are never trained on; those that are answered from memories quote conversations that may be among the
texts of another kind. Writes drafter.json.

    python -m benchmarks.asynchrony.drafter heads                   # trains, and measures what is kept
    python -m benchmarks.asynchrony.drafter seconds --threads 1     # on a quiet machine
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.asynchrony.drafted import (
    CheckingStep,
    Decoded,
    Drafts,
    Head,
    NGram,
    QuickHead,
    Seen,
    decode,
    fit,
    read,
    settled,
)
from benchmarks.asynchrony.setting import HERE, small, write
from benchmarks.speed.setting import machine, prompts
from keepworth.episodes import SamplingParams
from keepworth.episodes.model import Tokens
from keepworth.models.caches import GroupCache, buffer_cache
from keepworth.models.inprocess import InProcessModel, draw

CONVERSATIONS, MEMORIES, PROBLEMS = "continuing conversations", "answering from memories", "solving problems"
TRAIN, HELD_OUT, TOKENS, PROMPT_TOKENS, MOST = 84, 12, 96, 400, 4
WORDS = 4096
SEQUENCES = (1, 2, 4)
PATH = HERE / "drafter.json"


# -- texts
# ------------------------------------------------------------------------------------------------------------------------


def conversations(model: InProcessModel, count: int) -> list[Tokens]:
    return [model.encode(text) for text in prompts(model.tokenizer, count, PROMPT_TOKENS)]


def memories(model: InProcessModel, count: int) -> list[Tokens]:
    """Questions behind the memories that answer them."""
    from keepworth.tasks.longmemeval import longmemeval

    found = []
    for task in longmemeval("train")[:count]:
        evidence = "\n".join(f"{turn.speaker}: {turn.text}" for session in task.sessions[:1] for turn in session.turns)
        head = model.encode(f"{evidence}\n")[: PROMPT_TOKENS - 40]
        tail = model.encode_continuation(f"\nQuestion: {task.input}\nAnswer, in the words above:")[-40:]
        found.append((*head, *tail))
    return found


def problems(model: InProcessModel, count: int) -> list[Tokens]:
    """Of GSM8K, as a person asks them."""
    from keepworth.tasks.arithmetic import arithmetic

    asked = [[{"role": "user", "content": task.input}] for task in arithmetic("gsm8k", "train")[:count]]
    return [model.encode_continuation(model.chat.rendered(each)) for each in asked]  # type: ignore[arg-type]


KINDS: dict[str, Callable[[InProcessModel, int], list[Tokens]]] = {
    CONVERSATIONS: conversations,
    MEMORIES: memories,
    PROBLEMS: problems,
}


def sides(model: InProcessModel, kind: str) -> tuple[list[Tokens], list[Tokens]]:
    """Prompts to learn from, and held-out ones."""
    found = KINDS[kind](model, TRAIN + HELD_OUT)
    if len(found) < TRAIN + HELD_OUT:
        raise SystemExit(f"{kind} has {len(found)} prompts, fewer than {TRAIN + HELD_OUT}")
    return found[HELD_OUT:], found[:HELD_OUT]


@torch.inference_mode()
def states(model: InProcessModel, texts: Sequence[Tokens]) -> list[Seen]:
    """What decoding them computes: the hidden state of each token."""
    found = []
    for first in range(0, len(texts), 4):
        some = texts[first : first + 4]
        width = max(map(len, some))
        ids = torch.zeros(len(some), width, dtype=torch.long)
        for row, text in enumerate(some):
            ids[row, : len(text)] = torch.tensor(text)
        hidden = model.hidden_states(ids, torch.arange(width).expand(len(some), -1), None, None)
        found += [Seen(torch.tensor(text), hidden[row, : len(text)].clone()) for row, text in enumerate(some)]
    return [Seen(each.ids, each.hidden.clone()) for each in found]


def served(
    model: InProcessModel, asked: Sequence[Tokens], seed: int, tokens: int = TOKENS
) -> tuple[list[Seen], list[int]]:
    """Answers at temperature 1 behind the prompts, and where each begins."""
    drawn = model.sample(asked, SamplingParams(tokens, seed=seed))
    seen = states(model, [(*prompt, *own[0].ids) for prompt, own in zip(asked, drawn, strict=True)])
    return seen, [len(prompt) for prompt in asked]


# -- heads
# ------------------------------------------------------------------------------------------------------------------------


def words_of(seen: Sequence[Seen]) -> torch.Tensor:
    """The most frequent tokens."""
    counts = torch.bincount(torch.cat([each.ids for each in seen]))
    return counts.topk(min(WORDS, len(counts))).indices.sort().values


def new_head(model: InProcessModel, words: torch.Tensor, seed: int = 0) -> Head:
    torch.manual_seed(seed)
    causal = model._causal_model()
    return Head(
        words, causal.get_output_embeddings().weight.detach(), causal.get_input_embeddings().weight.detach()
    )  # as they are, not learned


def people(model: InProcessModel, count: int) -> list[Seen]:
    """Conversations as people and an assistant wrote them, none of which is a prompt."""
    texts = prompts(model.tokenizer, TRAIN + HELD_OUT + count, PROMPT_TOKENS)[TRAIN + HELD_OUT :]
    return states(model, [model.encode(text) for text in texts])


def heads(model: InProcessModel, updates: int) -> dict[str, Any]:
    both = {kind: sides(model, kind) for kind in KINDS}
    learned = {kind: served(model, train, 5) for kind, (train, _) in both.items()}
    everything = [each for seen, _ in learned.values() for each in seen]
    texts = people(model, TRAIN + HELD_OUT + 40)
    words = words_of(texts + everything)
    trained: dict[str, Drafts] = {"n-gram": NGram()}
    losses, seconds = {}, {}
    for name, taught in (("static head", texts), ("served head", everything)):
        head, begun = new_head(model, words), time.process_time()
        losses[name] = fit(head, taught, updates)
        seconds[name] = time.process_time() - begun
        trained[name] = QuickHead(head)
        print(f"{name}: loss {losses[name]:.3f}, {seconds[name]:.0f} s", flush=True)
    step = CheckingStep(model._causal_model(), model._packed)
    found: dict[str, Any] = {}
    for kind, (_, held_out) in both.items():
        drawn = torch.cat([each.ids[start:] for each, start in zip(*learned[kind], strict=True)])
        found[kind] = {"covered": float(torch.isin(drawn, words).float().mean()), "drafters": {}}
        for name, drafts in trained.items():
            done = decode(model, step, held_out, MOST, drafts, TOKENS // 2, seed=7)
            own = found[kind]["drafters"][name] = _positions(done)
            print(kind, name, [round(each, 2) for each in own["tokens_per_pass"]], flush=True)
    return {
        "kinds": found,
        "training": {
            "tokens": {
                "static head": sum(len(e.ids) for e in texts),
                "served head": sum(len(e.ids) for e in everything),
            },
            "updates": updates,
            "loss": losses,
            "cpu_seconds": seconds,
            "words": len(words),
            "parameters": sum(each.numel() for each in head.parameters()),
        },
    }


def tokens_per_pass(shares: Sequence[float]) -> float:
    """shares: of the proposals that are checked at each position, those that are kept. A pass draws one token more than it
    keeps."""
    total = reached = 1.0
    for share in shares:
        reached *= share
        total += reached
    return total


# -- what a pass costs
# ------------------------------------------------------------------------------------------------------------


def seconds(model: InProcessModel, rounds: int) -> dict[str, Any]:
    """A pass behind prompts of PROMPT_TOKENS, head and draws included, seconds of the wall and of processors, in turns.

    present: the decoding step of sampling and its draw. checked/k: 1 + k tokens and the rule. drafted/k: the k proposals
    before."""
    quick = QuickHead(new_head(model, torch.arange(WORDS)))  # what it costs does not depend on what it has learned
    with torch.inference_mode():
        spent = _in_turns(model, quick, rounds)
    return {
        name: {
            "wall": statistics.median(wall for wall, _ in own[2:]),
            "lowest": min(wall for wall, _ in own[2:]),
            "cpu": statistics.median(cpu for _, cpu in own[2:]),
            "lowest_cpu": min(cpu for _, cpu in own[2:]),
        }
        for name, own in spent.items()
    }


def _in_turns(model: InProcessModel, quick: QuickHead, rounds: int) -> dict[str, list[tuple[float, float]]]:
    step = CheckingStep(model._causal_model(), model._packed)
    asked = conversations(model, max(SEQUENCES))
    arms: dict[str, Callable[[], object]] = {}
    for count in SEQUENCES:
        rows = asked[:count]
        arms[f"{count}/present"] = _present(model, rows)
        for k in range(MOST + 1):
            arms[f"{count}/checked/{k}"] = _checked(model, step, rows, k, quick)
            if k:
                arms[f"{count}/drafted/{k}"] = _drafted(model, rows, k, quick)
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, call in arms.items():
            begun, cpu = time.perf_counter(), time.process_time()
            call()
            spent[name].append((time.perf_counter() - begun, time.process_time() - cpu))
    return spent


def _present(model: InProcessModel, rows: Sequence[Tokens]) -> Callable[[], object]:
    count, length = len(rows), len(rows[0])
    cache = buffer_cache(model.network.config.num_hidden_layers, length)
    model.hidden_states(torch.tensor(rows), torch.arange(length).expand(count, -1), None, cache)
    kept = GroupCache(cache, torch.full((count,), length), torch.arange(count), TOKENS)
    tokens, positions = torch.ones(count, 1, dtype=torch.long), torch.full((count, 1), length)
    params, uniform = SamplingParams(TOKENS), torch.rand(count, dtype=torch.float64)

    def call() -> object:
        hidden = model.hidden_states(tokens, positions, None, kept)[:, 0]
        for layer in kept.layers.layers:
            layer.filled = 0
        return draw(model.head(hidden) if kept.step is None else kept.step.head(hidden), params, uniform)

    return call


def _checked(
    model: InProcessModel, step: CheckingStep, rows: Sequence[Tokens], k: int, quick: QuickHead
) -> Callable[[], object]:
    hidden, kept = read(model, list(rows))
    lengths = kept.lengths.clone()
    generator = torch.Generator().manual_seed(0)
    proposals = quick(hidden[:, -1], rows, k, generator)
    tokens = torch.tensor([[row[-1], *own.tokens] for row, own in zip(rows, proposals, strict=True)])
    params, uniform = SamplingParams(TOKENS), torch.rand(len(rows), dtype=torch.float64)

    def call() -> object:
        kept.lengths = lengths
        logits = step.head(step.check(tokens, kept).flatten(0, 1))
        if not k:
            return draw(logits, params, uniform)
        p = torch.softmax(logits.float(), -1).view(*tokens.shape, -1)
        return [settled(p[row], own, [0.5] * (k + 1)) for row, own in enumerate(proposals)]

    return call


def _drafted(model: InProcessModel, rows: Sequence[Tokens], k: int, quick: QuickHead) -> Callable[[], object]:
    hidden: torch.Tensor = read(model, list(rows))[0][:, -1].clone()
    generator = torch.Generator().manual_seed(0)
    return lambda: quick(hidden, rows, k, generator)


def cost_of_pass(found: dict[str, Any], threads: str, count: int, k: int, *, drafted: bool) -> float:
    """Of a pass that checks k proposals for each of `count` sequences, and makes them where `drafted`, beside one token each.

    One token costs what the fastest pass does, of either step and over any number of tokens, so that drafting gets no credit for
    another step nor for noise. Processor seconds on one thread, wall seconds on more."""
    unit = "lowest_cpu" if threads == "1" else "lowest"
    cost = {name: each[unit] for name, each in found["seconds"][threads]["passes"].items()}
    one = min(each for arm, each in cost.items() if arm.startswith(f"{count}/") and "drafted" not in arm)
    return (cost[f"{count}/checked/{k}"] + (cost[f"{count}/drafted/{k}"] if drafted else 0.0)) / one


def gains(found: dict[str, Any]) -> dict[str, Any]:
    """Tokens of a pass over its cost, by threads, kind and drafter, sequences, and proposals. n-grams cost nothing here."""
    result: dict[str, Any] = {}
    for threads in found["seconds"]:
        for kind, own in found["kinds"].items():
            for name, drafter in own["drafters"].items():
                for count in SEQUENCES:
                    result.setdefault(threads, {}).setdefault(kind, {}).setdefault(name, {})[str(count)] = [
                        drafter["tokens_per_pass"][k] / cost_of_pass(found, threads, count, k, drafted=name != "n-gram")
                        for k in range(1, MOST + 1)
                    ]
    return result


def _positions(done: Decoded) -> dict[str, Any]:
    shares = [kept / max(1, tried) for tried, kept in done.kept]
    return {
        "checked_and_kept": done.kept,
        "kept_at_position": shares,
        "tokens_per_pass": [tokens_per_pass(shares[:k]) for k in range(MOST + 1)],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("heads", "seconds"))
    asked.add_argument("--threads", type=int, default=1)
    asked.add_argument("--rounds", type=int, default=12, help="of seconds")
    asked.add_argument("--updates", type=int, default=600, help="of a head")
    options = asked.parse_args(arguments)
    torch.set_num_threads(options.threads)
    about = machine(options.threads)
    model = small()
    result: dict[str, Any] = {}
    if options.what == "heads":
        result = heads(model, options.updates)
    else:
        result = {"passes": seconds(model, options.rounds)}
    result["machine"] = about | {"load_average_at_end": os.getloadavg()[0]}
    found: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
    found |= {"model": "smollm2-135m-instruct", "prompt_tokens": PROMPT_TOKENS, "temperature": 1.0, "most": MOST}
    if options.what == "heads":
        found |= result
        found["machine_of_heads"] = found.pop("machine")
    else:
        found.setdefault("seconds", {})[str(options.threads)] = result
    if {"kinds", "seconds"} <= found.keys():
        found["gain"] = gains(found)
        for threads, kinds in found["gain"].items():
            for kind, own in kinds.items():
                for name, counts in own.items():
                    print(threads, kind, name, {count: [round(each, 2) for each in by] for count, by in counts.items()})
    write("drafter.json", found)


if __name__ == "__main__":
    main()
