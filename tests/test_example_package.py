"""The example package, installed as a stranger's is: its methods work through the public doors and pass the tests of their kinds.

docs/kit.md shows its files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import keepworth
from benchmarks.methods import kit as page
from keepworth import kit
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.pages import ROOT
from tests.recipes.tiny_runs import TINY

PACKAGE = ROOT / "examples" / "keepworth_example"
POINTS = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
NAMES: dict[str, str] = POINTS["keepworth.methods"]
LONGEST = 45
"""Lines of an example."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the package as an installer leaves it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE / "keepworth_example", folder / "keepworth_example")
    about = folder / "keepworth_example-1.0.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: keepworth-example\nVersion: 1.0.0\n")
    points = "".join(f"{name} = {module}\n" for name, module in NAMES.items())
    (about / "entry_points.txt").write_text(f"[keepworth.methods]\n{points}")
    return folder


def python(folder: Path, *words: str) -> str:
    """What Python prints with the package on its path."""
    path = os.pathsep.join((str(Path(keepworth.__file__).parents[1]), str(folder)))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


DOORS = """
import json
from keepworth import Memory
from keepworth.training.front_door import find_recipe
from keepworth.training.objective.presets import preset
from keepworth.worlds.streams import open_stream
from keepworth_example.adapter import ChatHistory

said = {}
with Memory(encoder="hashing", policy="upper_bound") as memory:
    for word in ("hold the button", "pull the plug"):
        memory.add(f"To reset the router {word}.")
    for _ in range(12):
        hits = memory.search("how do I reset the router", top_k=1)
        memory.reward(hits.decision, float("plug" in hits[0].text))
    said["policy"] = [memory.policy, hits[0].text]
with Memory(encoder="hashing", writer="on-request") as memory:
    text = "Hello! Please remember that the gate closes at nine. Thanks."
    for _ in range(2):
        memory.add([{"role": "user", "content": text}, {"role": "assistant", "content": "note: I was not asked."}], infer=True)
    said["writer"] = [item.text for item in memory.get_all()]
with Memory(encoder="hashing", stages=["not_before"]) as memory:
    for day in ("2000-01-01", "2999-01-01"):
        memory.add(f"news of {day}", metadata={"not_before": day})
    said["stage"] = [hit.text for hit in memory.search("news")]
said["world"] = len(open_stream("lock-box", length=7).tasks)
said["recipe"] = dict(find_recipe("parity").settings)
said["objective"] = repr(preset("bent-grpo").surrogate)
with Memory(encoder="hashing", user_id="ana") as memory:
    one, other = ChatHistory(memory, "c1"), ChatHistory(memory, "c2")
    for role, content in (("user", "I live in Oslo."), ("assistant", "Good.")):
        one.add_message({"role": role, "content": content})
    other.add_message({"role": "user", "content": "I moved to Bergen."})
    said["adapter"] = [one.messages, memory.search("Bergen")[0].text]
    one.clear()
    said["adapter"].append([one.messages, len(other.messages)])
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(installed: Path) -> dict[str, Any]:
    return json.loads(python(installed, "-c", DOORS).splitlines()[-1])  # type: ignore[no-any-return]


def test_each_kind_works_through_its_door(said: dict[str, Any]) -> None:
    assert said["policy"] == ["upper-bound", "To reset the router pull the plug."]
    assert said["writer"] == ["The gate closes at nine"]
    assert said["stage"] == ["news of 2000-01-01"]
    assert said["world"] == 7
    assert said["recipe"] == {"max_tokens": 4}
    assert said["objective"] == "Bent(0.3)"
    messages = [{"role": "user", "content": "I live in Oslo."}, {"role": "assistant", "content": "Good."}]
    assert said["adapter"] == [messages, "I moved to Bergen.", [[], 1]]


def test_methods_lists_them_without_loading_torch_and_a_study_runs(installed: Path) -> None:
    script = (
        "import sys; from keepworth.cli.main import main; main(['methods', '--json']); print('torch' in sys.modules)"
    )
    *rows, torch = python(installed, "-c", script).splitlines()
    labels = {row["name"].replace("_", "-"): row["label"] for row in map(json.loads, rows)}
    assert {labels.get(name) for name in NAMES} == {"unmeasured"}
    assert torch == "False"
    shown = python(installed, "-m", "keepworth", "methods", "show", "lock_box")
    assert "the entry point keepworth_example.world" in shown
    settings = ("--set", "encoder=hashing", "--set", "seeds=3")
    table = python(installed, "-m", "keepworth", "methods", "run", "paraphrase", "--json", *settings)
    arms = [json.loads(line) for line in table.splitlines()]
    assert [row["arm"] for row in arms] == ["4 notes", "24 notes", "24 notes minus 4 notes"]
    assert all(row["low"] <= row["mean"] <= row["high"] for row in arms)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pip_installs_it_and_the_tests_of_each_kind_pass_on_it(tmp_path: Path) -> None:
    wheel = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(tmp_path),
    )
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source)
    subprocess.run([*wheel, str(source)], check=True)
    names = {spelt for name in NAMES for spelt in (name, name.replace("-", "_"))}
    chosen = " or ".join(sorted({*names, "writers_accept_any_message"}))  # where all writers are tried in one test
    words = ("-q", "-rA", "-p", "no:cacheprovider", "tests/methods", "-k", f"({chosen}) and not slow")
    passed = [line for line in python(tmp_path, "-m", "pytest", *words).splitlines() if line.startswith("PASSED")]
    tested = {name for name in NAMES if any(name in line.replace("_", "-") for line in passed)}
    assert tested == {*NAMES}
    assert any("writers_accept_any_message" in line for line in passed)
    model = write_tiny_checkpoint(tmp_path / "model")
    settings = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    run = ("--set", f"model={model}", *settings, "--name", "one", "--runs", str(tmp_path / "runs"))
    assert "141 train, 27 dev, 67 test" in python(tmp_path, "-m", "keepworth", "train", "parity", *run)


def test_an_example_is_short_and_takes_all_of_keepworth_from_the_kit() -> None:
    for path in (PACKAGE / "keepworth_example").glob("*.py"):
        code = path.read_text(encoding="utf-8")
        assert len(code.splitlines()) <= LONGEST, path
        assert "from keepworth." not in code.replace("from keepworth.kit import", ""), path


def test_the_page_has_every_name_and_is_made_of_the_module() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.rendered(), "python -m benchmarks.pages methods"
    for name in kit.__all__:
        assert name == "NAMES" or f"**`{name}" in page.rendered(), name


def test_a_name_of_the_kit_is_loaded_when_it_is_asked_for(tmp_path: Path) -> None:
    script = "import keepworth.kit, sys; print({'numpy', 'torch', 'pydantic', 'keepworth.memory'} & {*sys.modules} or 'none')"
    assert python(tmp_path, "-c", script) == "none\n"
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(kit, "no_such_name")  # noqa: B009  (what `from keepworth.kit import` asks)
    assert {*kit.__all__} <= {*dir(kit)}
