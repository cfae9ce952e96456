"""`keepworth eval list` and `keepworth eval run`: memory systems on benchmarks, or on questions of one's own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.cli.command import argument, option
from keepworth.cli.output import Runs, say_json, stopping

if TYPE_CHECKING:
    from keepworth.evaluation.harness import BenchmarkReader
    from keepworth.evaluation.judge import Judge
    from keepworth.tasks.benchmark import Benchmark

USUAL = ("none", "bm25", "dense", "keepworth")
READER = "smollm2-135m-instruct"
AT_ONCE = 4
"""Answers of a model in this process that are kept together."""


def listing(
    details: Annotated[bool, option("--details", "Also what each benchmark can be set to.")] = False,
    as_json: Annotated[bool, option("--json", "Print it as JSON.")] = False,
) -> None:
    """Say what can be measured, on what, and under which settings."""
    from keepworth.cli.output import say, say_terms, say_text
    from keepworth.evaluation.system import SETTINGS
    from keepworth.recipes.systems import NAMES as SYSTEMS
    from keepworth.recipes.systems import PATTERNS
    from keepworth.registry import methods
    from keepworth.tasks.benchmark import benchmarks as all_benchmarks
    from keepworth.tasks.benchmark import sizes

    known, declared, made = sizes(), methods("benchmark"), all_benchmarks()
    if as_json:
        benchmarks = {
            name: {
                "about": benchmark.about,
                "kind": made[name].kind,
                "questions": known[name]["questions"] if name in known else None,
                "licence": made[name].licence,
                "shipped": made[name].shipped,
                "settings": list(made[name].settings()),
            }
            for name, benchmark in declared.items()
        }
        systems = {**SYSTEMS, **PATTERNS}
        say_json(
            {"benchmarks": benchmarks, "systems": systems, "settings": SETTINGS, "streams": list(methods("world"))},
            indent=1,
        )
        return
    rows = []
    for name, benchmark in declared.items():
        data = made[name]
        count = " / ".join(f"{many:,}" for many in known[name]["questions"].values()) if name in known else "?"
        where = "" if data.shipped else "  (--data)"
        rows.append((name, f"{benchmark.about}; {data.kind}, {count}; {data.licence}{where}"))
        if details:
            rows.append(("", f"--set {', '.join(f'{setting}=' for setting in data.settings())}"))
    say_text("benchmarks, for `keepworth eval run BENCHMARK SYSTEM...`; questions of train, dev, test")
    say_terms([*rows, ("FILE.jsonl", "questions of your own")])
    say("\nsystems")
    say_terms([*SYSTEMS.items(), *PATTERNS.items()])
    say("\nsettings, for --setting")
    say_terms(SETTINGS.items())
    say("")
    say_text("streams, for `keepworth eval stream --streams NAME`")
    say_terms([("", ", ".join(methods("world")))])


def run(
    benchmark: Annotated[str, argument("", "A name from `keepworth eval list`, or a .jsonl file of your own.")],
    systems: Annotated[
        list[str] | None, argument("", f"What is measured; {', '.join(USUAL)} if none is named.")
    ] = None,
    settings: Annotated[
        str, option("--setting", "One or several, separated by commas: see `keepworth eval list`.")
    ] = "frozen",
    split: Annotated[str, option("--split", "train, dev or test.")] = "test",
    data: Annotated[
        Path | None, option("--data", "Where data lies that is not shipped.", envvar="KEEPWORTH_DATA")
    ] = None,
    assign: Annotated[list[str] | None, option("--set NAME=VALUE", "A setting of the benchmark.")] = None,
    reader: Annotated[
        str,
        option(
            "--reader",
            "Who answers: a model's name or folder, run:NAME for the answerer that a run trained, the URL of an "
            "OpenAI-compatible endpoint, or `none` to look only at what is found.",
        ),
    ] = READER,
    endpoint_model: Annotated[str, option("--model", "The model's name at that URL.")] = "",
    key_variable: Annotated[
        str, option("--key-variable", "The environment variable that holds the endpoint's key.")
    ] = "",
    judge: Annotated[
        str, option("--judge", "A model at the reader's endpoint that scores answers too, beside the words.")
    ] = "",
    tokens: Annotated[int, option("--tokens", "How much is shown at most, for every system.", min=1)] = 512,
    words: Annotated[int, option("--words", "Words of one entry of the memory, at most.", min=1)] = 60,
    encoder: Annotated[str, option("--encoder", "For every system that needs one.")] = "minilm",
    limit: Annotated[int, option("--limit -n", "Only so many questions, drawn evenly; 0 for all.", min=0)] = 0,
    seeds: Annotated[int, option("--seeds", "How often, with other draws.", min=1)] = 1,
    patience: Annotated[
        float, option("--patience", "Seconds that a program, command:WORDS, has for a call.", min=0.1)
    ] = 60.0,
    out: Annotated[
        Path | None, option("--out", "A folder: rows, summary, page. runs/eval/BENCHMARK if not given.")
    ] = None,
    as_json: Annotated[bool, option("--json", "Print the summary as JSON instead.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Measure memory systems on a benchmark or on questions of your own: does memory help, and where do points go?

    Every system is told the same, asked the same, and shows as much. The same command, given again, continues where it stopped.
    """
    import json

    from rich.progress import Progress

    from keepworth.episodes.errors import KeepworthError, UnknownName
    from keepworth.episodes.extras import require
    from keepworth.episodes.text import terminal
    from keepworth.evaluation.evaluation_page import write_page
    from keepworth.evaluation.harness import MOST, Conditions, EvaluationFolder, measure
    from keepworth.evaluation.reading import ChatReader, KeptAnswers
    from keepworth.evaluation.summary import summed
    from keepworth.evaluation.system import LIVE, SETTINGS, NeverAnswered, Poison
    from keepworth.memory import by_name
    from keepworth.models.vectors import KeptVectors
    from keepworth.recipes.systems import chosen, maker

    require("eval", "keepworth eval run")
    names = chosen(systems or list(USUAL))
    wanted = settings.split(",")
    for setting in wanted:
        if setting not in SETTINGS:
            raise UnknownName("setting", setting, SETTINGS)
    found, tasks, identity = opened(benchmark, split, data, assign or [], limit)
    folder = out or Path("runs/eval") / found.name
    held: list[KeptVectors] = []

    def encoder_once() -> KeptVectors:
        if not held:
            held.append(KeptVectors(by_name.encoder(encoder), folder.parent / "vectors"))
        return held[0]

    makers = {name: maker(name, encoder_once, patience) for name in ["none", *names]}
    answering = reader_of(reader, endpoint_model, key_variable, runs)
    unpaid = [setting for setting in wanted if setting in LIVE]
    if answering is None and unpaid:
        raise KeepworthError(
            "without a reader no answer earns anything.", f"Leave --setting {','.join(unpaid)} out, or name a reader."
        )
    scorer = judge_of(judge, reader, key_variable)
    identity |= {
        "tokens": tokens,
        "words": words,
        "most": MOST,
        "poison": Poison().share,
        "encoder": encoder,
        "reader": answering.identity if answering is not None else "none",
        "judge": judge or "none",
    }
    from keepworth.learning.run_folder import versions

    arms = arms_of(names, wanted)
    planned = planned_for(tasks, len(arms) - 1)
    asked = answering
    if answering is not None:
        at_once = 1 if isinstance(answering, ChatReader) else AT_ONCE
        answering = KeptAnswers(answering, folder.parent / "answers", at_once)
    record = EvaluationFolder(folder, {**identity, "versions": versions()})
    console = terminal(stderr=as_json)  # standard output has the result and nothing else
    console.print(planned, highlight=False)
    jobs = [(name, Conditions(setting, seed, tokens, words)) for seed in range(seeds) for name, setting in arms]
    left_out: dict[str, NeverAnswered] = {}
    known = {job: record.done(*job) for job in jobs}
    with (
        Progress(console=console, disable=not console.is_terminal) as progress,
        stopping("The same command continues with what is missing."),
    ):
        bar = progress.add_task("questions", total=len(jobs) * len(tasks))
        for job in jobs:
            name, plan = job
            if name in left_out:
                continue
            progress.update(bar, advance=len(known[job]), description=f"{name} {plan.setting}")

            def keep(row: Any) -> None:
                record.keep(row)
                progress.advance(bar)

            try:
                measure(
                    name,
                    makers[name],
                    tasks,
                    plan,
                    answering,
                    judge=scorer,
                    done=known[job],
                    keep=keep,
                    note=record.note,
                )
            except NeverAnswered as reason:  # the others are measured all the same
                left_out[name] = reason
    shown = {(name, plan.setting, plan.seed) for name, plan in jobs}
    rows = [row for row in record.read() if (row.system, row.setting, row.seed) in shown]
    summary = {**identity, "versions": versions(), "planned": planned, **summed(rows, record.costs())}
    (folder / "summary.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        say_json(summary, indent=1)
    else:
        show(console, summary)
    if isinstance(asked, ChatReader) and asked.unnamed:
        console.print(f"{asked.unnamed} answers named no option, and count as wrong.", highlight=False)
    page = write_page(folder, summary, rows, tasks)
    console.print(f"{page}, {folder}/summary.json, {folder}/rows.jsonl", highlight=False)
    if left_out:
        missed, why = next(iter(left_out.items()))
        others = f" ({', '.join(list(left_out)[1:])} neither)" if len(left_out) > 1 else ""
        raise KeepworthError(f"{missed} was not measured{others}: {why.message}", why.fix)


def opened(
    name: str, split: str, data: Path | None, assign: Sequence[str], limit: int
) -> tuple[Benchmark, list[Any], dict[str, Any]]:
    """A benchmark, its questions, and what says which they were. Raises KeepworthError where an option says nothing about it."""
    from keepworth.episodes.errors import KeepworthError
    from keepworth.registry import methods
    from keepworth.tasks.benchmark import Benchmark, digest, named, refuse_leaks, scoring, typed
    from keepworth.tasks.data_files import VARIABLE
    from keepworth.tasks.json_lines import json_lines
    from keepworth.tasks.splits import SPLITS, draw_order

    # The environment names a folder for whatever needs it; who names one for this alone means it.
    place = os.environ.get(VARIABLE)
    meant = data is not None and not (place and data == Path(place))
    if name.endswith((".jsonl", ".jsonl.gz")):
        for option in (["--data"] if meant else []) + (["--set"] if assign else []):
            raise KeepworthError(f"{option} has no effect on {name}, a file of questions of your own.", "Leave it out.")
        own = Path(name)
        found = Benchmark(own.name.removesuffix(".gz").removesuffix(".jsonl"), json_lines)
        tasks = found(split, data=own)
        refuse_leaks({side: [t for t in found.load(side, data=own) if t.tags["split"] == side] for side in SPLITS})
        dials: dict[str, Any] = {}
    elif name in methods("world"):
        raise KeepworthError(f"{name} is a stream of tasks.", f"keepworth eval stream --streams {name}")
    else:
        found = named(name)
        if meant and found.shipped:
            raise KeepworthError(f"--data has no effect on {name}, which comes with the package.", "Leave it out.")
        dials = typed(found.settings(), assign, f"benchmark {found.name!r}")
        tasks = found(split, data=None if found.shipped else data, **dials)
    whole = len(tasks)
    if limit and limit < whole:
        kept = set(sorted((task.key for task in tasks), key=lambda key: draw_order("limit", key))[:limit])
        tasks = [task for task in tasks if task.key in kept]
    identity = {
        "benchmark": found.name,
        "split": split,
        "dials": {**found.dials, **dials},
        "questions": len(tasks),
        "of": whole,
        "data": digest(tasks),
        "scoring": scoring(tasks),
    }
    return found, tasks, identity


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def planned_for(tasks: Sequence[Any], comparisons: int) -> str:
    """What so many questions can tell, said before they are asked."""
    from keepworth.evaluation.power import fewest, over_questions, plan
    from keepworth.tasks.benchmark import cluster_of

    clusters = len({cluster_of(task) for task in tasks})
    needed = fewest(comparisons)
    if clusters < needed:
        among = f" of {comparisons} comparisons" if comparisons > 1 else ""
        return (
            f"{many(len(tasks), 'question')} in {many(clusters, 'cluster')}, too few for a verdict{among}: {needed} clusters are "
            "needed. What follows says how it went, not what holds."
        )
    return plan(
        over_questions(len(tasks), clusters),
        clusters,
        comparisons=max(1, comparisons),
        source="declared: one in 4 questions is answered by one alone",
        unit="clusters",
    ).text


def arms_of(names: Sequence[str], settings: Sequence[str]) -> list[tuple[str, str]]:
    """Systems with their settings: no memory is the same under all and is asked once, and the oracle is the same for all."""
    alone = [("none", "frozen")] if "none" in names and "frozen" not in settings else []
    for setting in dict.fromkeys(settings):
        if setting == "oracle":
            alone.append(("none", setting))
        else:
            alone += [(name, setting) for name in names if name != "none" or setting == "frozen"]
    return alone


def reader_of(name: str, endpoint_model: str, key_variable: str, runs: Path) -> BenchmarkReader | None:
    """Who answers. Raises KeepworthError where an option does not fit."""
    from keepworth.episodes.errors import KeepworthError, UnknownName

    if name.startswith(("http://", "https://")):
        from keepworth.evaluation.reading import ChatReader
        from keepworth.models.chat import ChatModel

        if not endpoint_model:
            raise KeepworthError("an endpoint serves several models.", "Name one with --model.")
        chat = ChatModel(name, endpoint_model, key_variable=key_variable, max_tokens=256)
        return ChatReader(lambda text: chat.complete([{"role": "user", "content": text}]), f"{endpoint_model}@{name}")
    if endpoint_model or key_variable:
        raise KeepworthError("--model and --key-variable are for an endpoint.", "Give its URL as --reader.")
    if name == "none":
        return None
    from keepworth.episodes.extras import require

    require("llm", "a reader in this process")
    from keepworth.agents.answerer import ModelReader
    from keepworth.models.files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel

    if name.startswith("run:"):
        from keepworth.agents.answerer import Style
        from keepworth.learning.run_folder import find_run
        from keepworth.models.files import sha256_of
        from keepworth.recipes.training import kept_weights, with_weights

        named = name.removeprefix("run:")
        try:
            run = find_run(named, runs)
        except UnknownName as error:
            if named == "demo":
                error.fix = "`keepworth demo` makes it, in some minutes."
            raise
        base, folder = str(run.config["model"]), kept_weights(run, "answerer")
        model = with_weights(InProcessModel.load(path_of(base, kind=ModelKind.LANGUAGE), name=base), folder)
        sums = "-".join(sha256_of(file)[:8] for file in sorted(folder.glob("*.safetensors")))
        return ModelReader(model, weights=f"{run.name}-{sums}", style=Style(run.config.get("style", "direct")))
    return ModelReader(InProcessModel.load(path_of(name, kind=ModelKind.LANGUAGE), name=name))


def judge_of(model: str, url: str, key_variable: str) -> Judge | None:
    """Raises KeepworthError where there is no endpoint to judge at."""
    from keepworth.episodes.errors import KeepworthError

    if not model:
        return None
    if not url.startswith(("http://", "https://")):
        raise KeepworthError(
            f"there is no endpoint for the judge {model!r}: it is asked where the reader is.",
            "Give its URL as --reader.",
        )
    from keepworth.models.chat import ChatModel, judge

    return judge(ChatModel(url, model, key_variable=key_variable))


def show(console: Any, summary: dict[str, Any]) -> None:
    """The verdict, the tables, and what failed."""
    from keepworth.cli.tables import print_table
    from keepworth.evaluation.evaluation_page import tables_of, verdict

    if summary["gains"]:
        console.print(verdict(summary), style="bold", highlight=False)
    for table in tables_of(summary):
        print_table(table, console)
    for arm, values in summary["arms"].items():
        for error, count in values["errors"].items():
            console.print(f"{arm} failed {count} times: {error}", highlight=False)
        for reason, count in values["unjudged"].items():
            console.print(f"{arm}: the judge gave no score for {count} answers: {reason}", highlight=False)


def compare(
    one: Annotated[str, argument("", "FOLDER:ARM, such as runs/eval/locomo:bm25; without an arm, all of them.")],
    other: Annotated[str, argument("", "What it is compared with.")],
    allow: Annotated[
        str, option("--allow", "What is meant to differ, such as reader, encoder or tokens; separated by commas.")
    ] = "",
    as_json: Annotated[bool, option("--json", "Print a line of JSON per pair.")] = False,
) -> None:
    """Compare systems of two evaluations, question by question. Refused where they were not asked the same under the same."""
    from dataclasses import asdict

    from keepworth.cli.output import say
    from keepworth.evaluation.comparison import compared_arms
    from keepworth.evaluation.statistics import ALPHA

    for comparison in compared_arms(one, other, [name for name in allow.split(",") if name]):
        told = comparison.adjusted < ALPHA and not comparison.low <= 0.0 <= comparison.high
        if as_json:
            say_json({**asdict(comparison), "told": told})
            continue
        verdict = ("ahead" if comparison.low > 0.0 else "behind") if told else "no difference can be told"
        say(
            f"{comparison.name}: {comparison.difference:+.3f} [{comparison.low:+.3f}, {comparison.high:+.3f}], "
            f"p {comparison.adjusted:.3g} after correction, {many(comparison.clusters, 'cluster')}: {verdict}"
        )
