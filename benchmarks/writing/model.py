"""The language model as the writer of a bounded bank: it says of each fact, in one digit, how much it matters.

    python -m benchmarks.writing.model [--world "4 of 16"] [--credit episode] [--seeds 0] [--permuted] [--runs runs/writing]

SmolLM2-135M reads `Fact: ... Worth keeping, 0 to 9:` and draws a digit; what matters least goes first. It begins by
imitating the rule `most specific`, its warm start, which sees no answer. Then it learns from rewards, in one of two ways:

* episode: group-relative reinforcement. Eight banks of a stream; the reward of each is the token F1 of the frozen
  reader's answer, minus the mean of the eight. While it learns, an answer is replayed as in `benchmarks.writing.credit`.
* worth: from the log of evenly drawn banks alone. Ridge regression on the model's own states of a fact, their mean at layer
  `LOW`, says what a fact adds to the reward of a bank; the model learns to say this worth as its digit. No reader is
  asked, and no mark of the evidence is used. What the regression alone keeps, a head of 577 numbers on the model's states, is
  kept beside.

The layers below `LOW` are as published; what they compute is the same at every step, so it is computed once and kept, and
low-rank adapters learn in the layers above. What its banks are worth is read by the real reader, question by question, in
folds (`benchmarks.writing.writers`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.episodes.needs import needs_train

import numpy as np
import torch

from benchmarks.writing.arms import rules, stays
from benchmarks.writing.credit import Replay, Shuffled
from benchmarks.writing.readers import MODEL, loaded
from benchmarks.writing.setting import FOLDS, WORLDS, Reads, Setting, kept_file, setting
from benchmarks.writing.writers import worth_of
from keepworth.evaluation.power import detectable
from keepworth.learning.run_folder import versions
from keepworth.models.adapter import attach_lora

LOW = 24
"""Layers that stay as they were published, of 30."""
PROMPT = "Fact: {}\nWorth keeping, 0 to 9:"
DIGITS = 10
WARM_STEPS, WARM_FACTS, WARM_RATE = 80, 48, 1e-3
SAID_STEPS = 80
"""In which the model learns to say what a fact is worth."""
RIDGES = (30.0, 100.0, 300.0, 1000.0, 3000.0)
STEPS, FACTS, MEMBERS, RATE = 36, 256, 8, 3e-4
"""Of reinforcement. FACTS: of all streams of a step, so that a step costs the same in every world; 4,608 readings at 4 of 16."""
AT_ONCE = 64
"""Facts in one pass."""


class UpperLayers:
    """The upper layers of the model over kept activations of the lower ones, with adapters of their own."""

    def __init__(self, texts: Sequence[str], runs: Path, seed: int, rate: float) -> None:
        model = loaded()
        self.rate = rate
        self.ids = [model.encode(PROMPT.format(text)) for text in texts]
        named = attach_lora(model, 16, 32, seed)
        network: Any = model.network
        base = network.get_base_model()
        self.low = self._kept(base, runs)
        self.layers, self.norm, self.rotary = base.model.layers[LOW:], base.model.norm, base.model.rotary_emb
        (digits,) = {tuple(model.encode_continuation(str(digit))[0] for digit in range(DIGITS))}
        self.digits = base.lm_head.weight[list(digits)].detach().float()
        self.parameters = [value for name, value in named.items() if int(name.split("layers.")[1].split(".")[0]) >= LOW]
        self.master = [torch.nn.Parameter(each.detach().float().clone()) for each in self.parameters]
        self.optimiser = torch.optim.AdamW(self.master, lr=rate, betas=(0.9, 0.99), weight_decay=0.0)

    def _kept(self, base: Any, runs: Path) -> list[torch.Tensor]:
        """What layer `LOW` is given for each text, [tokens, width]. The adapters below it are at zero and stay there."""
        file = runs / f"below-{LOW}-{len(self.ids)}.pt"
        if file.exists():
            found: list[torch.Tensor] = torch.load(file)
            return found
        low: list[torch.Tensor] = [torch.empty(0)] * len(self.ids)
        order = sorted(range(len(self.ids)), key=lambda number: len(self.ids[number]))
        for start in range(0, len(order), AT_ONCE // 2):
            part = order[start : start + AT_ONCE // 2]
            ids, mask, _ = padded([self.ids[number] for number in part])
            with torch.no_grad():
                states = base.model(ids, attention_mask=mask.long(), output_hidden_states=True, use_cache=False)
            for row, number in enumerate(part):
                low[number] = states.hidden_states[LOW][row, : len(self.ids[number])].clone()
        runs.mkdir(parents=True, exist_ok=True)
        torch.save(low, file)
        return low

    def log_probabilities(self, numbers: Sequence[int]) -> torch.Tensor:
        """[n, 10]: of the digits behind the prompts of some texts, among digits."""
        _, mask, ends = padded([self.ids[number] for number in numbers])
        states = torch.zeros(*mask.shape, self.low[0].shape[1], dtype=self.low[0].dtype)
        for row, number in enumerate(numbers):
            states[row, : len(self.ids[number])] = self.low[number]
        places = torch.arange(mask.shape[1])[None].expand(mask.shape)
        seen = torch.tril(torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool)) & mask[:, None, None, :]
        seen |= torch.eye(mask.shape[1], dtype=torch.bool)
        turned = self.rotary(states, places)
        for layer in self.layers:
            given = layer(states, attention_mask=seen, position_ids=places, position_embeddings=turned)
            states = given[0] if isinstance(given, tuple) else given
        last = self.norm(states[torch.arange(len(numbers)), ends]).float()
        return torch.log_softmax(last @ self.digits.T, dim=-1)

    @torch.no_grad()
    def importance(self, numbers: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """[n]: the mean of the digits that it would draw."""
        order, found = sorted(numbers, key=lambda number: len(self.ids[number])), dict[int, float]()
        for start in range(0, len(order), AT_ONCE):
            part = order[start : start + AT_ONCE]
            means = self.log_probabilities(part).exp() @ torch.arange(float(DIGITS))
            found |= dict(zip(part, means.tolist(), strict=True))
        return np.array([found[number] for number in numbers])

    def step(self, scale: float) -> None:
        """One optimiser step on the gradients at hand, of norm 1 at most."""
        gradients = [
            torch.zeros_like(m) if p.grad is None else p.grad.float()
            for p, m in zip(self.parameters, self.master, strict=True)
        ]
        norm = math.sqrt(sum(float(each.square().sum()) for each in gradients))
        for master, gradient in zip(self.master, gradients, strict=True):
            master.grad = gradient * min(1.0, 1.0 / max(norm, 1e-9))
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate * scale
        self.optimiser.step()
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.master, strict=True):
                parameter.copy_(master)
                parameter.grad = None

    def state(self) -> list[torch.Tensor]:
        return [each.detach().clone() for each in self.master]

    def restart(self, state: Sequence[torch.Tensor], rate: float) -> None:
        """The adapters as they were, with fresh moments."""
        with torch.no_grad():
            for parameter, master, value in zip(self.parameters, self.master, state, strict=True):
                master.copy_(value)
                parameter.copy_(value)
        self.rate = rate
        self.optimiser = torch.optim.AdamW(self.master, lr=rate, betas=(0.9, 0.99), weight_decay=0.0)


def padded(prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids and mask [n, longest], and the place of the last id of each."""
    longest = max(map(len, prompts))
    ids, mask = (
        torch.zeros(len(prompts), longest, dtype=torch.long),
        torch.zeros(len(prompts), longest, dtype=torch.bool),
    )
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
        mask[row, : len(prompt)] = True
    return ids, mask, torch.tensor([len(prompt) - 1 for prompt in prompts])


def rule_digits(world: Setting) -> np.ndarray[Any, np.dtype[np.intp]]:
    """[texts]: the digit of each text by the rule `most specific`, a tenth of the texts each."""
    rule = rules(world)["most specific"]
    value = np.zeros(len(world.texts))
    for number, rows in enumerate(world.rows):
        value[rows] = rule(number)
    return tenths(value, range(len(value)))


def imitate(
    upper: UpperLayers, digits: np.ndarray[Any, np.dtype[np.intp]], among: Sequence[int], steps: int, seed: int
) -> None:
    """Learn to say these digits [texts] of the texts `among`."""
    draw, begun = np.random.default_rng(seed), time.monotonic()
    for step in range(steps):
        numbers = [int(each) for each in draw.choice(among, size=WARM_FACTS, replace=False)]
        wanted = torch.tensor(digits[numbers])
        loss = -upper.log_probabilities(numbers)[torch.arange(len(numbers)), wanted].mean()
        loss.backward()  # type: ignore[no-untyped-call]
        upper.step(min(1.0, (step + 1) / 5) * (1.0 - step / steps))
        if (step + 1) % 20 == 0:
            print(f"  imitates {step + 1}: loss {loss.item():.2f}, {time.monotonic() - begun:.0f} s", flush=True)


def state_features(upper: UpperLayers) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[texts, 577]: the mean state of each prompt at layer `LOW` but for its first token, of mean 0 and length near 3; a 1."""
    means = np.stack([each[1:].float().mean(0).numpy() for each in upper.low]).astype(np.float64)
    spread = (means - means.mean(0)) / (means.std(0) + 1e-6)
    return np.hstack([spread * 3.0 / math.sqrt(means.shape[1]), np.ones((len(means), 1))])


def worth_of_texts(
    features: np.ndarray[Any, np.dtype[np.float64]],
    world: Setting,
    reads: Reads,
    learn: Sequence[int],
    seed: int | None,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[texts]: what each adds to the reward of a bank, as the banks of `learn` say. The ridge is chosen by how well the rewards
    of one of their folds are foretold from the others. seed: with rewards permuted."""
    mine = replace(world, vectors=features)
    held = min(set(world.folds[list(learn)].tolist()))
    return np.asarray(features @ worth_of(mine, reads, learn, held, seed, RIDGES))


def tenths(value: np.ndarray[Any, np.dtype[np.float64]], among: Sequence[int]) -> np.ndarray[Any, np.dtype[np.intp]]:
    """[texts]: of the texts `among` the digit, a tenth of them each; 0 elsewhere."""
    digits = np.zeros(len(value), dtype=np.intp)
    order = np.argsort(np.argsort(value[list(among)], kind="stable"), kind="stable")
    digits[list(among)] = order * DIGITS // len(order)
    return digits


def reinforce(
    upper: UpperLayers, world: Setting, reader: Replay, learn: Sequence[int], seed: int, runs: int = 1
) -> list[float]:
    """Group-relative policy gradient on the digits; the mean reward of each step. runs: how many such runs are to come, for
    what is said of the time."""
    draw, rewards_of, streams = np.random.default_rng((seed, 7)), [], FACTS // world.length
    begun = time.monotonic()
    for step in range(STEPS):
        chosen = [int(number) for number in draw.choice(learn, size=streams, replace=False)]
        earned: list[float] = []
        for start in range(0, streams, AT_ONCE // world.length or 1):
            part = chosen[start : start + (AT_ONCE // world.length or 1)]
            lp = upper.log_probabilities([int(row) for number in part for row in world.rows[number]])
            lp = lp.reshape(len(part), world.length, DIGITS)
            noise = torch.tensor(draw.gumbel(size=(MEMBERS, *lp.shape)), dtype=lp.dtype)
            digits = (lp.detach() + noise).argmax(-1)  # [members, streams, facts]
            rewards = torch.zeros(MEMBERS, len(part))
            for place, number in enumerate(part):
                for member in range(MEMBERS):
                    said = digits[member, place].numpy().astype(np.float64)
                    (stay,) = stays(world, lambda _, said=said: said, [number]).values()  # type: ignore[misc]
                    rewards[member, place] = reader(number, stay)
            advantage = (rewards - rewards.mean(0)) * MEMBERS / (MEMBERS - 1)
            said_lp = lp[None].expand(MEMBERS, *lp.shape).gather(-1, digits[..., None])[..., 0]
            loss = -(advantage[..., None] * said_lp).sum() / (MEMBERS * streams)
            loss.backward()  # type: ignore[no-untyped-call]
            earned += rewards.mean(0).tolist()
        upper.step(min(1.0, (step + 1) / 3))
        rewards_of.append(float(np.mean(earned)))
        if step == 0:
            hours = (time.monotonic() - begun) * STEPS * runs / 3600
            print(f"  about {hours:.1f} core-hours for what is to come", flush=True)
        if (step + 1) % 6 == 0:
            print(
                f"  step {step + 1}: reward {np.mean(rewards_of[-6:]):.3f}, {time.monotonic() - begun:.0f} s",
                flush=True,
            )
    return rewards_of


def kept_by(upper: UpperLayers, world: Setting, numbers: Sequence[int]) -> dict[str, list[int]]:
    rows = texts_of(world, numbers)
    value = np.zeros(len(world.texts))
    value[rows] = upper.importance(rows)
    kept = stays(world, lambda number: value[world.rows[number]], numbers)
    return {world.streams[number].key: list(stay) for number, stay in kept.items()}


def share(world: Setting, kept: dict[str, list[int]]) -> float:
    return float(np.mean([s.evidence_kept(kept[s.key]) for s in world.streams if s.key in kept]))


def planned(world: Setting) -> str:
    """The smallest difference in evidence kept that so many clusters of questions tell. The spread is that of two rules of thumb:
    nothing has learned yet."""
    named = rules(world)
    one, other = (stays(world, named[name]) for name in ("most specific", "most digits"))
    by: dict[str, list[float]] = {}
    for number, stream in enumerate(world.streams):
        by.setdefault(stream.cluster, []).append(
            world.evidence(number, one[number]) - world.evidence(number, other[number])
        )
    spread = float(np.std([np.mean(each) for each in by.values()], ddof=1))
    return (
        f"{len(world.streams)} streams, {len(by)} clusters of questions: with the spread between two rules ({spread:.2f}) a "
        f"difference of {detectable(spread, len(by)):.2f} in evidence kept is found in 8 of 10 such runs"
    )


def texts_of(world: Setting, numbers: Sequence[int]) -> list[int]:
    return sorted({int(row) for number in numbers for row in world.rows[number]})


def learned_from_log(
    upper: UpperLayers, world: Setting, reads: Reads, fold: int, seed: int, permuted: bool
) -> dict[str, dict[str, list[int]]]:
    """What stays of the streams of a fold by the model's digits; by the head on its states alone; and by such a head of
    permuted rewards."""
    learn, test = world.apart(fold)
    features = state_features(upper)
    worth, control = (
        worth_of_texts(features, world, reads, learn, seed if of_others else None) for of_others in (permuted, True)
    )
    among = texts_of(world, learn)
    imitate(upper, tenths(worth, among), among, SAID_STEPS, seed * FOLDS + fold)
    return {
        "kept": kept_by(upper, world, test),
        "head": kept_by_worth(worth, world, test),
        "head permuted": kept_by_worth(control, world, test),
    }


def kept_by_worth(
    worth: np.ndarray[Any, np.dtype[np.float64]], world: Setting, numbers: Sequence[int]
) -> dict[str, list[int]]:
    kept = stays(world, lambda number: worth[world.rows[number]], numbers)
    return {world.streams[number].key: list(stay) for number, stay in kept.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=WORLDS, default="4 of 16")
    parser.add_argument("--credit", choices=("episode", "worth"), default="episode")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--folds", type=int, nargs="+", default=list(range(FOLDS)))
    parser.add_argument("--permuted", action="store_true", help="the control: rewards that belong to other banks")
    parser.add_argument("--runs", type=Path, default=Path("runs/writing"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    world, reads = setting(options.world), Reads.on_file()
    arm = "model from the log" if options.credit == "worth" else "model"
    arm += ", rewards permuted" if options.permuted else ""
    file = kept_file(world.name, arm)
    file.parent.mkdir(exist_ok=True)
    record: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    print(planned(world), flush=True)
    upper = UpperLayers(world.texts, options.runs, 0, WARM_RATE)
    started = options.runs / f"warm-{LOW}-{len(world.texts)}.pt"
    if not started.exists():
        imitate(upper, rule_digits(world), range(len(world.texts)), WARM_STEPS, 0)
        torch.save(upper.state(), started)
    begin = torch.load(started)
    everything = range(len(world.streams))
    if arm == "model" and "warm start" not in record:
        upper.restart(begin, RATE)
        record["warm start"] = kept_by(upper, world, everything)
    print(f"warm start keeps {share(world, record['warm start']):.3f}" if "warm start" in record else "", flush=True)
    todo = [(seed, fold) for seed in options.seeds for fold in options.folds if f"{seed}/{fold}" not in record["parts"]]
    for place, (seed, fold) in enumerate(todo):
        learn, test = world.apart(fold)
        upper.restart(begin, WARM_RATE if options.credit == "worth" else RATE)
        if options.credit == "worth":
            part: dict[str, Any] = learned_from_log(upper, world, reads, fold, seed, options.permuted)
        else:
            reader = Shuffled(world, reads, seed) if options.permuted else Replay(world, reads)
            curve = reinforce(upper, world, reader, learn, seed * FOLDS + fold, len(todo) - place)
            part = {"kept": kept_by(upper, world, test), "reward": [round(each, 4) for each in curve]}
        record["parts"][f"{seed}/{fold}"], kept = part, part["kept"]
        began = (
            ""
            if "warm start" not in record
            else (f", began {share(world, {key: record['warm start'][key] for key in kept}):.3f}")
        )
        print(f"seed {seed}, fold {fold}: keeps {share(world, kept):.3f}{began}", flush=True)
        whole = [s for s in range(100) if all(f"{s}/{f}" in record["parts"] for f in range(FOLDS))]
        head = arm.replace("model", "head on the model", 1)
        parts = {arm: "kept"} | ({head: "head", f"{head}, rewards permuted": "head permuted"} if "head" in part else {})
        seeds = {
            name: [{k: v for f in range(FOLDS) for k, v in record["parts"][f"{s}/{f}"][key].items()} for s in whole]
            for name, key in parts.items()
        }
        record["kept"] = seeds if whole else {}
        if "warm start" in record:
            record["kept"]["model, warm start"] = [record["warm start"]]
        record |= {"command": "python -m benchmarks.writing.model", "model": MODEL, "versions": versions()}
        file.write_text(json.dumps(record, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
