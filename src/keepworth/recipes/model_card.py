"""The model card of an exported folder: the page that says what it is, how it was trained, what was measured, how to load it.

The front matter is the Hugging Face Hub's. Nothing in it names a place on this machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from keepworth.evaluation.tables import ResultTable, tables_of
from keepworth.learning.run_folder import PLACED, RunFolder, flatten

_HIDDEN = ("recipe", "engine", "engine_model", "threads", "token_budget", "checkpointing", "slots", *PLACED)
"""Settings that say where a run ran, or how much it computed at once."""
_VERSIONS = ("keepworth", "torch", "transformers", "peft", "tokenizers", "python")
_CARD = """\
---
{head}
---

# {name}

{what} `{base}`. Role `{role}` of the run `{run}`, step {step}.
{headline}

## Base

{files}

## Load it

```python
{load}
prompt = tokenizer("Once upon a time", return_tensors="pt")
answer = model.generate(**prompt, max_new_tokens=16, do_sample=False)
print(tokenizer.decode(answer[0]))
```

With vLLM:

```sh
{serve}
```

## Training

Versions: {versions}. Settings:

```
{settings}
```

## Results

{results}

## What the export changed

{changed}

## Limits

- The results hold for questions and prompts like those it was trained on. Others were not measured.
- One run with one seed: another seed gives other numbers.
- What the base does wrong, it may still do.
{licence}"""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What the card is about. name: of the folder. record: what `export.json` holds. with_base: the base's files are beside an
    adapter. licence: the base's, "" if unknown."""

    run: RunFolder
    name: str
    record: Mapping[str, Any]
    with_base: bool
    licence: str


def render_card(about: ModelCard) -> str:
    """README.md, with its YAML front matter."""
    record, run = about.record, about.run
    base, adapter = record["base"], record["kind"] == "adapter"
    source = f"{about.name}/base" if about.with_base else str(base["repository"])
    # Others load weights in the type that they are stored in; answers are the run's where they are computed as there.
    exact = ', dtype="float32"' if run.environment.get("precision") == "fp32" else ""
    load = [
        *(["from peft import PeftModel"] if adapter else []),
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{about.name}")',
        f'model = AutoModelForCausalLM.from_pretrained("{source if adapter else about.name}"{exact})',
        *([f'model = PeftModel.from_pretrained(model, "{about.name}")'] if adapter else []),
    ]
    alias = PurePosixPath(about.name).name
    files = [f"- `{name}` that was trained from: sha256 `{sha256}`" for name, sha256 in base["files"].items()]
    if base.get("revision"):
        files.insert(0, f"Revision `{base['revision']}`.")
    if base.get("note"):
        files.insert(0, str(base["note"]))
    settings = (
        f"{key} = {_without_paths(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))}"
        for key, value in flatten(run.config).items()
        if key.split(".")[0] not in _HIDDEN and value not in (None, "", [], {})
    )
    unknown = "- The licence of the base is not known here. Look it up before you give these weights to others.\n"
    return _CARD.format(
        head="\n".join(_front_matter(about, adapter)),
        name=about.name,
        what="A LoRA adapter for" if adapter else "Trained from",
        base=base["repository"],
        role=record["role"],
        run=record["run"],
        step=record["step"],
        headline=(run.result() or {}).get("headline", ""),
        files="\n".join(files),
        load="\n".join(load),
        serve=f"vllm serve {source} --enable-lora --lora-modules {alias}={about.name}"
        if adapter
        else f"vllm serve {about.name}",
        versions=", ".join(f"{name} {run.environment[name]}" for name in _VERSIONS if name in run.environment),
        settings="\n".join(settings),
        results="\n".join(_results(run)),
        changed=_changed(record, adapter),
        licence="" if about.licence else unknown,
    )


def _front_matter(about: ModelCard, adapter: bool) -> Iterator[str]:
    recipe = str(about.run.config.get("recipe", "")).rsplit(".", 1)[-1]
    yield f"base_model: {_yaml(about.record['base']['repository'])}"
    yield f"base_model_relation: {'adapter' if adapter else 'finetune'}"
    yield f"library_name: {'peft' if adapter else 'transformers'}"
    yield "pipeline_tag: text-generation"
    if about.licence:
        yield f"license: {about.licence}"
    yield from ("tags:", *(f"- {_yaml(tag)}" for tag in ("keepworth", "reinforcement-learning", recipe) if tag))
    if adapter:
        yield "- lora"


def _results(run: RunFolder) -> Iterator[str]:
    tables = tables_of(run)
    for table in tables:
        yield from (f"### {table.title}", "", *_table(table), "", _without_paths(table.note), "")
    yield (
        "Means with 95 % intervals over questions. The other lines are controls." if tables else "Nothing was measured."
    )


def _table(table: ResultTable) -> Iterator[str]:
    yield f"| | {' | '.join(map(_cell, table.metrics))} | n |"
    yield "| --- |" + " --- |" * (len(table.metrics) + 1)
    for row in table.rows:
        cells = ("" if cell is None else f"{cell.mean:.3f} {cell.interval}".strip() for cell in row.cells)
        label = f"**{_cell(row.label)}**" if row.emphasis else _cell(row.label)
        yield f"| {label} | {' | '.join(cells)} | {row.n} |"


def _changed(record: Mapping[str, Any], adapter: bool) -> str:
    agreement = record["agreement"]
    done = "Nothing: these are the tensors that were trained."
    if not adapter:
        done = f"The weights were put together in float32 and are stored as {record['dtype']}."
    if "rounded" in record:
        other = record["rounded"]
        done += f" Rounded to the base's type, {other['prompts'] - other['identical']} of its answers would be others."
    return (
        f"{done} On {agreement['prompts']} prompts of the run's own questions, "
        f"{agreement['identical']} greedy answers are the same token by token as the run's. The log-probabilities of their "
        f"{agreement['tokens']} tokens differ by {agreement['mean_gap']:.2g} nats on average and "
        f"{agreement['largest_gap']:.2g} at most; "
        f"training had moved them by {agreement['moved']:.2g}. Both were computed in float32, the folder by transformers."
    )


_PATH = re.compile(r"(?<![\w.~/])(?:~|[A-Za-z]:)?[/\\](?:[^\s\"',/\\]+[/\\])*")


def _without_paths(text: str) -> str:
    """`text` on one line, with each absolute path in it cut to its last part."""
    return _PATH.sub("", " ".join(text.split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _yaml(text: str) -> str:
    return text if re.fullmatch(r"[\w./-]+", text) else json.dumps(text)
