"""What a run trained as a folder that transformers, PEFT and vLLM load, where this package is not installed.

Merged (the default), the adapter is added to the base's weights in float32, and the sum is stored in the type of number that the
base is stored in. That rounds: of a small model in bfloat16 it changes answers. So the folder is compared with the run, on
prompts of the run's own questions and as transformers alone loads it. Where an answer would be another one, the sum is stored in
float32, unless a type was asked for; and a folder that says something else altogether is refused. An adapter is small, and has
its base beside it unless others know the base by a name.

Nothing of the run's data goes along, and no path of this machine: the folder is made to be given away.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from keepworth.episodes.needs import needs_train

import torch

from keepworth.episodes.episode import Segment
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.episodes.model import FinishReason, SamplingParams, Tokens
from keepworth.learning.run_folder import TRAIN, RunFolder, episode_files, read_json, replacing_folder
from keepworth.models.adapter import copy_texts, merged_network, save_network, with_adapter
from keepworth.models.errors import UnsupportedModel
from keepworth.models.files import BASE_RECORD, hub_parts, is_hub_id, record_of, sha256_of
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.model_card import ModelCard, render_card
from keepworth.recipes.trained import Trained, trained_by

EXPORT_RECORD = "export.json"
"""In an exported folder: what it was made from, and what was measured. Says also that the folder is ours to replace."""
BASE_FOLDER = "base"
TOLERANCE = 0.1
"""Nats by which the log-probability of a token may differ on average. Rounding to bfloat16 makes about 0.04, of 135M weights."""
PROMPTS, LONGEST_PROMPT, LONGEST_ANSWER = 10, 2048, 64
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_STORED = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


class ExportDiffers(KeepworthError):
    """The folder, loaded as others load it, does not say what the run says."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The folder beside the run, both computed in float32, on greedy answers of the run to prompts of its own questions.

    identical: answers that are the same token by token, of `prompts`. mean_gap, largest_gap: between the log-probabilities of
    their `tokens`, in nats. moved: by how much training itself had moved them, on average."""

    prompts: int
    identical: int
    tokens: int
    mean_gap: float
    largest_gap: float
    moved: float


@dataclass(frozen=True, slots=True)
class Exported:
    """folder: what was made. kind: "merged" or "adapter". dtype: the numbers that its weights are stored as. rounded: what the
    base's type would have made of them, where that is another one."""

    folder: Path
    kind: str
    role: str
    step: int
    dtype: str
    agreement: Agreement
    rounded: Agreement | None = None


def export(
    run: RunFolder | Path | str,
    folder: Path | str,
    *,
    merged: bool = True,
    role: str = "",
    base: str = "",
    dtype: str = "",
) -> Exported:
    """Write what `run` trained into `folder`, whole or not at all.

    Args:
        run: The run, or its folder.
        folder: What to make.
        merged: Weights that stand alone; else the adapter.
        role: Which of several that the run trained.
        base: Of an adapter, the Hugging Face id that others know the base by; without one the base's files go along.
        dtype: Of merged weights, float32, bfloat16 or float16; if "", the base's where the answers stay the same, else float32.

    Raises:
        KeepworthError: For what cannot be exported so.
        ExportDiffers: Where the folder would say something else than the run.
        DiskTrouble: Where it cannot be written.
    """
    run = run if isinstance(run, RunFolder) else RunFolder.open(run)
    folder = Path(folder)
    if (base and merged) or (dtype and not merged):
        option, kind = ("--dtype", "merged weights") if dtype else ("--base", "an adapter")
        raise KeepworthError(f"{option} is of {kind}.", "Leave it out.")
    if dtype:
        require_known("--dtype", dtype, DTYPES)
    if base and not is_hub_id(base):
        raise KeepworthError(
            f"{base!r} is no name that others know a model by.", "Give its Hugging Face id, such as owner/name."
        )
    trained = trained_by(run, role)
    if not merged and not trained.is_adapter:
        raise KeepworthError(
            f"{run.path} trained all weights of {trained.role}: there is no adapter.", "Leave --adapter out."
        )
    origin = {"run": run.name, "role": trained.role, "kind": "merged" if merged else "adapter"}
    _require_free(folder, run, origin)
    source = _require_unchanged_base(run, trained)
    named = base or str(source["repository"])
    with replacing_folder(folder) as made:
        rounded = None
        if merged:
            stored, agreement, rounded = _write_merged(run, trained, made, dtype)
        else:
            agreement = _write_adapter(run, trained, made, base)
            stored = stored_dtype(made)
        record = {
            **origin,
            "step": trained.step,
            "dtype": stored,
            "base": {**source, "repository": named if is_hub_id(named) else Path(named).name},
            "trained": {path.name: sha256_of(path) for path in sorted(trained.weights.glob("*.safetensors"))},
            "agreement": asdict(agreement),
            **({"rounded": asdict(rounded)} if rounded else {}),
        }
        _write_json(made / EXPORT_RECORD, record)
        about = ModelCard(run, folder.name, record, not merged and not base, _find_licence(trained.model, trained.base))
        (made / "README.md").write_text(render_card(about), encoding="utf-8")
        for path in made.rglob("*.safetensors"):
            path.chmod(0o644)  # safetensors leaves 0600
    return Exported(folder, origin["kind"], trained.role, trained.step, stored, agreement, rounded)


def stored_dtype(folder: Path) -> str:
    """The type of number that most of a checkpoint's values are stored as."""
    from math import prod

    from safetensors import safe_open

    sizes: dict[str, int] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                part = file.get_slice(name)
                sizes[part.get_dtype()] = sizes.get(part.get_dtype(), 0) + prod(part.get_shape())
    most = max(sizes, key=sizes.__getitem__, default="")
    if most not in _STORED:
        raise UnsupportedModel(
            f"The weights in {folder} are stored as {most or 'nothing'}, which an adapter cannot be merged into.",
            "Export the adapter alone with --adapter, or name a type with --dtype bfloat16.",
        )
    return _STORED[most]


def _find_licence(model: str, folder: Path) -> str:
    """What the base's own files say of its licence, as model cards write it; "" where they say nothing."""
    from keepworth.models.files import KNOWN

    if model in KNOWN:
        return KNOWN[model].licence.lower()
    page = folder / "README.md"
    head = page.read_text(encoding="utf-8", errors="replace").split("---")[1:2] if page.is_file() else []
    lines = [line for line in head[0].splitlines() if line.startswith("license:")] if head else []
    return lines[0].split(":", 1)[1].strip() if lines else ""


def _require_unchanged_base(run: RunFolder, trained: Trained) -> Mapping[str, Any]:
    """The record of the base's files. Raises KeepworthError where they have changed since training began."""
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


def _write_merged(
    run: RunFolder, trained: Trained, folder: Path, dtype: str
) -> tuple[str, Agreement, Agreement | None]:
    """The type that was chosen, how the folder agrees, and how the base's type would have, where that was not chosen."""
    model = trained.loaded("fp32")
    answers = GreedyAnswers.draw(model, run, trained)
    stored = dtype or stored_dtype(trained.base)
    agreement = _store(model, trained.base, folder, stored, answers)
    same = agreement.identical == agreement.prompts and agreement.mean_gap <= TOLERANCE
    if dtype or stored == "float32" or same:
        _require_agreement(agreement, stored)
        return stored, agreement, None
    del model  # its weights are those that were rounded
    exact = _store(trained.loaded("fp32"), trained.base, folder, "float32", answers)
    _require_agreement(exact, "float32")
    return "float32", exact, agreement


def _store(model: InProcessModel, base: Path, folder: Path, dtype: str, answers: GreedyAnswers) -> Agreement:
    network = merged_network(model).to(DTYPES[dtype])
    with torch.no_grad():
        if not all(bool(torch.isfinite(value).all()) for value in network.parameters()):
            raise ExportDiffers(
                f"Stored as {dtype}, some of the weights are no finite numbers.", "Export them with --dtype float32."
            )
    for written in folder.glob("*.safetensors*"):  # in another type
        written.unlink()
    save_network(network, folder)
    copy_texts(base, folder)
    return _compare(answers, _load_plain(folder))


def _write_adapter(run: RunFolder, trained: Trained, folder: Path, base: str) -> Agreement:
    """base: what others call the base; if "", its files go along."""
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copyfile(trained.weights / name, folder / name)
    copy_texts(trained.base, folder, but=("config.json", "generation_config.json"))
    answers = GreedyAnswers.draw(trained.loaded("fp32"), run, trained)
    agreement = _compare(answers, with_adapter(_load_plain(trained.base), folder))
    _require_agreement(agreement, "float32")
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["base_model_name_or_path"] = hub_parts(base)[0] if base else BASE_FOLDER
    if not base:
        beside = folder / BASE_FOLDER
        beside.mkdir()
        weights = (*trained.base.glob("*.safetensors"), *trained.base.glob("*.safetensors.index.json"))
        for file in sorted(weights):
            shutil.copyfile(file, beside / file.name)
        copy_texts(trained.base, beside)
    _write_json(path, settings)
    return agreement


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# Whether the folder says what the run says.


@dataclass(frozen=True, slots=True)
class GreedyAnswers:
    """Prompts, the run's greedy answers, and the log-probability that the run gives to each of their tokens, and its base."""

    prompts: tuple[Tokens, ...]
    answers: tuple[Tokens, ...]
    scores: tuple[tuple[float, ...], ...]
    scores_of_base: Sequence[Sequence[float]]

    @classmethod
    def draw(cls, model: InProcessModel, run: RunFolder, trained: Trained) -> GreedyAnswers:
        """Answers end as those of the run did: where it stopped, and no longer than its longest."""
        limit = min(LONGEST_PROMPT, model.context_limit - LONGEST_ANSWER)
        asked = _first_segments(run, trained.role, limit)
        ends = {segment.ids[-1] for segment in asked if segment.ids and segment.finish is FinishReason.STOP}
        longest = min(LONGEST_ANSWER, max((len(segment.ids) for segment in asked), default=LONGEST_ANSWER)) or 1
        prompts = [segment.context for segment in asked] or [model.encode(text) for text in _TEXTS]
        own = getattr(model.network.generation_config, "eos_token_id", None) or model.network.config.eos_token_id
        stop = frozenset([own] if isinstance(own, int) else own or ()) | ends
        samples = [drawn for (drawn,) in model.sample(prompts, SamplingParams(longest, temperature=0.0, stop_ids=stop))]
        answers = [sample.ids for sample in samples]
        if trained.is_adapter:
            with model.without_adapter():
                before = model.score(prompts, [[answer] for answer in answers])
        else:
            base = InProcessModel.load(trained.base, name=trained.model, precision="fp32")
            before = base.score(prompts, [[answer] for answer in answers])
        scores = tuple(sample.logprobs for sample in samples)
        return cls(tuple(prompts), tuple(answers), scores, [scored for (scored,) in before])


def _first_segments(run: RunFolder, role: str, limit: int) -> list[Segment]:
    """Calls of the role with different prompts: dev questions first, then others that were measured, then training; the latest
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
"""For a run that stored no episode of the role."""


def _load_plain(folder: Path) -> Any:
    """The network as transformers alone loads it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.inference_mode()
def _compare(drawn: GreedyAnswers, network: Any) -> Agreement:
    gaps: list[float] = []
    identical = 0
    for prompt, answer, scores in zip(drawn.prompts, drawn.answers, drawn.scores, strict=True):
        ids = torch.tensor([prompt + answer])
        logits = network(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
        scored = torch.log_softmax(logits, -1).gather(1, torch.tensor(answer)[:, None]).squeeze(1)
        gaps += (scored - torch.tensor(scores)).abs().tolist()
        # Every token is the likeliest after those before it: so greedy generation says the same.
        identical += logits.argmax(-1).tolist() == list(answer)
    pairs = zip(drawn.scores, drawn.scores_of_base, strict=True)
    moved = [abs(a - b) for after, before in pairs for a, b in zip(after, before, strict=True)]
    mean = sum(gaps) / len(gaps)
    return Agreement(len(drawn.prompts), identical, len(gaps), mean, max(gaps), sum(moved) / len(moved))


def _require_agreement(agreement: Agreement, stored: str) -> None:
    if agreement.mean_gap <= TOLERANCE:
        return
    rounds = stored != "float32"
    raise ExportDiffers(
        f"The folder, as transformers loads it, differs from the run by {agreement.mean_gap:.3f} nats a token on the run's own "
        f"questions, more than {TOLERANCE}." + (f" Rounding to {stored} is the likely cause." if rounds else ""),
        "Export it with --dtype float32, which rounds nothing." if rounds else "",
    )
