"""Methods are looked up by name: files of the folder, and entry points of other packages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import keepworth
import keepworth.registry
from benchmarks.methods import judge, page, taxonomy
from benchmarks.methods.write import judged
from keepworth.evaluation.verdicts import VERDICTS
from keepworth.registry import KINDS, TAGS, Kind, evidence, methods

SOURCE = Path(keepworth.__file__).parent
OUTSIDE = """
from keepworth import policy
from keepworth.registry import Method

def mine(*, k: int = 2):
    return policy("exprag", k=k)

METHOD = Method(kind="policy", name="NAME", title="Mine", about="what I made", make=mine)
"""
FIELDS = {
    "kind", "name", "title", "paper", "about", "claim", "differs", "label", "tags", "extra", "parts", "on", "verdict",
    "evidence", "bound", "uncommitted",
}  # fmt: skip
MEASURED = {
    "name", "command", "revision", "machine", "model", "n", "seeds", "unit", "arms", "comparisons", "controls",
    "rule", "verdict", "bound", "because", "where", "sentence",
}  # fmt: skip


def python(*words: str, path: Path = SOURCE.parent, also: Path | str = "") -> subprocess.CompletedProcess[str]:
    """Python with the package in `path`, and another folder on its path."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, (path, also))))}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=given)


def keepworth_methods(*words: str, **where: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "keepworth", "methods", *words, **where)


def installed(folder: Path, name: str, source: str = OUTSIDE) -> Path:
    """A package with one method, as an installer would leave it."""
    (folder / "outside.py").write_text(source.replace("NAME", name))
    about = folder / "outside-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[keepworth.methods]\nmine = outside:METHOD\n")
    return folder


def test_all_methods_are_listed_with_all_fields_and_without_torch() -> None:
    heavy = {"torch", "transformers", "onnxruntime", "tokenizers", "scipy", "gymnasium", "starlette", "uvicorn"}
    script = "import sys; from keepworth.cli.main import main; main(['methods', '--json']); "
    script += f"print({heavy} & set(sys.modules) or 'none')"
    *listed, loaded = python("-c", script).stdout.splitlines()
    assert loaded == "none"
    rows = [json.loads(line) for line in listed]
    assert {(row["kind"], row["name"]) for row in rows} == {(kind, name) for kind in KINDS for name in methods(kind)}
    assert all(set(row) == FIELDS and row["title"] and row["about"] for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_methods_have_a_one_line_description(kind: str) -> None:
    for name, method in methods(kind).items():  # type: ignore[arg-type]
        assert (method.kind, method.name) == (kind, name)
        assert method.about.splitlines() == [method.about]
        assert method.label in ("", "analogue", "protocol", "small", "unmeasured")
        assert callable(method.make)


def test_a_package_outside_adds_a_method_by_an_entry_point(tmp_path: Path) -> None:
    outside = installed(tmp_path, "mine")
    shown = keepworth_methods("show", "mine", also=outside)
    assert "what I made" in shown.stdout
    script = "from keepworth import Memory\nwith Memory(policy='mine', encoder='hashing') as m: print(m.policy)"
    ran = python("-c", script, also=outside)
    assert ran.stdout == "mine\n", ran.stderr


def test_two_methods_of_one_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    listed = keepworth_methods("--kind", "policy", also=installed(tmp_path, "memrl"))
    assert listed.returncode == 2
    assert "the entry point outside:METHOD" in listed.stderr
    assert "memrl.py" in listed.stderr


def test_a_broken_file_is_named_with_its_path_and_stops_no_other(tmp_path: Path) -> None:
    copied = tmp_path / "keepworth"
    shutil.copytree(SOURCE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "methods" / "policies" / "torn.py").write_text("import there_is_no_such_module\n")
    listed = keepworth_methods(path=tmp_path)
    assert f"not loaded: {copied / 'methods' / 'policies' / 'torn.py'}: ModuleNotFoundError" in listed.stderr
    assert "memrl" in listed.stdout
    ran = python("-c", "from keepworth import policy; policy('torn')", path=tmp_path)
    assert "torn.py: ModuleNotFoundError" in ran.stderr.splitlines()[-1]


def test_show_says_why_an_entry_point_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('no engine here')\n")
    package = tmp_path / "broken-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[keepworth.methods]\nbroken-one = broken_module:METHOD\n")
    ran = python("-m", "keepworth", "methods", "show", "broken-one", also=tmp_path)
    assert ran.returncode == 2
    assert "The method 'broken-one' cannot be loaded." in ran.stderr
    assert "the entry point broken_module:METHOD: RuntimeError: no engine here" in " ".join(ran.stderr.split())
    assert "There is no method" not in ran.stderr


def test_memory_methods_are_tagged_by_kind() -> None:
    for method in methods().values():
        if method.kind in ("policy", "writer", "memory_module", "study") and method.name != "mlp":
            assert all({*tags} & {*method.tags} for tags in TAGS.values()), method.name
        if method.kind in ("world", "benchmark"):
            assert method.tags
            assert {*method.tags} <= {*TAGS["function"]}, method.name
    assert "memrl" in keepworth_methods("--tag", "experiential").stdout
    assert "Did you mean 'latent'" in keepworth_methods("--tag", "laten").stderr


def test_a_method_that_there_is_not_is_answered_with_the_nearest() -> None:
    shown = keepworth_methods("show", "memlr")
    assert shown.returncode == 2
    assert "memrl" in shown.stderr


def test_methods_show_prints_measurements_and_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # lines are broken where a width is given
    shown = keepworth_methods("show", "memrl").stdout
    assert re.search(r"^  near-miss \(n = 30\) +none 0\.347, random 0\.382, exprag 0\.559", shown, re.M)
    assert "  command: --json prints it, as it is long\n" in shown
    assert len(shown.splitlines()) < 40
    assert json.loads(keepworth_methods("show", "memrl", "--json").stdout)["evidence"]["command"]
    one = keepworth_methods("show", "grpo").stdout
    assert "  command: python -m benchmarks.objectives.run; python -m benchmarks.methods.objectives grpo\n" in one
    assert "  grpo, all: 0.7033 [0.6405, 0.7593] (n = 5)\n" in one


def test_every_method_has_evidence_or_says_that_it_is_unmeasured() -> None:
    every = [each for kind in KINDS for each in methods(kind).values()]
    assert not [each.name for each in every if evidence(each) is None and each.label != "unmeasured"]


@pytest.mark.slow
def test_a_release_holds_no_unmeasured_method() -> None:
    assert not [each.name for kind in KINDS for each in methods(kind).values() if each.label == "unmeasured"]


@pytest.mark.parametrize(
    ("kind", "name"), [("policy", "kernel_mean"), ("policy", "kernel-mean"), ("world", "banking77_clean")]
)
def test_dashes_and_underscores_count_as_the_same_in_names(kind: Kind, name: str) -> None:
    assert keepworth.registry.method(kind, name).name == keepworth.registry.method(kind, name.replace("_", "-")).name


def test_a_kind_is_spelt_with_dashes_or_underscores() -> None:
    listed = [keepworth_methods("--kind", kind).stdout for kind in ("memory-module", "memory_module")]
    assert "gru" in listed[0]
    assert listed[0] == listed[1]


def test_generated_method_pages_are_current() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.rendered(), "python -m benchmarks.pages methods"
    assert taxonomy.PAGE.read_text(encoding="utf-8") == taxonomy.rendered(), "python -m benchmarks.pages methods"
    named = {text for kind in KINDS for name in methods(kind) for text in (name, f"{name}.{kind}")}
    files = sorted(Path(page.__file__).parent.glob("*.json"))
    assert {file.stem for file in files} <= named
    for file in files:
        measured = json.loads(file.read_text(encoding="utf-8"))
        assert set(measured) == MEASURED, file
        assert measured["name"] == file.stem.partition(".")[0]
        assert measured["verdict"] in VERDICTS
        assert measured["controls"], file
        assert all(set(arm) == {"name", "mean", "interval", "n"} for arm in measured["arms"])
        assert all(set(other) == {"against", "mean", "interval"} for other in measured["comparisons"])
        names = re.findall(r"python -m (benchmarks[\w.]+)", measured["command"])
        here = all(Path(page.__file__).parents[2].joinpath(f"{name.replace('.', '/')}.py").is_file() for name in names)
        assert here or measured["command"].startswith(f"git checkout {measured['revision']}; "), file
        assert (measured["verdict"] == "stale") == (not here or "git checkout" in measured["command"]), file


def test_every_stored_verdict_is_the_one_that_the_rule_gives_the_stored_numbers() -> None:
    for method, file, record in judge.records():
        assert record["rule"] == judge.rule_now(method, record), f"{file.name}: python -m benchmarks.methods.judge"
        claims = [each.claim for kind in KINDS for each in methods(kind).values() if each.name == method.name]
        verdicts = [judged(record, claim) for claim in (method.claim, *claims)]
        assert record in verdicts, f"{file.name}: python -m benchmarks.methods.judge"


def test_a_method_that_helps_somewhere_and_harms_over_all_says_both_in_the_list() -> None:
    listed = keepworth_methods("--kind", "policy").stdout
    assert "[not held: helps on events and harms over all]" in " ".join(listed.split())


def test_the_list_counts_verdicts_and_records_of_uncommitted_code() -> None:
    listed = keepworth_methods("--kind", "objective").stdout
    rows = [json.loads(line) for line in keepworth_methods("--kind", "objective", "--json").stdout.splitlines()]
    undecided = sum(row["verdict"] == "undecided" for row in rows)
    assert f"{len(rows)} methods: " in listed
    assert f" {undecided} undecided" in listed
    assert f"* {sum(row['uncommitted'] for row in rows)} of them were measured on a tree with changes" in listed
    assert "[undecided*]" in listed


def test_a_record_without_its_command_is_stale_in_the_list(tmp_path: Path) -> None:
    copied = tmp_path / "src" / "keepworth"
    shutil.copytree(SOURCE, copied, ignore=shutil.ignore_patterns("__pycache__", "evidence"))
    records = tmp_path / "benchmarks" / "methods"
    records.mkdir(parents=True)
    shutil.copy(Path(page.__file__).parent / "gspo.json", records)
    shown = keepworth_methods("show", "gspo", path=tmp_path / "src").stdout
    assert re.search(r"^  verdict +stale$", shown, re.M)
    assert "benchmarks.objectives.run, benchmarks.methods.objectives is gone" in " ".join(shown.split())


def test_methods_show_prints_the_rule_the_numbers_and_the_bound() -> None:
    shown = keepworth_methods("show", "dr_grpo").stdout
    assert re.search(r"^  verdict +undecided$", shown, re.M)
    shown = " ".join(shown.split())  # lines are broken by the width of the terminal
    assert "+0.049 [-0.076, +0.175] against grpo: dr_grpo, all" in shown
    assert "+0.175 is the largest gain that the numbers allow" in shown
    assert "A gain worth having is .05 of the score's range" in shown
    assert "on a tree with changes that are in no commit" in shown
