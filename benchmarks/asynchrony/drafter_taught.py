"""Must a drafter's head go on learning? While the policy is trained (TLT), and while what is served changes (Aurora).

`policy` (TLT, arXiv 2511.16665): GRPO trains the model with LoRA to answer in the words of its prompt. What is kept is measured
before, on the way and after, of three heads: static is not trained any more; followed goes on with what the policy draws;
control goes on as much, with what the first policy drew behind the same prompts.

`traffic` (Aurora, arXiv 2602.06932): requests come in batches, conversations first, then problems. Heads that learn do so after
each batch. Each batch is new to every head.

The rule, the heads and the cost of a pass are those of `benchmarks.asynchrony.drafter`; 24 held-out prompts that no head
saw, with intervals over resampled prompts. Writes drafter_taught.json on the way.

    python -m benchmarks.asynchrony.drafter_taught policy
    python -m benchmarks.asynchrony.drafter_taught traffic
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.asynchrony.drafted import CheckingStep, Decoded, Head, QuickHead, Seen, decode, first_kept, fit
from benchmarks.asynchrony.drafter import (
    CONVERSATIONS,
    PROBLEMS,
    cost_of_pass,
    new_head,
    problems,
    served,
    states,
    words_of,
)
from benchmarks.asynchrony.drafter import PATH as COSTS
from benchmarks.asynchrony.setting import HERE, ROLE, learner_of, small, write
from benchmarks.speed.setting import machine, prompts
from keepworth.episodes import Episode, Group, RewardTerm, Sample, SamplingParams, Segment, StopReason
from keepworth.episodes.model import Tokens
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.settings import GROUP_RELATIVE

PROMPT_TOKENS, HELD_OUT, TOKENS, PASSES, RESAMPLES = 128, 24, 64, 24, 2000
PROPOSALS = {1: 3, 2: 1}
"""By sequences left: so many proposals were best in drafter.json. Not chosen anew."""
BEFORE, ASKED, MEMBERS, SHOWN, RATE = 40, 2, 8, 2, 5e-4
EVERY, UPDATES_ON_THE_WAY, RATE_ON_THE_WAY, BATCHES_KEPT = 2, 12, 3e-4, 4
REQUESTS = 8
PATH = HERE / "drafter_taught.json"
Values = Sequence[float]


# -- what is kept
# ------------------------------------------------------------------------------------------------------------------


def per_prompt(done: Decoded, k: int) -> list[float]:
    """Tokens of a pass with k proposals, mean of each text's passes."""
    return [1 + statistics.fmean(min(count, k) for count in own) for own in done.right]


def interval(values: Values) -> dict[str, float]:
    """Mean over prompts, and its 95 % interval over resampled prompts."""
    own = np.array(values, dtype=np.float64)
    drawn = np.random.default_rng(0).integers(len(own), size=(RESAMPLES, len(own)))
    low, high = np.quantile(own[drawn].mean(1), (0.025, 0.975))
    return {"mean": float(own.mean()), "low": float(low), "high": float(high)}


def decoded(model: InProcessModel, heads: Mapping[str, Head], asked: Sequence[Tokens]) -> dict[str, Decoded]:
    """Behind these prompts with each head."""
    step = CheckingStep(model._causal_model(), model._packed)
    most = max(PROPOSALS.values())
    return {name: decode(model, step, asked, most, QuickHead(head), PASSES, seed=7) for name, head in heads.items()}


def by_prompt(done: Mapping[str, Decoded]) -> dict[str, dict[str, list[float]]]:
    """Tokens of a pass, of each prompt, by head and number of proposals."""
    return {name: {str(k): per_prompt(own, k) for k in PROPOSALS.values()} for name, own in done.items()}


def summary(tokens: Mapping[str, Mapping[str, Values]], other: str) -> dict[str, Any]:
    """By head and sequences left: tokens of a pass, how many times as fast that is, and both less those of the head `other`."""
    costs = json.loads(COSTS.read_text())
    found: dict[str, Any] = {}
    for name, own in tokens.items():
        for count, k in PROPOSALS.items():
            cost = cost_of_pass(costs, "1", count, k, drafted=True)
            more = [a - b for a, b in zip(own[str(k)], tokens[other][str(k)], strict=True)]
            found.setdefault(name, {})[str(count)] = {
                "tokens_per_pass": interval(own[str(k)]),
                "times_as_fast": interval([each / cost for each in own[str(k)]]),
                f"more_than_{other}": interval(more),
            }
    return found


# -- a policy that is trained meanwhile
# --------------------------------------------------------------------------------------------


def policy(model: InProcessModel, steps: int, every: int, updates: int, report: Callable[[Any], None]) -> None:
    texts = [model.encode(text) for text in prompts(model.tokenizer, HELD_OUT + BEFORE + ASKED * steps, PROMPT_TOKENS)]
    held_out, train = texts[:HELD_OUT], texts[HELD_OUT + BEFORE :]
    first, _ = served(model, texts[HELD_OUT : HELD_OUT + BEFORE], 5, TOKENS)
    of_first_policy = shown(model, train, model.sample(train, SamplingParams(TOKENS, n=SHOWN, seed=6)))
    heads = {"static": new_head(model, words := words_of(first))}
    fit(heads["static"], first, updates)
    spent = {"rollouts": 0.0, "learning": 0.0, "head": 0.0}
    rows: list[dict[str, Any]] = []
    learner = learner_of(model, GROUP_RELATIVE, RATE, lora=True)
    of_policy: list[Seen] = []

    def look(step: int) -> None:
        done = decoded(model, heads, held_out)
        texts = [tuple(text) for text in done["static"].texts]  # distributed as the policy, whatever the head
        now = states(model, texts)
        starts = [len(prompt) for prompt in held_out]
        tokens = by_prompt(done)
        rows.append(
            {
                "step": step,
                "reward": interval([copied(text[:at], text[at:]) for text, at in zip(texts, starts, strict=True)]),
                "divergence": interval(divergence(model, now, starts)),
                "first_kept": {name: interval(first_kept(head, model, now, starts)) for name, head in heads.items()},
                "tokens_of_each_prompt": tokens,
                "by_head": summary(tokens, "static"),
                "cpu_seconds": dict(spent),
            }
        )
        report({"steps": steps, "updates_before": updates, "rate": RATE, "rows": rows})

    look(0)
    for name in ("followed", "control"):
        heads[name] = new_head(model, words)
        heads[name].load_state_dict(heads["static"].state_dict())
    for number in range(steps):
        begun = time.process_time()
        asked = train[ASKED * number : ASKED * (number + 1)]
        drawn = model.sample(asked, SamplingParams(TOKENS, n=MEMBERS, seed=100 + number))
        spent["rollouts"] += time.process_time() - begun
        of_policy += shown(model, asked, drawn)
        begun = time.process_time()
        groups = [group(number, index, *each) for index, each in enumerate(zip(asked, drawn, strict=True))]
        reward = statistics.fmean(term.value for g in groups for e in g.episodes for term in e.rewards)
        learner.update(groups)
        spent["learning"] += time.process_time() - begun
        if number % EVERY == EVERY - 1:
            begun = time.process_time()
            last = slice(max(0, len(of_policy) - SHOWN * ASKED * BATCHES_KEPT), len(of_policy))
            fit(heads["followed"], of_policy[last], UPDATES_ON_THE_WAY, rate=RATE_ON_THE_WAY, seed=number)
            spent["head"] += time.process_time() - begun
            fit(heads["control"], of_first_policy[last], UPDATES_ON_THE_WAY, rate=RATE_ON_THE_WAY, seed=number)
        print(
            f"step {number + 1}: reward {reward:.3f}", {name: round(each) for name, each in spent.items()}, flush=True
        )
        if (number + 1) % every == 0 or number + 1 == steps:
            look(number + 1)


def shown(model: InProcessModel, asked: Sequence[Tokens], drawn: Sequence[Sequence[Sample]]) -> list[Seen]:
    """What a head learns from: of each prompt the first `SHOWN` answers."""
    return states(
        model, [(*prompt, *each.ids) for prompt, own in zip(asked, drawn, strict=True) for each in own[:SHOWN]]
    )


def copied(prompt: Sequence[int], answer: Sequence[int]) -> float:
    """The reward: the share of an answer's tokens that stand in its prompt."""
    there = set(prompt)
    return sum(each in there for each in answer) / max(1, len(answer))


def group(number: int, index: int, prompt: Tokens, drawn: Sequence[Sample]) -> Group:
    task = f"{number}/{index}"
    episodes = []
    for member, sample in enumerate(drawn):
        segment = Segment(ROLE, "p", prompt, sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans, "")
        episodes.append(
            Episode(
                id=f"{task}/{member}",
                task=task,
                role=ROLE,
                question="",
                segments=(segment,),
                answer="",
                expected=(),
                rewards=(RewardTerm("copied", copied(prompt, sample.ids)),),
                stop=StopReason.COMPLETED,
                memory_snapshot="",
                policy_version=sample.spans[0].version,
            )
        )
    return Group(task, "", tuple(episodes))


def divergence(model: InProcessModel, seen: Sequence[Seen], starts: Sequence[int]) -> list[float]:
    """How far the policy has gone: log-probability of its tokens less that under the first policy, mean of a text [nats]."""

    def own(texts: Sequence[Seen]) -> list[float]:
        pairs = [(each.hidden[at - 1 : -1], each.ids[at:]) for each, at in zip(texts, starts, strict=True)]
        logs = [torch.log_softmax(model.head(hidden).float(), -1).gather(1, ids[:, None]) for hidden, ids in pairs]
        return [float(each.mean()) for each in logs]

    with torch.inference_mode():
        now = own(seen)
        with model.without_adapter():
            first = own(states(model, [tuple(each.ids.tolist()) for each in seen]))
    return [a - b for a, b in zip(now, first, strict=True)]


# -- served traffic that changes
# ---------------------------------------------------------------------------------------------------


def traffic(model: InProcessModel, batches: int, updates: int, report: Callable[[Any], None]) -> None:
    """from nothing: knows nothing at the first batch, learns after each, from the last four. accepted alone: the same, but what
    is refused teaches nothing. static: trained before on conversations that people wrote, in as many updates as the others make
    in all. frozen: from nothing until the traffic changes, then no more."""
    half = batches // 2
    wanted = HELD_OUT + half * REQUESTS
    texts = [model.encode(text) for text in prompts(model.tokenizer, wanted + 64, PROMPT_TOKENS)]
    asked = {CONVERSATIONS: texts[:wanted], PROBLEMS: problems(model, wanted)}
    people = states(model, texts[wanted:])
    words = words_of(people)
    heads = {name: new_head(model, words) for name in ("static", "from nothing", "accepted alone")}
    fit(heads["static"], people, updates * batches)
    learning = ("from nothing", "accepted alone")
    recent: list[list[Seen]] = []
    rows: list[dict[str, Any]] = []
    held_out: dict[str, Any] = {}
    spent = {"serving": 0.0, "head": 0.0}

    def look(when: str, kind: str, other: str) -> None:
        tokens = by_prompt(decoded(model, heads, asked[kind][:HELD_OUT]))
        held_out[when] = {"kind": kind, "tokens_of_each_prompt": tokens, "by_head": summary(tokens, other)}
        tell()

    def tell() -> None:
        about = {"batches": batches, "requests": REQUESTS, "updates_per_batch": updates, "words": len(words)}
        report(about | {"rows": rows, "held_out": held_out, "cpu_seconds": dict(spent)})

    for number in range(batches):
        kind = CONVERSATIONS if number < half else PROBLEMS
        if number == half:
            look("before the change", CONVERSATIONS, "static")
            heads["frozen"] = new_head(model, words)
            heads["frozen"].load_state_dict(heads["from nothing"].state_dict())
        begun = time.process_time()
        at = HELD_OUT + number % half * REQUESTS
        seen, starts = served(model, asked[kind][at : at + REQUESTS], 100 + number, TOKENS)
        spent["serving"] += time.process_time() - begun
        kept = {name: interval(first_kept(head, model, seen, starts)) for name, head in heads.items()}
        rows.append({"batch": number + 1, "kind": kind, "first_kept": kept})
        print(number + 1, kind, {name: round(each["mean"], 3) for name, each in kept.items()}, flush=True)
        tell()
        recent = [*recent, seen][-BATCHES_KEPT:]
        flat = [each for own in recent for each in own]
        for name in learning:
            begun = time.process_time()
            fit(heads[name], flat, updates, seed=number, accepted_alone=name == "accepted alone")
            spent["head"] += (time.process_time() - begun) * (name == "from nothing")
    look("at the end", PROBLEMS, "frozen")


def main(arguments: Sequence[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("policy", "traffic"))
    asked.add_argument("--updates", type=int, help="of a head: 300 before policy, 24 a batch in traffic")
    asked.add_argument("--steps", type=int, default=20, help="of the policy")
    asked.add_argument("--every", type=int, default=10, help="steps of the policy between two measurements")
    asked.add_argument("--batches", type=int, default=6, help="of traffic")
    options = asked.parse_args(arguments)
    torch.set_num_threads(1)
    about = machine(1)
    begun = time.process_time()

    def report(result: dict[str, Any]) -> None:
        spent = {"cpu_seconds": time.process_time() - begun, "load_average_at_end": os.getloadavg()[0]}
        found: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
        found |= {
            "model": "smollm2-135m-instruct",
            "prompt_tokens": PROMPT_TOKENS,
            "held_out": HELD_OUT,
            "passes": PASSES,
        }
        found |= {"tokens": TOKENS, "proposals": PROPOSALS, options.what: result | {"machine": about | spent}}
        write(PATH.name, found)

    if options.what == "policy":
        policy(small(), options.steps, options.every, options.updates or 300, report)
    else:
        traffic(small(), options.batches, options.updates or 24, report)


if __name__ == "__main__":
    main()
