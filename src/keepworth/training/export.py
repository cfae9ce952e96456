"""Exports a run's weights to a folder that transformers, PEFT and vLLM load without this package.

By default the adapter is merged: it is added to the base's weights in float32, and the sum is stored in the base's type of
number. Rounding may change answers of a small model in bfloat16. So the folder is loaded by transformers alone and compared with
the run, on prompts of the run's own questions. Where an answer differs, the sum is stored in float32; a folder whose
log-probabilities still differ too much is refused. An adapter is small, and is exported with its base next to it.

The folder contains none of the run's data and no path of this machine, so that it can be given away."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from keepworth.base.needs import needs_train

import torch

from keepworth.base.durable_files import replacing_folder
from keepworth.base.errors import KeepworthError
from keepworth.base.json_values import read_json
from keepworth.base.model_errors import UnsupportedModel
from keepworth.base.model_files import BASE_RECORD, is_hub_id, record_of, sha256_of
from keepworth.models.adapter import copy_texts, merge_network, save_network, with_adapter
from keepworth.models.chat_format import ends_of, ids_of
from keepworth.models.inprocess import InProcessModel
from keepworth.records.episode import Segment
from keepworth.records.model import FinishReason, SamplingParams, Tokens
from keepworth.training.run_folder import TRAIN, RunFolder, episode_files, write_json
from keepworth.training.trained import Trained, find_trained
from keepworth.training.watch.tables import tables_of

EXPORT_RECORD = "export.json"
"""The file of an exported folder that records its origin and measurements. A folder that has it may be replaced."""
BASE_FOLDER = "base"
TOLERANCE = 0.1
"""Nats by which a token's log-probability may differ on average. Rounding 135M weights to bfloat16 makes about 0.04."""
PROMPTS, LONGEST_PROMPT, LONGEST_ANSWER = 10, 2048, 64
_STORED = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


@dataclass(frozen=True, slots=True)
class Agreement:
    """A comparison of the folder with the run, both computed in float32, on the run's greedy answers to its own questions.

    Attributes:
        prompts: The number of answers.
        identical: The number of answers that are the same token by token.
        mean_gap, largest_gap: Differences between the log-probabilities of their tokens, in nats.
    """

    prompts: int
    identical: int
    mean_gap: float
    largest_gap: float

    def __str__(self) -> str:
        return (
            f"{self.identical} of {self.prompts} greedy answers to the run's own questions are the run's; log-probabilities "
            f"differ by {self.mean_gap:.2g} nats a token, {self.largest_gap:.2g} at most."
        )


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported folder. `kind` is "merged" or "adapter", `dtype` the type of number of the stored weights."""

    folder: Path
    kind: str
    role: str
    step: int
    dtype: str
    agreement: Agreement


def export(run: RunFolder | Path | str, folder: Path | str, *, merged: bool = True, role: str = "") -> Exported:
    """Writes the trained weights of `run` into `folder`, completely or not at all.

    Args:
        run: The run, or its folder.
        folder: The folder that is written; it may hold an earlier export of the same run.
        merged: Whether the weights stand alone; else the adapter is exported, with its base next to it.
        role: The role to export, where the run trained several.

    Raises:
        KeepworthError: The run cannot be exported this way, or the folder would give other answers than the run.
        DiskTrouble: The folder cannot be written.
    """
    run = run if isinstance(run, RunFolder) else RunFolder.open(run)
    folder = Path(folder)
    trained = find_trained(run, role)
    if not merged and not trained.is_adapter:
        raise KeepworthError(
            f"{run.path} trained all weights of {trained.role}: there is no adapter.", "Leave --adapter out."
        )
    origin = {"run": run.name, "role": trained.role, "kind": "merged" if merged else "adapter"}
    _require_free(folder, run, origin)
    source = _require_unchanged_base(run, trained)
    named = str(source["repository"])
    public = named if is_hub_id(named) else Path(named).name
    answers = GreedyAnswers.draw(trained.loaded("fp32"), run, trained.role)
    with replacing_folder(folder) as made:
        agreement = (_write_merged if merged else _write_adapter)(trained, made, answers)
        if agreement.mean_gap > TOLERANCE:
            raise KeepworthError(
                f"The folder, as transformers loads it, differs from the run by {agreement.mean_gap:.3f} nats a token on "
                f"the run's own questions, more than {TOLERANCE}."
            )
        stored = find_dtype(made)
        record = {
            **origin,
            "step": trained.step,
            "dtype": stored,
            "base": {**source, "repository": public},
            "trained": {path.name: sha256_of(path) for path in sorted(trained.weights.glob("*.safetensors"))},
            "agreement": asdict(agreement),
        }
        write_json(made / EXPORT_RECORD, record)
        done = Exported(folder, origin["kind"], trained.role, trained.step, stored, agreement)
        card = "\n".join(_card(run, done, public, _find_licence(trained.model, trained.base)))
        (made / "README.md").write_text(card, encoding="utf-8")
        for path in made.rglob("*.safetensors"):
            path.chmod(0o644)  # safetensors leaves 0600
    return done


def find_dtype(folder: Path) -> str:
    """Returns the type of number that most of a checkpoint's tensors are stored as."""
    from safetensors import safe_open

    kinds: Counter[str] = Counter()
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            kinds.update(file.get_slice(name).get_dtype() for name in file.keys())  # noqa: SIM118 - no mapping
    most = max(kinds, key=kinds.__getitem__, default="")
    if most not in _STORED:
        raise UnsupportedModel(
            f"The weights in {folder} are stored as {most or 'nothing'}, which an adapter cannot be merged into.",
            "Export the adapter alone with --adapter.",
        )
    return _STORED[most]


def _find_licence(model: str, folder: Path) -> str:
    """Returns the licence that the base's own files name, as model cards write it; "" where they name none."""
    from keepworth.base.model_files import KNOWN

    if model in KNOWN:
        return KNOWN[model].licence.lower()
    page = folder / "README.md"
    head = page.read_text(encoding="utf-8", errors="replace").split("---")[1:2] if page.is_file() else []
    lines = [line for line in head[0].splitlines() if line.startswith("license:")] if head else []
    return lines[0].split(":", 1)[1].strip() if lines else ""


def _require_unchanged_base(run: RunFolder, trained: Trained) -> Mapping[str, Any]:
    """Returns the record of the base's files. Raises KeepworthError where they have changed since training began."""
    now = record_of(trained.model, trained.base)
    then = read_json(trained.weights / BASE_RECORD, "Continue the run: it is written with the weights.")["files"]
    if then != now["files"]:
        other = sorted(name for name in {**then, **now["files"]} if then.get(name) != now["files"].get(name))
        raise KeepworthError(
            f"{trained.base / other[0]} is not what {run.path} was trained from: its sha256 differs.",
            "Put the files back that training began from.",
        )
    return now


def _require_free(folder: Path, run: RunFolder, origin: Mapping[str, str]) -> None:
    if folder.resolve().is_relative_to(run.path.resolve()):
        raise KeepworthError(
            f"{folder} is inside the run's own folder, where a run that starts over deletes files.",
            "Choose a folder outside it.",
        )
    record = folder / EXPORT_RECORD
    there = read_json(record, "Delete the folder, and export again.") if record.is_file() else {}
    empty = folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    same = bool(there) and all(there.get(key) == value for key, value in origin.items())
    if (folder.exists() or folder.is_symlink()) and not (empty or same):
        raise KeepworthError(
            f"{folder} exists and holds something else than an export of this run.",
            "Choose another folder, or move it away.",
        )


def _write_merged(trained: Trained, folder: Path, answers: GreedyAnswers) -> Agreement:
    """Writes the sum in the base's type of number, or in float32 where that type changes answers."""
    stored = find_dtype(trained.base)
    for dtype in dict.fromkeys((stored, "float32")):
        network = merge_network(trained.loaded("fp32")).to(getattr(torch, dtype))
        for written in folder.glob("*.safetensors*"):  # in another type
            written.unlink()
        save_network(network, folder)
        copy_texts(trained.base, folder)
        agreement = answers.compare(_load_plain(folder))
        if agreement.identical == agreement.prompts and agreement.mean_gap <= TOLERANCE:
            break
    return agreement


def _write_adapter(trained: Trained, folder: Path, answers: GreedyAnswers) -> Agreement:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copyfile(trained.weights / name, folder / name)
    copy_texts(trained.base, folder, but=("config.json", "generation_config.json"))
    agreement = answers.compare(with_adapter(_load_plain(trained.base), folder))
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    write_json(folder / "adapter_config.json", {**settings, "base_model_name_or_path": BASE_FOLDER})
    (folder / BASE_FOLDER).mkdir()
    for file in (*trained.base.glob("*.safetensors"), *trained.base.glob("*.safetensors.index.json")):
        shutil.copyfile(file, folder / BASE_FOLDER / file.name)
    copy_texts(trained.base, folder / BASE_FOLDER)
    return agreement


# The comparison of the folder with the run.


@dataclass(frozen=True, slots=True)
class GreedyAnswers:
    """Prompts, the run's greedy answers, and the log-probability of each of their tokens under the run."""

    prompts: tuple[Tokens, ...]
    answers: tuple[Tokens, ...]
    scores: tuple[tuple[float, ...], ...]

    @classmethod
    def draw(cls, model: InProcessModel, run: RunFolder, role: str) -> GreedyAnswers:
        """Draws the answers. They stop at the run's stop tokens, and are no longer than its longest.

        Args:
            model: The trained model.
            run: The run, whose stored prompts are answered; texts of this module where it has none.
            role: The role whose prompts are taken.
        """
        asked = _first_segments(run, role, min(LONGEST_PROMPT, model.context_limit - LONGEST_ANSWER))
        ends = {segment.ids[-1] for segment in asked if segment.ids and segment.finish is FinishReason.STOP}
        longest = min(LONGEST_ANSWER, max((len(segment.ids) for segment in asked), default=LONGEST_ANSWER)) or 1
        prompts = [segment.context for segment in asked] or [model.encode(text) for text in _TEXTS]
        stop = frozenset(ends).union(ends_of(model.network) or ids_of(model.network.config.eos_token_id))
        samples = [drawn for (drawn,) in model.sample(prompts, SamplingParams(longest, temperature=0.0, stop_ids=stop))]
        return cls(tuple(prompts), tuple(one.ids for one in samples), tuple(one.logprobs for one in samples))

    @torch.inference_mode()
    def compare(self, network: Any) -> Agreement:
        gaps: list[float] = []
        identical = 0
        for prompt, answer, scores in zip(self.prompts, self.answers, self.scores, strict=True):
            logits = network(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].float()
            scored = torch.log_softmax(logits, -1).gather(1, torch.tensor(answer)[:, None]).squeeze(1)
            gaps += (scored - torch.tensor(scores)).abs().nan_to_num(nan=torch.inf).tolist()
            # Every token is the likeliest after those before it, so greedy generation gives the same answer.
            identical += logits.argmax(-1).tolist() == list(answer)
        return Agreement(len(self.prompts), identical, sum(gaps) / len(gaps), max(gaps))


def _first_segments(run: RunFolder, role: str, limit: int) -> list[Segment]:
    """Returns calls of the role with different prompts: dev questions first, then other measured ones, then training; the latest
    first."""
    files = sorted(
        episode_files(run.path),
        key=lambda file: (2 if file[1] == TRAIN else not file[1].startswith("dev"), -file[0], file[1] == ""),
    )
    asked: dict[Tokens, Segment] = {}
    for step, arm, _ in files:
        for stored in run.episodes(step=step, arm=arm):
            for segment in [segment for segment in stored.episode.segments if segment.role == role][:1]:
                if 0 < len(segment.context) <= limit:
                    asked.setdefault(segment.context, segment)
            if len(asked) == PROMPTS:
                return list(asked.values())
    return list(asked.values())


_TEXTS = ("A weight update that arrived changes what the model says next.", "Question: Who moved to Delhi?\nAnswer:")
"""Prompts for a run that stored no episode of the role."""


def _load_plain(folder: Path) -> Any:
    """Loads the network as transformers alone does."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


# The model card, whose front matter is the Hugging Face Hub's.


def _card(run: RunFolder, done: Exported, base: str, licence: str) -> Iterator[str]:
    """Yields the lines of README.md: what the model is, how to load it, and the measurements."""
    name, adapter = done.folder.name, done.kind == "adapter"
    source = f"{name}/{BASE_FOLDER}" if adapter else name
    yield from (
        "---",
        f"base_model: {json.dumps(base)}",
        f"base_model_relation: {'adapter' if adapter else 'finetune'}",
    )
    yield from (f"library_name: {'peft' if adapter else 'transformers'}", "pipeline_tag: text-generation")
    yield from ([f"license: {licence}"] if licence else [])
    yield from ("tags:", "- keepworth", "- reinforcement-learning", "---", "", f"# {name}", "")
    yield f"{'A LoRA adapter for' if adapter else 'Trained from'} `{base}`: role `{done.role}`, step {done.step}."
    yield str((run.result() or {}).get("headline", ""))
    # Other programs compute in the stored type; answers equal the run's only in the run's precision.
    exact = ', dtype="float32"' if run.environment.get("precision") == "fp32" else ""
    yield from ("", "```python", *(["from peft import PeftModel"] if adapter else []))
    yield from ("from transformers import AutoModelForCausalLM, AutoTokenizer", "")
    yield f'tokenizer = AutoTokenizer.from_pretrained("{name}")'
    yield f'model = AutoModelForCausalLM.from_pretrained("{source}"{exact})'
    yield from ([f'model = PeftModel.from_pretrained(model, "{name}")'] if adapter else [])
    yield 'answer = model.generate(**tokenizer("Once upon a time", return_tensors="pt"), max_new_tokens=16, do_sample=False)'
    yield from ("print(tokenizer.decode(answer[0]))", "```", "", "With vLLM:", "", "```sh")
    yield f"vllm serve {source}" + (f" --enable-lora --lora-modules {name}={name}" if adapter else "")
    yield from ("```", "")
    for table in tables_of(run):
        yield from (f"## {table.title}", "", f"| | {' | '.join(table.metrics)} | n |")
        yield "| --- |" + " --- |" * (len(table.metrics) + 1)
        for row in table.rows:
            cells = ("" if cell is None else f"{cell.mean:.3f} {cell.interval}".strip() for cell in row.cells)
            yield f"| {row.label} | {' | '.join(cells)} | {row.n} |"
        yield ""
    yield f"Means with 95 % intervals over questions, of one run with one seed. Stored as {done.dtype}: {done.agreement}"
    yield from (
        [] if licence else ["The licence of the base is not known: look it up before you give these weights away."]
    )
