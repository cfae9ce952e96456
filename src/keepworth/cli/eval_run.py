"""`keepworth eval list` and `keepworth eval run`: memory systems on benchmarks, or on questions of one's own."""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.base.errors import KeepworthError, UnknownName, require_known
from keepworth.base.extras import require
from keepworth.cli.command import App, argument, option
from keepworth.cli.methods import print_rows
from keepworth.cli.output import Runs, say, say_json, say_terms, say_text, stopping, working
from keepworth.cli.tables import print_evaluation
from keepworth.registry import methods

if TYPE_CHECKING:
    from keepworth.evaluation.harness import BenchmarkReader
    from keepworth.evaluation.judge import Judge
    from keepworth.evaluation.tasksets import OpenedTaskset, TasksetReader
    from keepworth.models.inprocess import InProcessModel

USUAL = ("none", "bm25", "dense", "keepworth")
READER = "smollm2-135m-instruct"


app = App(help="Measure models and runs on held-out questions, and memories on streams.")


@app.command(
    "list",
    examples="""
    keepworth eval list
    keepworth eval list --details
    """,
)
def listing(
    details: Annotated[bool, option("--details", "Also what each benchmark can be set to.")] = False,
    as_json: Annotated[bool, option("--json", "Print it as JSON.")] = False,
) -> None:
    """Say what can be measured, on what, and under which settings."""
    from keepworth.evaluation.arms import CHANGES, describe_methods
    from keepworth.evaluation.named_systems import NAMES as SYSTEMS
    from keepworth.evaluation.named_systems import PATTERNS
    from keepworth.evaluation.stream_claims import CONTROL_ABOUT
    from keepworth.evaluation.system import SETTINGS
    from keepworth.worlds.benchmark import benchmarks as all_benchmarks
    from keepworth.worlds.benchmark import sizes
    from keepworth.worlds.streams import KIND_NAMES, missing, worlds

    shipped, made = sizes(), all_benchmarks()
    about = {name: method.about for name, method in methods("world").items()}
    benchmarks: dict[str, dict[str, Any]] = {
        name: {
            "about": benchmark.about,
            "kind": made[name].kind,
            "questions": shipped[name]["questions"] if name in shipped else None,
            "licence": made[name].licence,
            "shipped": made[name].shipped,
            "settings": list(made[name].settings()),
        }
        for name, benchmark in methods("benchmark").items()
    }
    streams = {
        name: {"kind": world.kind, "about": about[name], "needs": lacks.fix if (lacks := missing(name)) else None}
        for name, world in worlds().items()
    }
    systems, learning = {**SYSTEMS, **PATTERNS}, describe_methods()
    if as_json:
        evaluated = {"benchmarks": benchmarks, "systems": systems, "settings": SETTINGS}
        arms = {"methods": learning, "controls": CONTROL_ABOUT, "changes": CHANGES}
        say_json({**evaluated, "streams": streams, "arms": arms}, indent=1)
        return
    rows = []
    for name, data in benchmarks.items():
        count = " / ".join(f"{many:,}" for many in data["questions"].values()) if data["questions"] else "?"
        where = "" if data["shipped"] else "  (--data)"
        rows.append((name, f"{data['about']}; {data['kind']}, {count}; {data['licence']}{where}"))
        if details:
            rows.append(("", f"--set {', '.join(f'{setting}=' for setting in data['settings'])}"))
    say_text("benchmarks, for `keepworth eval run BENCHMARK SYSTEM...`; questions of train, dev, test")
    say_terms([*rows, ("FILE.jsonl", "questions of your own")])
    say("\nsystems")
    say_terms(systems.items())
    say("\nsettings, for --setting")
    say_terms(SETTINGS.items())
    say("\nstreams, for `keepworth eval stream --streams NAME`")
    for kind, title in KIND_NAMES.items():
        say(f"\n{title}")
        of_kind = {name: stream for name, stream in streams.items() if stream["kind"] == kind}
        say_terms((name, ". ".join(filter(None, (of["about"], of["needs"])))) for name, of in of_kind.items())
    say_text("NAME~swap, NAME~event, NAME~drift or NAME~hidden=0.5 is that stream with chance in it.")
    for title, named in (("arms, for --arms", learning), ("controls", CONTROL_ABOUT), ("changes", CHANGES)):
        say(f"\n{title}")
        say_terms(named.items())


@app.command(
    examples="""
    keepworth eval run longmemeval none bm25 keepworth --setting frozen,oracle
    keepworth eval run mine.jsonl none keepworth --reader http://localhost:8000 --model my-model
    keepworth eval run verifiers:my-taskset none keepworth --set attempts=32 --reader http://localhost:8000 --model my-model
    keepworth eval run demo --diagnose
    keepworth eval run mine coins --diagnose spurious pass_at_k
    """
)
def run(
    context: typer.Context,
    benchmark: Annotated[
        str,
        argument(
            "",
            "A name from `keepworth eval list`, a .jsonl file of your own, or verifiers:NAME for a taskset of verifiers; with "
            "--diagnose a finished run.",
        ),
    ],
    systems: Annotated[list[str] | None, argument("", f"Measured; {', '.join(USUAL)} if none is named.")] = None,
    settings: Annotated[str, option("--setting", "One or several, with commas: see `keepworth eval list`.")] = "frozen",
    split: Annotated[str, option("--split", "train, dev or test.")] = "test",
    data: Annotated[Path | None, option("--data", "Folder of the benchmark's data.", envvar="KEEPWORTH_DATA")] = None,
    assign: Annotated[list[str] | None, option("--set NAME=VALUE", "A setting of the benchmark.")] = None,
    reader: Annotated[
        str,
        option(
            "--reader",
            "Who answers: a model's name or folder, run:NAME for the model that a run trained, the URL of an "
            "OpenAI-compatible endpoint, or `none` to look only at what is found.",
        ),
    ] = READER,
    endpoint_model: Annotated[str, option("--model", "The model's name at that URL.")] = "",
    key_variable: Annotated[str, option("--key-variable", "The variable that holds the endpoint's key.")] = "",
    judge: Annotated[str, option("--judge", "A model at the reader's endpoint that scores answers, too.")] = "",
    tokens: Annotated[int, option("--tokens", "How much is shown at most, for every system.", min=1)] = 512,
    words: Annotated[int, option("--words", "Words of one entry of the memory, at most.", min=1)] = 60,
    encoder: Annotated[str, option("--encoder", "The encoder of every system that needs one.")] = "minilm",
    limit: Annotated[int, option("--limit -n", "Only so many questions, drawn evenly; 0 for all.", min=0)] = 0,
    seeds: Annotated[int, option("--seeds", "Repetitions, with a new seed for each.", min=1)] = 1,
    patience: Annotated[
        float, option("--patience", "Seconds that a system `command:WORDS` has for a call.", min=0.1)
    ] = 60.0,
    out: Annotated[Path | None, option("--out", "A folder; runs/eval/BENCHMARK if not given.")] = None,
    diagnose: Annotated[
        bool,
        option(
            "--diagnose",
            "Ask finished runs, named in the place of BENCHMARK and SYSTEMS, their own questions, by the diagnostics "
            "that are named behind them, or by all. They take --set samples=8, --set questions=16 and others.",
        ),
    ] = False,
    as_json: Annotated[bool, option("--json", "Print the summary as JSON instead.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Measure memory systems on a benchmark or on questions of your own: does memory help, and where do points go?

    Every system reads the same text, gets the same questions, and may show as many tokens. The same command continues a run that
    was stopped.
    """
    if diagnose:
        _diagnose_runs(context, [benchmark, *(systems or [])], assign or [])
        return
    from rich.progress import Progress

    from keepworth.base.text import terminal
    from keepworth.evaluation.kept_vectors import KeptVectors
    from keepworth.evaluation.named_systems import maker
    from keepworth.evaluation.reading import ChatReader
    from keepworth.evaluation.run import arms_of, evaluate, open_questions
    from keepworth.evaluation.system import SETTINGS
    from keepworth.evaluation.tasksets import open_taskset, remember_attempts
    from keepworth.memory import by_name
    from keepworth.training.tasksets import PREFIX

    require("eval", "keepworth eval run")
    names = systems or list(USUAL)
    if len(set(names)) < len(names):
        raise KeepworthError(f"a system of {', '.join(names)} is named twice.", "Name each once.")
    wanted = [require_known("setting", setting, SETTINGS) for setting in settings.split(",")]
    answering: BenchmarkReader | None
    if benchmark.startswith(PREFIX):
        _refuse_for_taskset(benchmark, wanted, data, judge, reader)
        taskset = open_taskset(benchmark, split, assign or [], limit)
        name, tasks, identity = taskset.name, taskset.questions, dict(taskset.identity)
        answering = _player_of(taskset, reader, endpoint_model, key_variable, runs)
    else:
        opened, tasks, identity = open_questions(benchmark, split, data, assign or [], limit)
        name, answering, taskset = opened.name, reader_of(reader, endpoint_model, key_variable, runs), None
    folder = out or Path("runs/eval") / name
    vectors = cache(lambda: KeptVectors(by_name.encoder(encoder), folder.parent / "vectors"))
    console = terminal(stderr=as_json)  # standard output has the result and nothing else
    announce = partial(console.print, highlight=False, markup=False)
    with (
        Progress(console=console, disable=not console.is_terminal) as progress,
        stopping("The same command continues with what is missing."),
    ):
        bar = progress.add_task("questions", total=None)
        summary, left_out = evaluate(
            tasks,
            arms_of(names, wanted),
            {name: maker(name, vectors, patience) for name in ["none", *names]},
            folder,
            {**identity, "encoder": encoder, "judge": judge or "none"},
            prepare=None if taskset is None else lambda model: remember_attempts(taskset, model, announce),
            reader=answering,
            judge=_judge_of(judge, reader, key_variable),
            seeds=seeds,
            tokens=tokens,
            words=words,
            announce=announce,
            progress=lambda arm, done, total: progress.update(bar, description=arm, completed=done, total=total),
        )
    if as_json:
        say_json(summary, indent=1)
    else:
        print_evaluation(summary, console)
    if isinstance(answering, ChatReader) and answering.unnamed:
        console.print(f"{answering.unnamed} answers named no option, and count as wrong.", highlight=False)
    console.print(f"{folder}/report.html, {folder}/summary.json, {folder}/rows.jsonl", highlight=False)
    if left_out:
        missed, why = next(iter(left_out.items()))
        others = f" ({', '.join(list(left_out)[1:])} neither)" if len(left_out) > 1 else ""
        raise KeepworthError(f"{missed} was not measured{others}: {why.message}", why.fix)


def _diagnose_runs(context: typer.Context, named: list[str], assign: list[str]) -> None:
    """Runs diagnostics on finished runs, each of which gives a table or the reason why it has none. `named` are names of runs and
    of diagnostics. Raises KeepworthError where an option or a setting has no effect, and where no diagnostic gives a table."""
    from inspect import signature

    from keepworth.evaluation.finished_runs import open_finished_run
    from keepworth.evaluation.study import diagnostics
    from keepworth.worlds.benchmark import read_settings

    heeded = {"benchmark", "systems", "assign", "diagnose", "runs", "as_json"}
    for parameter in context.command.params:
        source, name = context.get_parameter_source(str(parameter.name)), str(parameter.name)
        if name not in heeded and source is not None and source.name == "COMMANDLINE":
            raise KeepworthError(f"{parameter.opts[0]} changes nothing with --diagnose.", "Leave it out.")
    declared, as_json = diagnostics(), context.params["as_json"]
    studies = {name: declared[name] for name in named[1:] if name in declared} or declared
    _, _, *files = signature(open_finished_run).parameters.items()
    possible = {key: value for study in studies.values() for key, value in study.asking().items()}
    settings = read_settings({**dict(files), **possible}, assign, f"diagnostics {', '.join(studies)}")
    opening = {key: settings.pop(key) for key, _ in files if key in settings}
    names = [named[0], *(name for name in named[1:] if name not in declared)]
    runs = [open_finished_run(name, str(context.params["runs"]), **opening) for name in names]
    refused = []
    for name, study in studies.items():
        try:
            with working(f"asking by {name}, which may take minutes"):
                rows = study.ask(runs, **settings)
        except KeepworthError as error:
            refused.append(error)
            if len(studies) > 1:
                say(f"{name}: {error}\n", error=as_json)
            continue
        if not as_json:
            say(name)
        print_rows(name, study.unit, rows, as_json)
        if not as_json:
            say("")
    if len(refused) == len(studies):
        raise refused[0]


def reader_of(name: str, endpoint_model: str, key_variable: str, runs: Path) -> BenchmarkReader | None:
    """Makes the reader. Raises KeepworthError where an option does not fit.

    Args:
        name: The value of --reader: a model, an endpoint's URL, "run:NAME" for a trained reader, or "none".
        endpoint_model: The name of the model at an endpoint, "" for none.
        key_variable: The environment variable that holds the endpoint's key, "" for none.
        runs: The folder in which trained runs are looked up.
    """
    _check_endpoint(name, endpoint_model, key_variable)
    if name == "none":
        return None
    if not name.startswith("run:"):
        from keepworth.evaluation.reading import open_reader

        return open_reader(name, endpoint_model, key_variable)

    require("llm", "a reader in this process")
    from keepworth.worlds.answerer import ModelReader, Style

    model, weights, style = _trained_model(name, "answerer", runs)
    return ModelReader(model, weights=weights, style=Style(style))


def _check_endpoint(reader: str, model: str, key_variable: str) -> None:
    """Raises KeepworthError where an option of an endpoint does not fit the reader."""
    endpoint = reader.startswith(("http://", "https://"))
    if endpoint and not model:
        raise KeepworthError("an endpoint serves several models.", "Name one with --model.")
    if not endpoint and (model or key_variable):
        raise KeepworthError("--model and --key-variable are for an endpoint.", "Give its URL as --reader.")


def _trained_model(name: str, role: str, runs: Path) -> tuple[InProcessModel, str, str]:
    """Returns the model that a run trained, the name of its weights, and the run's style of answers.

    Args:
        name: "run:NAME".
        role: The role that it trained; "" for the only one.
        runs: The folder in which runs are looked up.
    """
    from keepworth.base.model_files import sha256_of
    from keepworth.training.run_folder import find_run
    from keepworth.training.trained import find_trained

    named = name.removeprefix("run:")
    try:
        run = find_run(named, runs)
    except UnknownName as error:
        if named == "demo":
            error.fix = "`keepworth demo` makes it, in some minutes."
        raise
    trained = find_trained(run, role)
    sums = "-".join(sha256_of(file)[:8] for file in sorted(trained.weights.glob("*.safetensors")))
    return trained.loaded("bf16"), f"{run.name}-{sums}", str(run.config.get("style", "direct"))


def _refuse_for_taskset(name: str, settings: list[str], data: Path | None, judge: str, reader: str) -> None:
    """Raises KeepworthError for an option that has no effect on a taskset.

    Args:
        name: The taskset.
        settings: The values of --setting.
        data: The value of --data; that of the environment variable serves all benchmarks.
        judge: The value of --judge.
        reader: The value of --reader.
    """
    from keepworth.worlds.data_files import VARIABLE

    folder = os.environ.get(VARIABLE)
    if data is not None and not (folder and data == Path(folder)):
        raise KeepworthError(f"--data has no effect on {name}, which brings its tasks.", "Leave it out.")
    if judge:
        raise KeepworthError(f"{name} brings its own rewards.", "Leave --judge out.")
    if reader == "none":
        raise KeepworthError(f"{name} is played by a model.", "Name one: --reader smollm2-135m-instruct, or a URL.")
    if "oracle" in settings:
        raise KeepworthError(
            f"nothing says which attempts would help with a task of {name}.", "Leave the setting `oracle` out."
        )


def _player_of(opened: OpenedTaskset, reader: str, model: str, key_variable: str, runs: Path) -> TasksetReader:
    """Makes the model that plays a taskset. Raises KeepworthError where an option does not fit.

    Args:
        opened: The taskset.
        reader: The value of --reader.
        model: The name of the model at an endpoint, "" for none.
        key_variable: The environment variable that holds the endpoint's key, "" for none.
        runs: The folder in which trained runs are looked up.
    """
    from keepworth.evaluation.tasksets import TasksetReader, serve_reader

    _check_endpoint(reader, model, key_variable)
    if model:
        return TasksetReader(opened, reader, model, key_variable=key_variable)
    require("llm", "a model of this process that plays a taskset")
    from keepworth.base.model_files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel

    if reader.startswith("run:"):
        trained, weights, _ = _trained_model(reader, "", runs)
        return serve_reader(opened, trained, weights)
    return serve_reader(opened, InProcessModel.load(path_of(reader, kind=ModelKind.LANGUAGE), name=reader))


def _judge_of(model: str, url: str, key_variable: str) -> Judge | None:
    """Makes the judge. Raises KeepworthError where there is no endpoint."""
    if not model:
        return None
    if not url.startswith(("http://", "https://")):
        raise KeepworthError(
            f"there is no endpoint for the judge {model!r}: it is asked where the reader is.",
            "Give its URL as --reader.",
        )
    from keepworth.base.chat import ChatModel
    from keepworth.evaluation.judge import judge

    return judge(ChatModel(url, model, key_variable=key_variable))


@app.command(examples="keepworth eval compare runs/eval/longmemeval:keepworth runs/eval/longmemeval:bm25")
def compare(
    one: Annotated[str, argument("", "FOLDER:ARM, such as runs/eval/locomo:bm25; without an arm, all of them.")],
    other: Annotated[str, argument("", "What it is compared with.")],
    allow: Annotated[str, option("--allow", "What is meant to differ, such as reader, with commas.")] = "",
    as_json: Annotated[bool, option("--json", "Print a line of JSON per pair.")] = False,
) -> None:
    """Compare systems of two evaluations, question by question. Refused where their questions or settings differ."""
    from dataclasses import asdict

    from keepworth.base.statistics import ALPHA
    from keepworth.evaluation.comparison import compare_arms
    from keepworth.evaluation.run import many

    for comparison in compare_arms(one, other, [name for name in allow.split(",") if name]):
        differs = comparison.adjusted < ALPHA and not comparison.low <= 0.0 <= comparison.high
        if as_json:
            say_json({**asdict(comparison), "told": differs})
            continue
        verdict = ("ahead" if comparison.low > 0.0 else "behind") if differs else "no difference can be told"
        say(
            f"{comparison.name}: {comparison.difference:+.3f} [{comparison.low:+.3f}, {comparison.high:+.3f}], "
            f"p {comparison.adjusted:.3g} after correction, {many(comparison.clusters, 'cluster')}: {verdict}"
        )
