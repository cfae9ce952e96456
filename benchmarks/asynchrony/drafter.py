"""Would an n-gram drafter pay? How often it is right, what checking its guesses costs, and what follows for a thin tail.

A drafter looks for the last n tokens earlier in the prompt or the answer and proposes what followed them there; the model
checks all proposals in one pass, which draws from exactly its own distribution. It can only pay where few sequences are left:
a full batch has no free multipliers. Two things decide, and both are measured:

* tokens per pass: answers are drawn at temperature 1 and the drafter is run over them afterwards. A proposal is kept exactly
  where the token that was drawn is the one that was proposed, so that this is what drafting would have given;
* the cost of a pass over 1 + k tokens a sequence beside one over 1, for one and for four sequences.

Prompts: excerpts of real conversations to continue, and questions with the memories that answer them, to be answered from
(where copying from the prompt is most likely). Writes drafter.json.

    python -m benchmarks.asynchrony.drafter tokens     # any time
    python -m benchmarks.asynchrony.drafter seconds    # on a quiet machine
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.asynchrony.setting import HERE, small, write
from benchmarks.speed.setting import machine, prompts
from keepworth.episodes import SamplingParams
from keepworth.episodes.model import Tokens
from keepworth.models.caches import buffer_cache
from keepworth.models.inprocess import InProcessModel

NGRAMS, LENGTHS = (1, 2, 3), (1, 2, 4, 8)
PROMPTS, SAMPLES, TOKENS, PROMPT_TOKENS = 12, 4, 64, 400
SEQUENCES = (1, 4)
PATH = HERE / "drafter.json"


def proposed(before: Tokens, n: int, k: int) -> Tokens:
    """What followed the last n tokens where they last stood before; nothing where they never did."""
    tail = before[-n:]
    for start in range(len(before) - n - 1, -1, -1):
        if before[start : start + n] == tail:
            return before[start + n : start + n + k]
    return ()


def passes(prompt: Tokens, answer: Tokens, n: int, k: int) -> int:
    """Passes over the model that the answer would have taken: each keeps the right proposals and draws one token more."""
    done = count = 0
    while done < len(answer):
        guess = proposed((*prompt, *answer[:done]), n, k)
        right = 0
        while right < len(guess) and done + right < len(answer) and guess[right] == answer[done + right]:
            right += 1
        done += right + 1
        count += 1
    return count


def answering(model: InProcessModel) -> list[Tokens]:
    """Questions behind the memories that answer them."""
    from keepworth.tasks.longmemeval import longmemeval

    found = []
    for task in longmemeval("train"):
        evidence = "\n".join(f"{turn.speaker}: {turn.text}" for session in task.sessions[:1] for turn in session.turns)
        head = model.encode(f"{evidence}\n")[: PROMPT_TOKENS - 40]
        found.append(
            (*head, *model.encode_continuation(f"\nQuestion: {task.input}\nAnswer, in the words above:")[-40:])
        )
        if len(found) == PROMPTS:
            break
    return found


def tokens(model: InProcessModel) -> dict[str, Any]:
    kinds = {
        "continuing conversations": [model.encode(text) for text in prompts(model.tokenizer, PROMPTS, PROMPT_TOKENS)],
        "answering from memories": answering(model),
    }
    found: dict[str, Any] = {}
    for kind, own in kinds.items():
        drawn = model.sample(own, SamplingParams(TOKENS, n=SAMPLES, seed=3))
        answers = [(prompt, sample.ids) for prompt, samples in zip(own, drawn, strict=True) for sample in samples]
        total = sum(len(ids) for _, ids in answers)
        found[kind] = {
            "answers": len(answers),
            "tokens": total,
            "tokens_per_pass": {
                f"{n}/{k}": total / sum(passes(prompt, ids, n, k) for prompt, ids in answers)
                for n in NGRAMS
                for k in LENGTHS
            },
        }
    return found


@torch.inference_mode()
def seconds(model: InProcessModel, rounds: int = 15) -> dict[str, float]:
    """Of one pass over 1 + k tokens behind a prompt that was read, head included, by `sequences/k`."""
    found: dict[str, float] = {}
    for count in SEQUENCES:
        for k in (0, *LENGTHS):
            width, length = k + 1, PROMPT_TOKENS
            cache = buffer_cache(model.network.config.num_hidden_layers, length + width)
            ids = torch.randint(0, 1000, (count, length))
            model.hidden_states(ids, torch.arange(length).expand(count, -1), None, cache)
            step = torch.randint(0, 1000, (count, width))
            positions = torch.arange(length, length + width).expand(count, -1)
            own = torch.arange(width)[None, :] <= torch.arange(width)[:, None]
            mask = torch.cat([torch.ones(width, length, dtype=torch.bool), own], 1).expand(count, 1, -1, -1)
            taken = []
            for _ in range(rounds):
                for layer in cache.layers:
                    layer.filled = length
                begun = time.perf_counter()
                model.head(model.hidden_states(step, positions, mask, cache))
                taken.append(time.perf_counter() - begun)
            found[f"{count}/{k}"] = statistics.median(taken[2:])
    return found


def gains(found: dict[str, Any]) -> dict[str, Any]:
    """Tokens per pass over the cost of a pass, for each kind, number of sequences, n and k: above 1, drafting pays."""
    cost = found["seconds_per_pass"]
    return {
        f"{kind}, {count} left": {
            each: value / (cost[f"{count}/{each.split('/')[1]}"] / cost[f"{count}/0"])
            for each, value in own["tokens_per_pass"].items()
        }
        for kind, own in found["kinds"].items()
        for count in SEQUENCES
    }


def main(arguments: Sequence[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("tokens", "seconds"))
    options = asked.parse_args(arguments)
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
    about = machine(1)
    model = small()
    found |= {"model": "smollm2-135m-instruct", "prompt_tokens": PROMPT_TOKENS, "temperature": 1.0}
    if options.what == "tokens":
        found |= {"machine_of_tokens": about, "kinds": tokens(model)}
    else:
        found |= {"machine": about, "seconds_per_pass": seconds(model)}
    if {"kinds", "seconds_per_pass"} <= found.keys():
        found["gain"] = gains(found)
        for kind, own in found["gain"].items():
            best = max(own, key=lambda each: own[each])
            print(f"{kind:40} best n/k {best}: {own[best]:.2f}x")
    write("drafter.json", found)


if __name__ == "__main__":
    main()
