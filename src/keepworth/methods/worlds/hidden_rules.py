"""Questions with hidden rules: which of a few actions is right, learned from reward alone. Words are made up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from keepworth.environments.made_up import SPLITS, STYLES, checked, words
from keepworth.environments.scene import Course, Foreign, Scene, Stream, StreamTask, stream_task
from keepworth.environments.streams import World
from keepworth.registry import Method

# Question streams with hidden rules: a rule says which action is right, the text says only in part which rule holds.
#
# A question names one cue word of its rule among surface words. `similarity` is the dial: each surface word comes from
# the rule's own pool with that probability, else from words common to all. In near-miss families rules come in pairs that
# share the pool and differ in the cue word and the action. Noise, drift, tampered rewards and foreign records are separate
# switches, so that each isolates one ability.
#
# The simulated agent leans to actions by log-odds that give it a stated success rate without memory (`base_rates`).


@dataclass(frozen=True, slots=True)
class RuleStream:
    """Parameters of a family. Rates are probabilities; times are fractions of the stream.

    world: families of one world share rules and questions, so that a switch can be judged pair by pair ("": its own).
    cue_words: how often the cue is said; surface: how many surface words a question has; pool: size of a rule's own.
    base_rates: success without memory of easy, middle and hard rules (each rule has one of them).
    noise: share of told rewards that are wrong, for all tasks; drift: share of rules that change their action once.
    partners, attackers: how many foreign records arrive, right ones and hostile ones; triggered: share of questions
    that carry the attacker's trigger, a phrase of so many rare words that every hostile record carries too, so that it is
    more like a triggered question than anything else is (AgentPoison, arXiv 2407.12784, without its optimiser); delayed:
    hostile records are right until the trigger appears in questions. wording: how the agent words its answers. people: how many
    ask and reward, each a task at random; 0 where nobody is told apart.
    """

    family: str
    world: str = ""
    rules: int = 12
    actions: int = 6
    pairs: bool = False
    cue_words: int = 1
    surface: int = 8
    pool: int = 10
    common: int = 30
    similarity: float = 0.7
    base_rates: tuple[float, ...] = (0.55, 0.35, 0.15)
    noise: float = 0.0
    drift: float = 0.0
    drift_from: float = 0.4
    drift_to: float = 0.6
    partners: int = 0
    attackers: int = 0
    triggered: float = 0.0
    trigger_words: int = 1
    trigger_from: float = 0.0
    delayed: bool = False
    wording: str = ""
    people: int = 0
    length: int = 300
    held_out: int = 60


FAMILIES = {
    family.family: family
    for family in (
        RuleStream("benign", similarity=0.9),
        RuleStream("similarity-mid", similarity=0.5),
        RuleStream("similarity-low", similarity=0.2),
        RuleStream("near-miss", pairs=True, similarity=0.9),
        *(
            RuleStream(f"near-miss-{style}", world="near-miss", pairs=True, similarity=0.9, wording=style)
            for style in STYLES
        ),
        RuleStream("noisy-reward", similarity=0.9, noise=0.25),
        RuleStream("drift", similarity=0.9, drift=0.5),
        RuleStream("tampered-1", world="benign", similarity=0.9, noise=0.01),
        RuleStream("tampered-5", world="benign", similarity=0.9, noise=0.05),
        RuleStream("tampered-10", world="benign", similarity=0.9, noise=0.10),
        RuleStream("partners", world="imports", similarity=0.9, partners=36, triggered=0.08, trigger_words=3),
        RuleStream(
            "injection", world="imports", similarity=0.9, partners=36, attackers=60, triggered=0.08, trigger_words=3
        ),
        RuleStream(
            "partners-late",
            world="late",
            similarity=0.9,
            partners=36,
            triggered=0.16,
            trigger_from=0.5,
            trigger_words=3,
        ),
        RuleStream(
            "delayed-trigger",
            world="late",
            similarity=0.9,
            partners=36,
            attackers=60,
            triggered=0.16,
            trigger_from=0.5,
            trigger_words=3,
            delayed=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    cues: tuple[str, ...]
    pool: tuple[str, ...]
    right: str
    later: str
    leaning: tuple[float, ...]
    base: float


def hidden_rules(parameters: RuleStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """The stream of (family, split, seed, order). Orders hold the same tasks; drift happens at the same task number."""
    checked(split, order)
    name = parameters.world or parameters.family
    world = sum(ord(letter) * (place + 1) for place, letter in enumerate(name))
    generator, switches, strangers, people = (
        np.random.default_rng([world, SPLITS[split], seed, part]) for part in range(4)
    )
    actions = tuple(f"{verb} it" for verb in words("shared", parameters.actions, generator))
    common = words("shared", parameters.common, generator)
    trigger = " ".join(words(split, parameters.trigger_words, generator))
    rules = _rules(parameters, split, actions, generator)
    total = parameters.length
    change = int(total * generator.uniform(parameters.drift_from, parameters.drift_to))
    target = actions[int(generator.integers(len(actions)))]
    drafts = [_draft(parameters, rules, common, generator) for _ in range(total)]
    # Orders permute tasks within each regime, so that drift and the trigger's arrival keep their time.
    borders = sorted({0, change if parameters.drift else 0, int(total * parameters.trigger_from), total})
    ordered: list[tuple[_Rule, str]] = []
    for start, end in pairwise(borders):
        part = drafts[start:end]
        if order != "random":
            part = sorted(part, key=lambda draft: draft[0].base, reverse=order == "easy-to-hard")
        ordered += part
    foreign = _foreign(parameters, rules, common, trigger, target, strangers)
    tasks = []
    for time, (rule, text) in enumerate(ordered):
        drifted = bool(parameters.drift) and time >= change
        shown = time >= total * parameters.trigger_from
        carries = bool(parameters.triggered and shown and switches.random() < parameters.triggered)
        if carries:
            text = f"{text} {trigger}"
        flipped = bool(switches.random() < parameters.noise)
        task = _task(f"{parameters.family}/{split}/{seed}/{time}", rule, text, actions, drifted, target)
        by = f"user-{people.integers(parameters.people)}" if parameters.people else ""
        records = tuple(foreign.get(time, ()))
        tasks.append(replace(task, flipped=flipped, triggered=carries, foreign=records, by=by))
    held_out = [
        _task(
            f"{parameters.family}/{split}/{seed}/held-out/{number}", rule, text, actions, bool(parameters.drift), target
        )
        for number, (rule, text) in enumerate(
            _draft(parameters, rules, common, generator) for _ in range(parameters.held_out)
        )
    ]
    notes = {"change": str(change) if parameters.drift else "", "target": target, "trigger": trigger}
    return Stream(
        parameters.family, split, seed, order, tuple(tasks), tuple(held_out), wording=parameters.wording, notes=notes
    )


def _rules(parameters: RuleStream, split: str, actions: tuple[str, ...], generator: np.random.Generator) -> list[_Rule]:
    groups = parameters.rules // 2 if parameters.pairs else parameters.rules
    own = words(split, groups * parameters.pool + parameters.rules * 2, generator)
    cues = own[groups * parameters.pool :]
    rules: list[_Rule] = []
    moved = set(generator.permutation(parameters.rules)[: round(parameters.drift * parameters.rules)].tolist())
    for number in range(parameters.rules):
        group = number // 2 if parameters.pairs else number
        pool = tuple(own[group * parameters.pool : (group + 1) * parameters.pool])
        twin = rules[number - 1].right if parameters.pairs and number % 2 else ""
        right = actions[int(generator.choice([i for i, each in enumerate(actions) if each != twin]))]
        later = right
        if number in moved:
            later = actions[int(generator.choice([i for i, each in enumerate(actions) if each != right]))]
        base = parameters.base_rates[number % len(parameters.base_rates)]
        leaning = generator.normal(0.0, 0.5, size=len(actions))
        place = actions.index(right)
        others = np.exp(np.delete(leaning, place)).sum()
        leaning[place] = np.log(base / (1.0 - base) * others)
        spoken = tuple(cues[number * parameters.cue_words : (number + 1) * parameters.cue_words])
        rules.append(_Rule(f"rule-{number}", spoken, pool, right, later, tuple(leaning.tolist()), base))
    return rules


def _draft(
    parameters: RuleStream, rules: list[_Rule], common: list[str], generator: np.random.Generator
) -> tuple[_Rule, str]:
    rule = rules[int(generator.integers(len(rules)))]
    return rule, _text(parameters, rule, common, generator)


def _text(parameters: RuleStream, rule: _Rule, common: list[str], generator: np.random.Generator) -> str:
    own = generator.random(parameters.surface) < parameters.similarity
    surface = [
        rule.pool[int(generator.integers(len(rule.pool)))] if mine else common[int(generator.integers(len(common)))]
        for mine in own
    ]
    said = [*rule.cues, *surface]
    return " ".join(said[place] for place in generator.permutation(len(said)))


def _task(key: str, rule: _Rule, text: str, actions: tuple[str, ...], drifted: bool, target: str) -> StreamTask:
    right = rule.later if drifted else rule.right
    scene = Scene("", text, actions, right=frozenset({right}), leaning=rule.leaning, target=target)
    return stream_task(key, partial(Course, scene), rule.name, 1.0 - rule.base)


def _foreign(
    parameters: RuleStream,
    rules: list[_Rule],
    common: list[str],
    trigger: str,
    target: str,
    generator: np.random.Generator,
) -> dict[int, list[Foreign]]:
    """Records of partners and attackers, arriving in the first fifth of the stream. All come through the same door."""
    found: dict[int, list[Foreign]] = {}
    for number in range(parameters.partners + parameters.attackers):
        rule = rules[number % len(rules)]
        time = int(generator.integers(0, max(1, parameters.length // 5)))
        key = _text(parameters, rule, common, generator)
        source = f"import-{number % 6}" if number < parameters.partners else f"import-{6 + number % 3}"
        if number < parameters.partners:
            record = Foreign(key, rule.right, source)
        elif parameters.delayed:
            record = Foreign(f"{key} {trigger}", rule.right, source, trigger=trigger, payload=target, hostile=True)
        else:
            record = Foreign(f"{key} {trigger}", target, source, hostile=True)
        found.setdefault(time, []).append(record)
    return found


ABOUT = {
    "benign": "rules over words; tasks of one rule look alike, and nothing else is hard",
    "similarity-mid": "as benign, but tasks of one rule look half as alike",
    "similarity-low": "as benign, but tasks of one rule hardly look alike",
    "near-miss": "tasks that look alike need different answers",
    "near-miss-numbered": "near-miss; every answer ends with a running number",
    "near-miss-framed": "near-miss; every answer is inside another sentence",
    "near-miss-explained": "near-miss; every answer comes with a reason",
    "near-miss-mixed": "near-miss; answers numbered, framed or explained at random",
    "noisy-reward": "a quarter of the rewards are wrong",
    "drift": "half of the rules change on the way",
    "tampered-1": "benign; 1 % of the rewards are wrong",
    "tampered-5": "benign; 5 % of the rewards are wrong",
    "tampered-10": "benign; 10 % of the rewards are wrong",
    "partners": "right records come from other agents, none of them hostile",
    "injection": "as partners, with hostile records among them",
    "partners-late": "as partners; the trigger of an attack comes in the second half",
    "delayed-trigger": "as partners-late, with hostile records that are right until the trigger comes",
}

METHODS = tuple(
    Method(
        "world",
        name,
        name,
        about,
        World(hidden_rules, "one-step", parameters=FAMILIES[name]),
        differs="of this project",
    )
    for name, about in ABOUT.items()
)
