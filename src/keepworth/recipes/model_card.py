"""The model card of an exported folder: the page that says what it is, how it was trained, what was measured, how to load it.

The front matter is the Hugging Face Hub's. Nothing in it names a place on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from keepworth.evaluation.tables import ResultTable, tables_of
from keepworth.learning.run_folder import PLACED, RunFolder, flatten

_HIDDEN = (
    *("recipe", "engine", "engine_model", "threads", "token_budget", "checkpointing", "slots"),
    *PLACED,
)
"""Settings that say where a run ran, or how much it computed at once."""
_DATA = ("tasks", "source", "data", "dataset", "labels", "environment", "memory")
_VERSIONS = ("keepworth", "torch", "transformers", "peft", "tokenizers", "python")


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What the card is about. name: of the folder. record: what `export.json` holds. licence: the base's, "" if unknown."""

    run: RunFolder
    name: str
    record: Mapping[str, Any]
    with_base: bool
    licence: str


def card(about: ModelCard) -> str:
    """README.md, with its YAML front matter."""
    return "\n".join(_lines(about)) + "\n"


def _lines(about: ModelCard) -> Iterator[str]:
    record, config = about.record, about.run.config
    base, adapter = record["base"], record["kind"] == "adapter"
    recipe = str(config.get("recipe", "")).rsplit(".", 1)[-1]
    yield from ("---", f"base_model: {_yaml(base['repository'])}")
    yield f"base_model_relation: {'adapter' if adapter else 'finetune'}"
    yield f"library_name: {'peft' if adapter else 'transformers'}"
    yield "pipeline_tag: text-generation"
    if about.licence:
        yield f"license: {about.licence}"
    yield from ("tags:", *(f"- {_yaml(tag)}" for tag in ("keepworth", "reinforcement-learning", recipe) if tag))
    if adapter:
        yield "- lora"
    yield from ("---", "", f"# {about.name}", "")
    what = "A LoRA adapter for" if adapter else "Trained from"
    yield f"{what} `{base['repository']}`. Role `{record['role']}` of the run `{record['run']}`, step {record['step']}."
    if headline := (about.run.result() or {}).get("headline"):
        yield f"{headline}"
    yield from ("", "## Base", "", *_base(base, adapter))
    yield from ("", "## Load it", "", *_loading(about, adapter))
    yield from ("## Data", "", *_data(about.run, record["role"], config, int(record["step"])))
    yield from ("", "## Training", "", *_training(about.run, record["role"], config))
    yield from ("", "## Results", "", *_results(about.run))
    yield from ("", "## What the export changed", "", *_changed(record, adapter))
    yield from ("", "## Limits", "", *_limits(about, adapter))


def _base(base: Mapping[str, Any], adapter: bool) -> Iterator[str]:
    if revision := base.get("revision"):
        yield f"Revision `{revision}`."
    if note := base.get("note"):
        yield str(note)
        if adapter:
            yield "To get the numbers below exactly, load the adapter on the weights with these sums."
    for name, sha256 in base["files"].items():
        yield f"- `{name}` that was trained from: sha256 `{sha256}`"


def _loading(about: ModelCard, adapter: bool) -> Iterator[str]:
    name = about.name
    # Others load weights in the type that they are stored in; answers are the run's where they are computed as there.
    exact = ', dtype="float32"' if about.run.environment.get("precision") == "fp32" else ""
    base = f"{name}/base" if about.with_base else str(about.record["base"]["repository"])
    yield "With transformers and PEFT:" if adapter else "With transformers:"
    yield from ("", "```python")
    if adapter:
        yield "from peft import PeftModel"
    yield "from transformers import AutoModelForCausalLM, AutoTokenizer"
    yield ""
    yield f'tokenizer = AutoTokenizer.from_pretrained("{name}")'
    if adapter:
        yield f'base = AutoModelForCausalLM.from_pretrained("{base}"{exact})'
        yield f'model = PeftModel.from_pretrained(base, "{name}")'
    else:
        yield f'model = AutoModelForCausalLM.from_pretrained("{name}"{exact})'
    yield 'prompt = tokenizer("Once upon a time", return_tensors="pt")'
    yield "answer = model.generate(**prompt, max_new_tokens=16, do_sample=False)"
    yield "print(tokenizer.decode(answer[0]))"
    yield from ("```", "")
    if exact:
        yield from ("The run computed in float32: with another type, an answer may now and then be another one.", "")
    yield from ("With vLLM:", "", "```sh")
    if adapter:
        alias = PurePosixPath(name).name
        yield f"vllm serve {base} --enable-lora --lora-modules {alias}={name}"
    else:
        yield f"vllm serve {name}"
    yield from ("```", "")


def _data(run: RunFolder, role: str, config: Mapping[str, Any], step: int) -> Iterator[str]:
    for key in _DATA:
        if config.get(key):
            yield f"- {key}: {_shown(config[key])}".replace("\n", " ")
    steps = [row for row in run.metrics() if row.get("role", role) == role]
    episodes = sum(float(row.get("episodes", 0)) for row in steps)
    if episodes:
        kept = (
            f", of which step {step} has the weights that were kept" if step < max(row["step"] for row in steps) else ""
        )
        yield f"- trained on: {episodes:,.0f} episodes in {len(steps)} steps{kept}"
    sizes: dict[str, int] = {}
    for row in run.evals():
        if row.get("role", role) == role:
            split = str(row.get("split", "held out"))
            sizes[split] = max(sizes.get(split, 0), int(row["n"]))
    for split, size in sizes.items():
        yield f"- measured on: {size} questions of the split {split}"


def _training(run: RunFolder, role: str, config: Mapping[str, Any]) -> Iterator[str]:
    terms = dict.fromkeys(
        name.removeprefix("reward/")
        for row in run.metrics()
        if row.get("role", role) == role
        for name in row
        if name.startswith("reward/")
    )
    if terms:
        yield f"- reward: {', '.join(terms)}"
    objective = config.get("objective")
    yield f"- objective: {_shown(objective) if objective else 'the default of the recipe'}"
    yield f"- recipe: {str(config.get('recipe', '')).rsplit('.', 1)[-1] or 'of its own'}"
    used = run.environment
    found = [f"{name} {used[name]}" for name in _VERSIONS if name in used]
    yield f"- versions: {', '.join(found)}"
    yield from ("", "Settings:", "", "```")
    for key, value in flatten(config).items():
        if key.split(".")[0] not in (*_HIDDEN, *_DATA) and value not in (None, "", [], {}):
            yield f"{key} = {_shown(value)}"
    yield "```"


def _results(run: RunFolder) -> Iterator[str]:
    tables = tables_of(run)
    if not tables:
        yield "Nothing was measured."
    for table in tables:
        yield from (f"### {table.title}", "", *_table(table), "")
        if table.note:
            yield from (_unplaced(table.note), "")
    if tables:
        yield "Means with 95 % intervals over questions. The other lines are controls."


def _table(table: ResultTable) -> Iterator[str]:
    yield f"| | {' | '.join(map(_cell, table.metrics))} | n |"
    yield "| --- |" + " --- |" * (len(table.metrics) + 1)
    for row in table.rows:
        cells = ("" if each is None else f"{each.mean:.3f} {each.interval}".strip() for each in row.cells)
        label = f"**{_cell(row.label)}**" if row.emphasis else _cell(row.label)
        yield f"| {label} | {' | '.join(cells)} | {row.n} |"


def _changed(record: Mapping[str, Any], adapter: bool) -> Iterator[str]:
    found = record["agreement"]
    done = "Nothing: these are the tensors that were trained."
    if not adapter:
        done = f"The weights were put together in float32 and are stored as {record['dtype']}."
    if "rounded" in record:
        other = record["rounded"]
        done += f" Rounded to the base's type, {other['prompts'] - other['identical']} of its answers would be others."
    yield (
        f"{done} On {found['prompts']} prompts of the run's own questions, "
        f"{found['identical']} greedy answers are the same token by token as the run's. The log-probabilities of their "
        f"{found['tokens']} tokens differ by {found['mean_gap']:.2g} nats on average and {found['largest_gap']:.2g} at most; "
        f"training had moved them by {found['moved']:.2g}. Both were computed in float32, the folder by transformers."
    )


def _limits(about: ModelCard, adapter: bool) -> Iterator[str]:
    yield "- The results hold for questions and prompts like those it was trained on. Others were not measured."
    yield "- One run with one seed: another seed gives other numbers."
    yield "- What the base does wrong, it may still do."
    if about.record["base"].get("note") and adapter and not about.with_base:
        yield "- The base of that name is not exactly the one that was trained on: answers differ a little."
    if not about.licence:
        yield "- The licence of the base is not known here. Look it up before you give these weights to others."


def _shown(value: Any) -> str:
    """A setting without the places of this machine."""
    if isinstance(value, str):
        return _unplaced(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items() if each not in (None, "", 0))
    if isinstance(value, list | tuple):
        return json.dumps([_shown(each) if isinstance(each, str) else each for each in value], ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _unplaced(text: str) -> str:
    """`text` with each absolute path in it cut to its last part."""
    return " ".join(_last(word) for word in text.split(" "))


def _last(word: str) -> str:
    absolute = word.startswith(("/", "~")) or Path(word).is_absolute() or PureWindowsPath(word).is_absolute()
    return PureWindowsPath(word).name or word if absolute and len(word) > 1 else word


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _yaml(text: str) -> str:
    return (
        text if text.replace("-", "").replace("_", "").replace("/", "").replace(".", "").isalnum() else json.dumps(text)
    )
