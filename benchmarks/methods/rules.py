"""Which numbers of a record each claim is about: the field `rule` of `benchmarks/methods/NAME.json`.

`write` adds the rule to what a command measured, and `python -m benchmarks.methods.judge` to records of before, whose numbers
stay as they are. `benchmarks.methods.ruling` says what the fields mean, and turns them into a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.methods.ruling import ALL
from keepworth.evaluation.verdicts import GAIN, NEAR

Rule = dict[str, Any]
NOT_THE_PAPERS = "The paper's worlds and models were not run."
ANOTHER = {"longmemeval-file": "The file read is the oracle edition; S and M are not here."}
"""Of a benchmark what was read, where that is less than the benchmark is of."""
REACH, NEED = 0.95, 0.5
"""What is as good as right; and half of the way from chance to right, which a rule without a memory may go."""


def rule_of(name: str, kind: str, record: Mapping[str, Any]) -> Rule:
    """The rule of a method's record."""
    by_hand = RULES.get(f"{name}.{kind}", RULES.get(name))
    if by_hand is not None:
        return by_hand
    if kind in MADE and record["comparisons"]:
        return MADE[kind](name, record)
    if kind in ("world", "benchmark"):
        return {"unreachable": UNMARKED if record["arms"] else record["sentence"]}
    return {"missing": "It has no paired comparison, and no rule names the numbers that its claim is about."}


def rule(places: Mapping[str, Any] | None = None, **more: Any) -> Rule:
    """A rule with the usual gain worth having.

    Args:
        places: The comparisons of each world that the claim is about, and its room.
        more: Other fields of the rule.
    """
    return {"gain": GAIN, "near": NEAR, "range": 1.0, "places": dict(places or {}), **more}


def above(*names: str, room: Sequence[Sequence[str | float]] = (), **more: Sequence[str]) -> Rule:
    """A world in which a gain is claimed over each of these comparisons."""
    return {"above": list(names), **({"room": [list(pair) for pair in room]} if room else {}), **more}


def one(*names: str, room: Sequence[Sequence[str | float]] = (), part: str = "", **more: Any) -> Rule:
    """The rule of a claim about one world alone."""
    return rule({"": above(*names, room=room)}, **({"part": part} if part else {}), **more)


def of_world(name: str, record: Mapping[str, Any]) -> Rule:
    best, memory = (record["comparisons"][0]["against"]).split(": ")
    arms = {arm["name"]: arm for arm in record["arms"]}
    half = arms["chance"]["mean"] + NEED * (1.0 - arms["chance"]["mean"])
    return one(
        f"{best}: {memory}",
        room=[(best, "scripted optimum")],
        claim="A plain memory of cases succeeds in more of its tasks than the best rule without a memory.",
        part=f"{best[:1].upper()}{best[1:]}, which remembers nothing, goes half of the way from chance to right."
        if arms[best]["interval"][1] >= half
        else "",
    )


def of_benchmark(name: str, record: Mapping[str, Any]) -> Rule:
    arms = {arm["name"]: arm for arm in record["arms"]}
    guesses = [of for of in arms if of.startswith("answer: ") and of != "answer: the key"]
    guess = max(guesses, key=lambda of: float(arms[of]["mean"]))
    chance = arms["answer: chance"]["mean"]
    (gap,) = record["comparisons"]
    plain = max(("evidence shown: random", "evidence shown: latest"), key=lambda of: float(arms[of]["mean"]))
    parts = [
        ANOTHER.get(name, ""),
        f"Half of the way from chance to right is guessed without a memory ({guess.removeprefix('answer: ')})."
        if arms[guess]["interval"][1] >= chance + NEED * (1.0 - chance)
        else "",
        "Words alone find nearly all of the evidence." if arms["evidence shown: bm25"]["interval"][1] >= REACH else "",
    ]
    return one(
        gap["against"],
        room=[(guess, "answer: the key"), (plain, "evidence shown: evidence alone")],
        claim="Its answers are not guessed without a memory, and a search by words finds more of the evidence than entries "
        "drawn by chance or the newest hold.",
        part=" ".join(filter(None, parts)),
        units="questions of a set, which is no draw",
    )


def of_objective(name: str, record: Mapping[str, Any]) -> Rule:
    """Gaps of `benchmarks.methods.objectives`: "permuted rewards: ARM, SETTING" and "BASELINE: ARM, SETTING"."""
    places: dict[str, Rule] = {}
    for gap in record["comparisons"]:
        if ": " not in gap["against"]:
            return one(gap["against"], room=[(gap["against"], 1.0)], part=f"In a toy. {NOT_THE_PAPERS}")
        other, _, tried = gap["against"].partition(": ")
        setting = tried.rpartition(", ")[2]
        place = places.setdefault(setting, above())
        place["above"].append(gap["against"])
        if other != "permuted rewards":
            place["room"] = [[f"{other}, {setting}", 1.0]]
    return rule(places, part=f"In a toy. {NOT_THE_PAPERS}")


def of_recipe(name: str, record: Mapping[str, Any]) -> Rule:
    """Gaps of `benchmarks.methods.recipes`: against permuted rewards, and against each arm without the mechanism."""
    means = {arm["name"]: arm["mean"] for arm in record["arms"]}
    plain = [of for of in means if of not in ("before any reward", "recipe", "permuted rewards")]
    return one(
        *(gap["against"] for gap in record["comparisons"]),
        room=[(max(plain, key=means.__getitem__), 1.0)] if plain else (),
        part=f"A tiny network in a tiny world. {NOT_THE_PAPERS}",
    )


def remembers() -> Rule:
    """The rule of what answers a question about a cue of eight steps before, beside a network without a memory. That it remembers
    this is not all that a paper says of a memory."""
    return one(
        "mlp",
        room=[("mlp at xi=8", 1.0)],
        claim="In as many steps it answers more questions about a cue of eight steps before than a network without a memory.",
        part=f"One world, and a few thousand weights. {NOT_THE_PAPERS}",
    )


def of_module(name: str, record: Mapping[str, Any]) -> Rule:
    if name == "mlp":
        return {"off": "It remembers nothing: it is the control of the others."}
    return remembers()


MADE = {
    "world": of_world,
    "benchmark": of_benchmark,
    "objective": of_objective,
    "recipe": of_recipe,
    "memory_module": of_module,
}
"""How the rule of a kind is made, where each of its records is of one form."""


def minus(name: str, *others: str, after: str = "") -> list[str]:
    """Names of the comparisons "NAME minus OTHER"."""
    return [f"{name}{after} minus {other}{after}" for other in others]


def bonus() -> Rule:
    return one("none", "shuffled", part=f"MiniGrid with far fewer steps. {NOT_THE_PAPERS}")


PENDULUM: Rule = {"room": [["without memory", "speed shown"]]}
"""A place whose returns lie between some -1,200, of random actions, and -150: a range of 1,000."""


def pendulum(**comparisons: Sequence[str]) -> Rule:
    place = {**PENDULUM, **{kind: list(names) for kind, names in comparisons.items()}}
    return rule({"": place}, range=1000.0, part=f"One world, and fewer updates and smaller networks. {NOT_THE_PAPERS}")


UNMARKED = "No evidence is marked in it, so that what a memory brings is a question for a model."
TOYS = f"In a toy. {NOT_THE_PAPERS}"
RULES: dict[str, Rule] = {
    # objectives that have a setting of their own
    "a_star_po": {
        "off": "Time and memory, which its claim is about, were not measured; the rewards of the toy are below."
    },
    "aepo.objective": {"off": "It had a quarter of the optimiser's steps of the arm that it is compared with."},
    "archer": {
        "off": "Its replay held five updates with one step of the critic each; the paper's hold far more of both."
    },
    "areal": {
        "missing": "It and the plain objective at the same lag are each compared with lag 0, and not with one another."
    },
    "dapo": {"off": "It is penalised for the length of answers, which is what this toy pays for."},
    "duration": one("unweighed: duration", room=[("unweighed", 1.0)], part=TOYS),
    "fine_mem.objective": {
        "off": "Its rewards of turns know here which moves go forward, and teach without the episode's."
    },
    "icepop": {"off": "A sampler that is behind is not the mismatch of two engines that it masks."},
    "kdrl": one(
        "grpo",
        room=[("grpo", 1.0)],
        part=f"Distillation alone was not run, and the weight of distillation is ten times the paper's. {TOYS}",
    ),
    "memory_r_plus.objective": rule(
        {
            "all": above("permuted rewards: memory_r_plus, all", "grpo: memory_r_plus, all", room=[("grpo, all", 1.0)]),
            "sparse": above("grpo: memory_r_plus, sparse", room=[("grpo, sparse", 1.0)]),
        },
        part=TOYS,
    ),
    "spurious": rule(
        {"": above("true rewards minus coins", below=["coins minus before any reward"])},
        part="No model that leans the right way was measured, which is the other half of the claim.",
    ),
    "t_spmo": {"off": "It drew groups of 16, where it wants some 50."},
    "tis": one("uncorrected", room=[("uncorrected", 1.0)], part=f"It is ahead on fresh data, too (+.05). {TOYS}"),
    "vcpo": {
        "missing": "It and the plain objective at the same lag are each compared with lag 0, and not with one another."
    },
    # writers and recipes
    "keeper": one(
        "has digits, of equals the longer",
        room=[("has digits, of equals the longer", "oracle")],
        part="Rewards, which the claim does not name, add nothing.",
    ),
    "model": {"unreachable": "The model that is here, of 135M, gave a list of stated facts for 1 of 87 messages."},
    "rules": rule({"": above("raw: current answers", below=["raw: stale answers"])}),
    "statements": rule(
        {
            f"{name}, recall": {"level": [f"{name}, whole messages: recall of evidence at 5"]}
            for name in ("LoCoMo", "LongMemEval")
        },
        units="questions of a set, which is no draw",
    ),
    "trained": rule(
        {
            f"{which} operations": above(
                f"untrained: {which} operations, test", f"warm_start: {which} operations, test"
            )
            for which in ("plain", "near-miss")
        }
    ),
    "agemem": {
        "unreachable": "A model that is here was trained for four updates with one seed, and a tiny one did not learn."
    },
    "arithmetic": one("untrained, svamp test questions", "no_tool, svamp test questions"),
    "bounded_bank": one("permuted rewards", part=f"A tiny network in a tiny world. {NOT_THE_PAPERS}"),
    "datamind": one(
        "permuted rewards", "without imitation", "imitation alone", room=[("imitation alone", 1.0)], part=NOT_THE_PAPERS
    ),
    "fine_mem.recipe": one("the reward of the episode", part=f"In a linear policy. {NOT_THE_PAPERS}"),
    "mem_alpha": {
        "unreachable": "A model that is here was trained for four updates with one seed, and a tiny one did not learn."
    },
    "memory_r1": one(
        "untrained",
        room=[("no_memory_untrained", "reinforced, oracle")],
        part=f"The answerer alone, and imitation of the answers teaches as much. {NOT_THE_PAPERS}",
    ),
    "memory_r2.recipe": one("the reward of the episode", part=f"In a linear policy. {NOT_THE_PAPERS}"),
    "open_rubrics": {"off": "Whether an answer is right is checked there, so that rubrics have nothing to add."},
    "openclaw_rl": one(
        "both minus permuted", "both minus directive", "both minus evaluative", part=f"Two users. {NOT_THE_PAPERS}"
    ),
    "overwrite_reading": one(
        "untrained", "imitated", room=[("imitated", "oracle")], part=f"Texts of one length. {NOT_THE_PAPERS}"
    ),
    "strings": rule(
        {
            f"compositions of {depth}": above(
                f"untrained, unseen compositions of {depth}", f"imitated, unseen compositions of {depth}"
            )
            for depth in (2, 3)
        },
        part="An older task of six functions, without permuted rewards.",
    ),
    # control
    "e3b": bonus(),
    "noveld": bonus(),
    "e3b_noveld": bonus(),
    "predict_latent": one("Cue8: none", "Cue8: latent, shuffled", part=f"One world. {NOT_THE_PAPERS}"),
    "predict_observation": one("Cue8: none", "Cue8: observation, shuffled", part=f"One world. {NOT_THE_PAPERS}"),
    "rsac": pendulum(above=("RTD3", "RDPG", "without memory")),
    "rtd3": pendulum(below=("RSAC",)),
    "rdpg": pendulum(below=("RSAC",)),
    "wsrl": rule(
        {
            "return": above("without warm-up", "logs kept", room=[("without logs", -150.0)]),
            "dip": {"below": ["dip: without warm-up"]},
        },
        range=1000.0,
        part=f"One world. {NOT_THE_PAPERS}",
    ),
    "iql": rule({"": above("BC", "rewards permuted")}, range=1000.0, part=f"One world. {NOT_THE_PAPERS}"),
    "cql": rule({"": above("BC")}, range=1000.0, part=f"One world. {NOT_THE_PAPERS}"),
    "ss_orl": rule(
        {
            labels: {"level": [f"{labels} filled in minus all labels"], "room": [["rewards permuted", "all labels"]]}
            for labels in ("rewards", "actions")
        },
        range=1000.0,
        claim="With a tenth of the labels a policy earns within .05 of the range of what all labels give.",
        part=f"One world. {NOT_THE_PAPERS}",
    ),
    "lare": rule(
        {"": above("raw inputs", "factors permuted", "sum alone", room=[("sum alone", -150.0)])},
        range=1000.0,
        part=f"One world. {NOT_THE_PAPERS}",
    ),
    "sequence_rl": rule(
        {"": above("SAC, held", "recall of others", room=[("SAC, held", "SAC, each step")])},
        range=1000.0,
        part=f"One world, and one period of decisions. {NOT_THE_PAPERS}",
    ),
    "il_rl": rule(
        {
            world: above(
                *(f"{world}: {other}" for other in ("none", "two, permuted", "two, imitated alone")),
                room=[(f"{world}: two, imitated alone", f"{world}: demonstrator")],
            )
            for world in ("rooms", "corridor")
        },
        part=f"Two small worlds. {NOT_THE_PAPERS}",
    ),
    "nce_pretraining": rule(
        {
            "both": above("none", "both, permuted", room=[("none", "demonstrator")]),
            "NCE": above("NCE minus none", room=[("none", "demonstrator")]),
            "reward": above("reward minus none", room=[("none", "demonstrator")]),
        },
        part=f"One small world. {NOT_THE_PAPERS}",
    ),
    "ra_dt": one(
        "context 400",
        "context 50",
        "another task",
        room=[("sweep", "sweep once")],
        part=f"One world. {NOT_THE_PAPERS}",
    ),
    "amago": rule(
        {
            "RepeatPrevious": above(
                "RepeatPrevious: PPO", "RepeatPrevious: without memory", room=[("RepeatPrevious: chance", 1.0)]
            ),
            "two goals": above("two goals: PPO", "two goals: goals as they were", room=[("two goals: chance", 2.0)]),
        },
        range=2.0,
        part=f"Two worlds. {NOT_THE_PAPERS}",
    ),
    "history_bisimulation": one(
        "IQL", "rewards permuted", room=[("IQL", 1.0)], part=f"One small world, and logs at random. {NOT_THE_PAPERS}"
    ),
    "forward_backward": one(
        "half of the loss",
        "no memory",
        room=[("no memory", "all shown")],
        part=f"One small world. {NOT_THE_PAPERS}",
        claim="Memory recovers more than half of what forward-backward loses where observations flicker.",
    ),
    "conservative_forward_backward": rule(
        {
            **{
                kind: above(f"{kind}: plain", f"{kind}: drawn choices", room=[(f"{kind}: plain", f"{kind}: rule")])
                for kind in ("few", "one way")
            },
            "good": {"level": ["good: plain"]},
        },
        part=f"One small world. {NOT_THE_PAPERS}",
    ),
    **{
        name: rule(
            {
                "MemoryChain": above("MemoryChain: PPO", room=[(0.5, 1.0)]),
                "T-maze": above("T-maze: PPO", room=[(0.5, 1.0)]),
            },
            claim="At equal steps of the world it earns more than recurrent PPO.",
            part=f"Two small worlds. {NOT_THE_PAPERS}",
        )
        for name in ("r2i", "drama")
    },
    "repo": rule(
        {"": above("R2I", "PPO", room=[(0.5, 1.0)]) | {"below": ["white: R2I", "drifting: R2I"]}},
        part=f"One small world of vectors. {NOT_THE_PAPERS}",
    ),
    "infopower": rule(
        {"": above("R2I", room=[(0.5, 1.0)]) | {"below": ["white: R2I", "drifting: R2I"]}},
        part=f"One small world of vectors. {NOT_THE_PAPERS}",
    ),
    "staq": rule(
        {"": {"below": ["oscillation: the last critics"], "level": ["the last critics"]}},
        range=200.0,
        part=f"One world. {NOT_THE_PAPERS}",
    ),
    "recurrent_ppo": remembers(),
    "trmrl_ppo": rule(
        {
            f"{world}, {tasks}": {"level": [f"{world}, {tasks}: trmrl:window=16,layers=1 over gru"]}
            for world in ("arms", "maze")
            for tasks in ("new", "unlike")
        },
        part="Two of three planned seeds, and other worlds than the paper's.",
    ),
    # a stage and a policy that is no part of the table of streams
    "mmr": one(
        "plain search",
        "mmr, words permuted",
        room=[("one hit of a session first", "oracle")],
        units="questions of a set, which is no draw",
    ),
    "rmm": {"off": "It learns from what a model cites, and the model that is here cites nothing."},
    # studies
    "ama": {"missing": "Its arms are there, but no paired comparison with the best fixed rule of each stream."},
    "context_evolve": rule(
        {
            other: above(*minus("three roles", other), room=[("best simple rule", "oracle")])
            for other in (
                "best simple rule",
                "random schedules",
                "no navigator",
                "no sampler",
                "three roles, gains shuffled",
                "edits drawn evenly",
                "edits repeated while they help",
            )
        },
        part=NOT_THE_PAPERS,
    ),
    "cues": rule(
        {
            where: above(
                *(
                    f"{kind}tasks by curiosity minus {other}"
                    for other in ("tasks drawn from words", "no practice", f"tasks of another {foreign}")
                )
            )
            for where, kind, foreign in (("kitchens", "", "kitchen"), ("tau2-bench's tools", "tools: ", "customer"))
        },
        part="In kitchens the world's own tasks stay ahead by .13 [.03, .23].",
    ),
    "difficulty_space": one(
        *minus("progressive", "uniform", "the same, shuffled", "rewards of other answers"),
        room=[("the same, shuffled", 1.0)],
        part="Along the axes of difficulty alone: rewards averaged over variants are .38 below. Mathematics was not run.",
    ),
    "domains": {"unreachable": "The model before is right in .06 and .00 of the questions: there is nothing to lose."},
    "exploitation": one(
        "rare: whole minus without memory",
        "rare: whole minus nothing repeats",
        room=[("rare: an arm that was not tried", "rare: best")],
        part="Bandits of three arms and eight pulls; without the long horizon no difference is shown.",
    ),
    "game_on": one(*minus("experimenter", "random tasks", "no practice"), part=f"Written kitchens. {NOT_THE_PAPERS}"),
    "hierarchy": rule(
        {level: above(f"{level}: path named minus straight away") for level in ("family", "order", "realm")},
        part="A tiny network, by a rule that was changed after numbers were seen.",
    ),
    "igl_nav": rule(
        {
            f"SPL over {other}": above(f"map memory, forgotten: SPL minus {other}, forgotten: SPL")
            for other in (
                "views one by one",
                "episodic memory",
                "current view alone",
                "without localisation",
                "random walk",
            )
        },
        part=NOT_THE_PAPERS,
    ),
    "macro_hft": rule(
        {
            where: above(*(f"{kind}with memory minus {other}" for other in others))
            for where, kind, others in (
                ("made markets", "", ("one agent of all days", "without memory", "memory of permuted values")),
                ("real hours", "hourly: ", ("buy and hold", "without memory", "memory of permuted values")),
            )
        },
        part=NOT_THE_PAPERS,
        range=76.5,
    ),
    "memory_t1": one(
        "words, in the window",
        "rewards permuted",
        room=[("the person's turns with the word, in the window", "oracle of choosing")],
    ),
    "mind_palace": rule(
        {
            f"{budget} entries": above(
                f"stopping by value, minus all read as many (budget {budget})",
                f"stopping by value, minus stop where the meaning falls (budget {budget})",
            )
            for budget in (3, 5, 8)
        },
        part="The share of the evidence that is read; answers were not asked for.",
    ),
    "mr_rec": one("global memory", "rewards permuted", "another's memory", room=[("ALS", "oracle of asking")]),
    "pass_at_k": {"missing": "It is of one training run, so that no interval over runs is there."},
    "persistbench": {"unreachable": "The claim is about models and a judge that are not here."},
    "retention": {
        "unreachable": "Facts that were met ten times are recalled in .33 to .93 by draw: the model learns too few."
    },
    "self_prm": {"off": "Its assessment puts a right answer above a wrong one in .51 of the pairs: it judges nothing."},
    "sort": {
        "unreachable": "With the whole text before it the reader tells the order in .50 of the pairs, which is chance."
    },
    "shielded_units": rule(
        {
            "fuel": above(
                "fuel saved: units minus fuel saved: rule", room=[("fuel saved: rule", "fuel saved: no shield")]
            ),
            "constraints": above(
                *minus(
                    "steps that break nothing, learning: units",
                    "steps that break nothing, learning: no shield",
                    "steps that break nothing, learning: shield of other states",
                )
            ),
        },
        part="A microgrid of 252 states.",
    ),
    "bresa": rule(
        {
            f"a risk of {bound}": above(
                *minus(f"no fall: reflex, eps {bound}", f"no fall: slow, eps {bound}", "no fall: none"),
                f"goal reached: reflex, eps {bound} minus goal reached: reflex, cells permuted, eps {bound}",
                level=[f"goal reached: reflex, eps {bound} minus goal reached: slow, eps {bound}"],
            )
            for bound in (0.1, 0.2, 0.3)
        },
        part="Fields of 64 cells.",
    ),
    "hybrid_regions": rule(
        {
            "": above(
                *minus("planner", "wanted angle", "upright", "region of the light mode"),
                level=["planner minus quadratic region"],
                room=[("wanted angle", "oracle"), ("upright", "oracle")],
            )
        },
        part=f"A pendulum of two modes, and no time was measured. {NOT_THE_PAPERS}",
    ),
    "oer": one(
        *minus("model-based", "at random", "best episodes", "another task", "nothing kept"),
        room=[("at random", "all logs"), ("best episodes", "all logs")],
        part=f"Goals on a grid. {NOT_THE_PAPERS}",
    ),
    "continual_navigation": rule(
        {
            arm: above(
                *minus(f"success: {arm}", *(f"success: {other}" for other in ("random replay", control))),
                room=[("success: random replay", "success: joint training")],
            )
            for arm, control in (
                ("perplexity replay", "easiest episodes"),
                ("self-replay", "self-replay, logits of others"),
            )
        },
        part=f"Houses of words. {NOT_THE_PAPERS}",
    ),
    "mini_diffuser": one(
        *minus("time saved: k = 16", "time saved: k = 1", "time saved: 16 copies"),
        part=f"Three spots, and the time to an equal loss. {NOT_THE_PAPERS}",
    ),
    "skillmimic_v2": rule(
        {
            starts: above(
                *(f"{starts}: full minus {starts}: {other}" for other in ("clips", "joined anywhere")),
                level=["own: full minus own: clips"],
                room=[(f"{starts}: clips", 1.0)],
            )
            for starts in ("beside", "switch")
        },
        part=f"A point in a plane. {NOT_THE_PAPERS}",
    ),
    "robot_loops": rule(
        {
            arm: above(
                *(f"success: {arm} minus success: {other}" for other in (base, control)),
                room=[(f"success: {base}", 1.0)],
            )
            for arm, base, control in (
                ("demonstrations", "plain", "demonstrations, dealt"),
                ("corrector .5", "demonstrations", "corrector by chance"),
                ("progress", "plain", "progress, permuted"),
                ("pre-training", "plain", "pre-training, shuffled"),
                ("checkpoints", "plain", "starts anywhere"),
                ("early stop", "demonstrations", "early stop, other"),
                ("weights", "demonstrations", "weights, other"),
            )
        }
        | {
            "half of the steps by a corrector": above(
                "success: corrector .5 minus success: corrector by chance",
                below=["steps: corrector .5 minus steps: half of those of demonstrations"],
            )
        },
        part=f"A point in four rooms. {NOT_THE_PAPERS}",
    ),
    "step_mix": rule(
        {
            "value in the end": above(
                "value at the end: step mix minus value at the end: baseline",
                room=[("value at the end: baseline", "value at the end: best policy")],
            ),
            "runs above the floor": above(
                "runs above the floor: step mix minus runs above the floor: no mixing",
                "runs above the floor: step mix minus runs above the floor: counts permuted",
            ),
        },
        part="Random worlds of four states, four steps and known rewards.",
    ),
    "starling": one(
        *(
            f"overlap 1, 20 episodes minus {other}"
            for other in ("no pre-training, 20 episodes", "overlap 0, 20 episodes", "permuted rewards, 20 episodes")
        ),
        part=f"Written games. {NOT_THE_PAPERS}",
    ),
    "three_settings": rule(
        {
            "a reader uses the evidence": above(
                "evidence alone minus evidence of another question", "contextual, mean of positions minus parametric"
            ),
            "external below contextual": {"below": ["external minus contextual, mean of positions"]},
        },
        units="questions of a set, which is no draw",
    ),
    "tulving": rule(
        {
            name: above(f"{arm}: simple recall minus chronological awareness")
            for name, arm in (("with a search", "bm25"), ("with the right chapters", "oracle"))
        },
        part=NOT_THE_PAPERS,
        units="books of a set, which is no draw",
    ),
    "vilomem": one(
        *minus("two streams", "none", "visual stream alone", "logical stream alone", "one stream with one key"),
        *minus("two streams", "at fault by chance", "answers of other tasks"),
        room=[("table of words and conditions", "oracle")],
        part=f"Made readings. {NOT_THE_PAPERS}",
    ),
    "written_or_neural": {
        "unreachable": "Where a network overtakes a written memory was not reached in 4,000 episodes."
    },
}
"""Rules of records that have a form of their own, NAME or NAME.KIND."""


def of_streams(
    gaps: Sequence[str], by_stream: Mapping[str, Sequence[str]], rooms: Mapping[str, tuple[float, float]], part: str
) -> Rule:
    """The rule of a policy or a writer in the table of streams.

    Args:
        gaps: The comparisons over all streams that its claim is about.
        by_stream: The same on each stream.
        rooms: Of each stream, and over all, the best simple rule and the oracle.
        part: Which part of the claim they are about.
    """
    places = {ALL: above(*gaps, room=[rooms[ALL]] if ALL in rooms else ())}
    places |= {to: above(*names, room=[rooms[to]] if to in rooms else ()) for to, names in by_stream.items()}
    return rule(places, **({"part": part} if part else {}))
