"""What a run trained as a folder that transformers, PEFT and vLLM load, where this package is not installed.

Merged (the default), the adapter is added to the base's weights in float32, and the sum is stored in the type of number that the
base is stored in. That rounds: of a small model in bfloat16 it changes answers. So the folder is compared with the run, on
prompts of the run's own questions and as transformers alone loads it. Where an answer would be another one, the sum is stored in
float32, unless a type was asked for; and a folder that says something else altogether is refused. An adapter is small, and needs
its base.

Nothing of the run's data goes along unless `probe` says so, and no path of this machine: the folder is made to be given away.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.episodes.needs import needs_train

import torch

from keepworth.episodes.episode import Segment
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.episodes.model import FinishReason, SamplingParams, Tokens
from keepworth.learning.run_folder import (
    TRAIN,
    RunFolder,
    episode_files,
    read_json,
    replacing_folder,
)
from keepworth.models.adapter import copy_texts, merged_network, save_network, with_adapter
from keepworth.models.errors import UnsupportedModel
from keepworth.models.files import BASE_RECORD, hub_parts, is_hub_id, record_of, sha256_of
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.model_card import ModelCard, card
from keepworth.recipes.trained import (
    BASE_FOLDER,
    EXPORT_RECORD,
    Trained,
    trained_by,
)

if TYPE_CHECKING:
    pass

PROBE = "probe.json"
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
    with_base: bool = False,
    dtype: str = "",
    probe: bool = False,
) -> Exported:
    """Write what `run` trained into `folder`, whole or not at all.

    merged: weights that stand alone; else the adapter. role: which of several that the run trained. base: the name that others
    know the base by, where the run's own is a folder. with_base: with an adapter, the base's files as well, under `base/`.
    dtype: of merged weights, float32, bfloat16 or float16; if "", the base's where the answers stay the same, else float32.
    probe: also write the prompts that were compared, and the run's answers: texts of its data.

    Raises KeepworthError for what cannot be exported so, ExportDiffers where the folder would say something else than the run,
    and DiskTrouble."""
    run = run if isinstance(run, RunFolder) else RunFolder.open(run)
    folder = Path(folder)
    _require_options(merged, with_base, dtype, base)
    trained = trained_by(run, role)
    if not merged and not trained.is_adapter:
        raise KeepworthError(
            f"{run.path} trained all weights of {trained.role}: there is no adapter.", "Leave --adapter out."
        )
    own = {"run": run.name, "role": trained.role, "kind": "merged" if merged else "adapter"}
    _require_place(folder, run, own)
    source = _base_of(run, trained)
    named = base or str(source.record["repository"])
    if not merged and not is_hub_id(named) and not with_base:
        raise KeepworthError(
            f"The adapter was trained on {Path(named).name}, a folder of this machine, which others do not have.",
            "Export merged weights, give its files along with --with-base, or say with --base what others call it.",
        )
    with replacing_folder(folder) as place:
        rounded = None
        if merged:
            stored, agreement, rounded = _write_merged(run, trained, source, place, dtype)
        else:
            stored, agreement = _write_adapter(run, trained, source, place)
            _name_base(place, named if is_hub_id(named) else BASE_FOLDER, source.record if not base else {})
            if with_base:
                _copy_base(source.folder, place / BASE_FOLDER)
        record = {
            **own,
            "step": trained.step,
            "dtype": stored,
            "base": {**source.record, "repository": named if is_hub_id(named) else Path(named).name},
            "trained": {path.name: sha256_of(path) for path in sorted(trained.weights.glob("*.safetensors"))},
            "agreement": asdict(agreement),
            **({"rounded": asdict(rounded)} if rounded else {}),
        }
        _write_json(place / EXPORT_RECORD, record)
        if probe:
            _write_json(place / PROBE, {"cases": _cases(run, trained)})
        told = ModelCard(run, folder.name, record, with_base=with_base, licence=_licence(trained.model, source.folder))
        (place / "README.md").write_text(card(told), encoding="utf-8")
        for path in place.rglob("*.safetensors"):
            path.chmod(0o644)  # safetensors leaves 0600
    return Exported(folder, own["kind"], trained.role, trained.step, stored, agreement, rounded)


# The base: which files, and whether they are still those that training began from.


@dataclass(frozen=True, slots=True)
class _Base:
    folder: Path
    record: Mapping[str, Any]


def _base_of(run: RunFolder, trained: Trained) -> _Base:
    """Raises KeepworthError where the files have changed since training began."""
    folder = trained.base
    now = record_of(trained.model, folder)
    then = read_json(trained.weights / BASE_RECORD, "Continue the run: it is written with the weights.")["files"]
    if then != now["files"]:
        other = sorted(name for name in {**then, **now["files"]} if then.get(name) != now["files"].get(name))
        raise KeepworthError(
            f"{folder / other[0]} is not what {run.path} was trained from: its sha256 differs.",
            "Put the files back that training began from.",
        )
    return _Base(folder, now)


def stored_dtype(folder: Path) -> str:
    """The type of number that most of a checkpoint's values are stored as."""
    from safetensors import safe_open

    sizes: dict[str, int] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                part = file.get_slice(name)
                size = 1
                for each in part.get_shape():
                    size *= each
                sizes[part.get_dtype()] = sizes.get(part.get_dtype(), 0) + size
    most = max(sizes, key=sizes.__getitem__, default="")
    if most not in _STORED:
        raise UnsupportedModel(
            f"The weights in {folder} are stored as {most or 'nothing'}, which an adapter cannot be merged into.",
            "Export the adapter alone with --adapter, or name a type with --dtype bfloat16.",
        )
    return _STORED[most]


def _licence(model: str, folder: Path) -> str:
    """What the base's own files say of its licence, as model cards write it; "" where they say nothing."""
    from keepworth.models.files import KNOWN

    if model in KNOWN:
        return KNOWN[model].licence.lower()
    page = folder / "README.md"
    head = page.read_text(encoding="utf-8", errors="replace").split("---")[1:2] if page.is_file() else []
    for line in head[0].splitlines() if head else ():
        if line.startswith("license:"):
            return line.split(":", 1)[1].strip()
    return ""


# What is refused before anything slow is done.


def _require_options(merged: bool, with_base: bool, dtype: str, base: str) -> None:
    if with_base and merged:
        raise KeepworthError("--with-base is for an adapter: merged weights need no base.", "Leave it out.")
    if dtype and not merged:
        raise KeepworthError("--dtype is of merged weights; an adapter stays as it was trained.", "Leave it out.")
    if dtype:
        require_known("--dtype", dtype, DTYPES)
    if base and not is_hub_id(base):
        raise KeepworthError(
            f"{base!r} is no name that others know a model by.", "Give its Hugging Face id, such as owner/name."
        )


def _require_place(folder: Path, run: RunFolder, own: Mapping[str, str]) -> None:
    if folder.resolve().is_relative_to(run.path.resolve()):
        raise KeepworthError(
            f"{folder} is inside the run's own folder, where a run that starts over deletes files.",
            "Choose a folder outside it.",
        )
    record = folder / EXPORT_RECORD
    there = read_json(record, "Delete the folder, and export again.") if record.is_file() else {}
    if (folder.exists() or folder.is_symlink()) and (
        not folder.is_dir()
        or folder.is_symlink()
        or (any(folder.iterdir()) and any(there.get(key) != value for key, value in own.items()))
    ):
        raise KeepworthError(
            f"{folder} exists and holds something else than an export of this run.",
            "Choose another folder, or move it away.",
        )


# The two kinds of folder.


def _write_merged(
    run: RunFolder, trained: Trained, source: _Base, folder: Path, dtype: str
) -> tuple[str, Agreement, Agreement | None]:
    """The type that was chosen, how the folder agrees, and how the base's type would have, where that was not chosen."""
    model = trained.loaded("fp32")
    said = GreedyAnswers.by(model, run, trained.role)
    before = _scores_before(trained, source, model, said)
    stored = dtype or stored_dtype(source.folder)
    agreement = _stored(model, source, folder, stored, said, before)
    same = agreement.identical == agreement.prompts and agreement.mean_gap <= TOLERANCE
    if dtype or stored == "float32" or same:
        _require_agreement(agreement, stored)
        return stored, agreement, None
    del model  # its weights are those that were rounded
    exact = _stored(trained.loaded("fp32"), source, folder, "float32", said, before)
    _require_agreement(exact, "float32")
    return "float32", exact, agreement


def _stored(
    model: InProcessModel,
    source: _Base,
    folder: Path,
    dtype: str,
    said: GreedyAnswers,
    before: Sequence[Sequence[float]],
) -> Agreement:
    network = merged_network(model).to(DTYPES[dtype])
    with torch.no_grad():
        if not all(bool(torch.isfinite(value).all()) for value in network.parameters()):
            raise ExportDiffers(
                f"Stored as {dtype}, some of the weights are no finite numbers.", "Export them with --dtype float32."
            )
    for written in folder.glob("*.safetensors*"):  # in another type
        written.unlink()
    save_network(network, folder)
    copy_texts(source.folder, folder)
    return _agreement(said, _plain(folder), before)


def _write_adapter(run: RunFolder, trained: Trained, source: _Base, folder: Path) -> tuple[str, Agreement]:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copyfile(trained.weights / name, folder / name)
    copy_texts(source.folder, folder, but=("config.json", "generation_config.json"))
    model = trained.loaded("fp32")
    said = GreedyAnswers.by(model, run, trained.role)
    before = _scores_before(trained, source, model, said)
    agreement = _agreement(said, with_adapter(_plain(source.folder), folder), before)
    _require_agreement(agreement, "float32")
    return stored_dtype(folder), agreement


def _name_base(folder: Path, name: str, record: Mapping[str, Any]) -> None:
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["base_model_name_or_path"] = hub_parts(name)[0] if is_hub_id(name) else name
    if is_hub_id(name) and record.get("revision"):
        settings["revision"] = record["revision"]
    _write_json(path, settings)


def _copy_base(base: Path, folder: Path) -> None:
    folder.mkdir()
    for path in sorted((*base.glob("*.safetensors"), *base.glob("*.safetensors.index.json"))):
        shutil.copyfile(path, folder / path.name)
    copy_texts(base, folder)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# Whether the folder says what the run says.


@dataclass(frozen=True, slots=True)
class GreedyAnswers:
    """Prompts, the run's greedy answers, and the log-probability that it gives to each of their tokens."""

    prompts: tuple[Tokens, ...]
    answers: tuple[Tokens, ...]
    scores: tuple[tuple[float, ...], ...]

    @classmethod
    def by(cls, model: InProcessModel, run: RunFolder, role: str) -> GreedyAnswers:
        """Answers end as those of the run did: where it stopped, and no longer than its longest."""
        limit = min(LONGEST_PROMPT, model.context_limit - LONGEST_ANSWER)
        asked: dict[Tokens, Segment] = {}
        for segment in _segments(run, role):
            if 0 < len(segment.context) <= limit:
                asked.setdefault(segment.context, segment)
            if len(asked) == PROMPTS:
                break
        ends = {each.ids[-1] for each in asked.values() if each.ids and each.finish is FinishReason.STOP}
        longest = min(LONGEST_ANSWER, max((len(each.ids) for each in asked.values()), default=LONGEST_ANSWER)) or 1
        prompts = list(asked) or [model.encode(text) for text in _TEXTS]
        params = SamplingParams(longest, temperature=0.0, stop_ids=_ends(model.network) | ends)
        answers = [sample for (sample,) in model.sample(prompts, params)]
        return cls(tuple(prompts), tuple(each.ids for each in answers), tuple(each.logprobs for each in answers))


def _scored(model: InProcessModel, said: GreedyAnswers) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(scores) for (scores,) in model.score(said.prompts, [[answer] for answer in said.answers]))


def _ends(network: Any) -> frozenset[int]:
    """The ids at which generation stops, as the model's own settings say."""
    ends = getattr(network.generation_config, "eos_token_id", None) or network.config.eos_token_id
    return frozenset([ends] if isinstance(ends, int) else ends or ())


def _segments(run: RunFolder, role: str) -> Iterator[Segment]:
    """What the run asked the role: dev questions first, then others that were measured, then training; the latest first."""
    arms = {arm for _, arm, _ in episode_files(run.path)}
    rank = {arm: 2 if arm == TRAIN else 0 if arm.startswith("dev") else 1 for arm in arms}
    for step, arm, _ in sorted(episode_files(run.path), key=lambda each: (rank[each[1]], -each[0], each[1] == "")):
        for stored in run.episodes(step=step, arm=arm):
            yield from [each for each in stored.episode.segments if each.role == role][:1]


_TEXTS = ("A weight update that arrived changes what the model says next.", "Question: Who moved to Delhi?\nAnswer:")
"""For a run that stored no episode of the role."""


def _cases(run: RunFolder, trained: Trained) -> list[dict[str, Any]]:
    """Prompts, and what the trained model answers in the precision that the run had."""
    model = trained.loaded()
    said = GreedyAnswers.by(model, run, trained.role)
    return [
        {"prompt": list(prompt), "answer": list(answer), "text": model.decode(answer)}
        for prompt, answer in zip(said.prompts, said.answers, strict=True)
    ]


def _scores_before(
    trained: Trained, source: _Base, model: InProcessModel, said: GreedyAnswers
) -> tuple[tuple[float, ...], ...]:
    """What the base gives to the same answers."""
    if trained.is_adapter:
        with model.without_adapter():
            return _scored(model, said)
    base = InProcessModel.load(source.folder, name=trained.model, precision="fp32")
    return _scored(base, said)


def _plain(folder: Path) -> Any:
    """The network as transformers alone loads it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.inference_mode()
def _agreement(said: GreedyAnswers, network: Any, before: Sequence[Sequence[float]]) -> Agreement:
    gaps: list[float] = []
    identical = 0
    for prompt, answer, scores in zip(said.prompts, said.answers, said.scores, strict=True):
        ids = torch.tensor([prompt + answer])
        logits = network(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
        scored = torch.log_softmax(logits, -1).gather(1, torch.tensor(answer)[:, None]).squeeze(1)
        gaps += (scored - torch.tensor(scores)).abs().tolist()
        # Every token is the likeliest after those before it: so greedy generation says the same.
        identical += logits.argmax(-1).tolist() == list(answer)
    moved = [
        abs(a - b) for one, other in zip(said.scores, before, strict=True) for a, b in zip(one, other, strict=True)
    ]
    return Agreement(len(said.prompts), identical, len(gaps), sum(gaps) / len(gaps), max(gaps), sum(moved) / len(moved))


def _require_agreement(found: Agreement, stored: str) -> None:
    """Raises ExportDiffers."""
    if found.mean_gap <= TOLERANCE:
        return
    rounds = stored != "float32"
    raise ExportDiffers(
        f"The folder, as transformers loads it, differs from the run by {found.mean_gap:.3f} nats a token on the run's own "
        f"questions, more than {TOLERANCE}." + (f" Rounding to {stored} is the likely cause." if rounds else ""),
        "Export it with --dtype float32, which rounds nothing." if rounds else "",
    )
