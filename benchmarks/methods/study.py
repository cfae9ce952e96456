"""Runs a study of the registry and leaves its evidence, `benchmarks/methods/NAME.json`.

python -m benchmarks.methods.study ama
python -m benchmarks.methods.study mind_palace --rows rows.jsonl     what `keepworth methods run mind_palace --json` printed

Studies that are run on data from elsewhere have a script of their own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.methods.write import write
from keepworth.evaluation.study import Study
from keepworth.registry import method

CONCLUSIONS = {
    "ama": (
        "none: MiniLM embeds the goals",
        ["rewards permuted", "no goal", "chance", "best rule of each stream"],
        "held",
        "With what will be asked in words that it never read, the learned choice recalls as much as the best fixed rule on every "
        "stream; with permuted rewards or without the goal it does not. The house and its questions are made so that each is "
        "best somewhere. Wordings to learn from went from two to four, and walks from 400 to 1,000, after a first look at five "
        "other draws.",
    ),
    "cues": (
        "none: a softmax over words learns to act",
        [
            "no practice",
            "tasks drawn from words",
            "tasks of another kitchen",
            "tasks drawn from words, with hindsight",
            "tasks by chance",
            "tasks by curiosity without hints",
            "the world's own tasks",
        ],
        "held in part",
        "Practice on tasks that an explorer made does 15 points more of the kitchen's own tasks than practice on tasks "
        "drawn from its words, 14 more than on another kitchen's, and 38 more than no practice, at equal steps of the "
        "world. It is 13 points [3, 22] below practice on the world's own tasks, where the paper matches them. Of what "
        "was abstracted 29 % can be executed from the start, and executing again keeps those; 83 % of them [80, 86] still "
        "can though one step in five follows one that is drawn. Hints are worth 9 points [2, 17]. Curiosity is not above "
        "walking by chance (+.04 [-.04, .11]), nor the whole above drawn tasks with hindsight (+.03 [-.05, .11]).",
    ),
    "exploitation": (
        "GRU of width 32, recurrent PPO without a bonus of entropy, 81,920 steps",
        ["without memory", "nothing repeats", "episodes alone", "best", "best for each episode", "thompson", "ucb"],
        "held in part",
        "With memory and tasks that repeat the agent earns .55 a pull [.51, .59], and .36, as an arm that was not tried, without "
        "either; without the long horizon it earns as much (+.01 [-.03, .05] for the whole). Three arms always pay 0, .4 or 1, "
        "and a trial has eight pulls. Who plans over the trial earns .60, over each pull alone .53, Thompson sampling .55. With "
        "episodes alone no network tries another arm after one paid .4; two of four networks of the whole always do. It would "
        "have held with the whole above all three. Training was shortened to what the machine had time for.",
    ),
    "macro_hft": (
        "none: linear functions",
        [
            "memory of permuted values",
            "without memory",
            "best sub-agent of the training days",
            "one agent of all days",
            "sub-agents in equal shares",
            "agents of the regimes, which are told",
        ],
        "held in part",
        "The mixture earns 18.6 % of 1,000 bars, 11.1 more than the best sub-agent [9.1, 13.1] and 5.4 more than one "
        "agent of all days [3.9, 6.8], but the memory adds nothing to it (-0.1 [-0.4, 0.2]). Permuted values in the "
        "memory cost 3.8 [2.6, 5.1], so it does pull on the mixture. Agents of the true regimes, which are told, earn "
        "27.7. The regimes were made so that trend and volatility tell them apart, and the rate was chosen, on other "
        "markets. No real prices were tried.",
    ),
    "mind_palace": (
        "none: MiniLM embeds entries",
        [
            "all read as many",
            "rises permuted",
            "stop where the meaning falls",
            "best by words, by meaning, by both",
            "whoever knows the evidence",
        ],
        "held in part",
        "The paper's answers were not asked for: success is the evidence that was read. At about 3, 5 and 8 entries it reads "
        ".561, .673 and .749 of it, the best fixed number (by words) .499, .640 and .728. Stopping by value adds "
        "+.045 [.001, .089], +.012 [-.019, .041] and +.027 [.004, .055] to its own order, and beats stopping where the meaning "
        "falls by .156, .142 and .121. Its order alone reads .517, .661 and .722, one fitted on permuted rises .502, .601 and "
        ".705.",
    ),
    "vilomem": (
        "none: rapidocr-onnxruntime 1.4.4 reads drawn words",
        [
            "answers of other tasks",
            "one stream with one key",
            "visual stream alone",
            "logical stream alone",
            "at fault by chance",
            "table of words and conditions",
            "all read rightly, without memory",
        ],
        "held",
        "Two streams do 36 points more of the tasks than none, 10 and 30 more than the logical and the visual stream "
        "alone, and 13 more than the same guidelines in one stream. What the joint key weighs, its threshold and how "
        "alike readings must be were chosen on eight other seeds. With who is at fault drawn by chance 10 points go; with "
        "answers of other tasks it is far below no memory. A table of what was right for each word as read and condition, "
        "which learns from right answers as well, is only 2.9 points [1.0, 4.8] below; with every word read rightly and "
        "no memory 61 % would be done.",
    ),
    "written_or_neural": (
        "GRU of width 32, recurrent PPO, 40,000 steps; a simulated agent reads the notes",
        ["nothing written", "mlp"],
        "held in part",
        "In a T-maze of texts a written memory with `mixture` is right in every episode from the 25th on, and a GRU in .41 of "
        "held-out episodes after 4,000 (.22 and .60 in two vocabularies, which bound no difference; .23 without memory). With "
        "the default policy the written memory is not above nothing written (.29 and .23); why was not looked into. Where a "
        "network overtakes was not reached, and no other world was run.",
    ),
}
"""Of each study the model, the controls, the verdict and its reason."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(CONCLUSIONS))
    parser.add_argument("--rows", type=Path, help="rows that were measured before")
    options = parser.parse_args()
    name = options.name
    study = method("study", name).make
    assert isinstance(study, Study)
    model, controls, verdict, sentence = CONCLUSIONS[name]
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()] if options.rows else study()()
    arms, comparisons = [], []
    for row in rows:
        numbers = {"mean": round(row["mean"], 4), "interval": [round(row["low"], 4), round(row["high"], 4)]}
        if " minus " in row["arm"]:
            comparisons.append({"against": row["arm"], **numbers})
        else:
            arms.append({"name": row["arm"], **numbers, "n": row["n"]})
    numbers = {"n": max(row["n"] for row in rows), "seeds": max(row["clusters"] for row in rows), "unit": study.unit}
    fields = {"model": model, **numbers, "arms": arms, "comparisons": comparisons, "controls": controls}
    write(name, f"python -m benchmarks.methods.study {name}", verdict, sentence, **fields)


if __name__ == "__main__":
    main()
