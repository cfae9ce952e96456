"""What a GPU has to show before anybody trusts it: exactness, speed, memory and the attention that is used.

    python -m benchmarks.gpu                                    # needs CUDA; writes benchmarks/gpu.json, or --json FILE
    python -m benchmarks.gpu --trl-python /path/to/python       # with TRL's `GRPOTrainer` beside our training step
    python -m benchmarks.gpu --device cpu --quick               # the same checks of a tiny model, to see that they work

Exactness, in float32 and bfloat16: log-probabilities of sampled tokens against those with which the learner scores them;
answers scored as a tree behind their prompt against the network's own pass over one sequence at a
time; and in float32 the gradients of an update, and the answers to the same seeds, against the processor's. Speed: tokens per
second beside Hugging Face `generate`, seconds of a training step, beside TRL's where there is a Python that has it. Each
check keeps its result in the file as soon as it has one; one that fails says why and the next begins, and none begins after
--minutes. Ends with 1 where a check fails.
"""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.models.families import plain_scores
from benchmarks.record import arguments, save
from benchmarks.speed.sampling import OURS, SAMPLES, compared
from benchmarks.speed.setting import HERE, MODEL, machine, prompts
from benchmarks.speed.training_ours import groups
from keepworth.base.model_files import path_of
from keepworth.models.adapter import attach_lora
from keepworth.models.inprocess import DTYPES, InProcessModel, Precision
from keepworth.records.model import Sample, SamplingParams, Tokens
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.objective.presets import preset

WRITTEN = HERE.parent / "gpu.json"
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
LIMITS: Mapping[Precision, Mapping[str, float]] = {"fp32": {"largest": 1e-3, "mean": 1e-4}, "bf16": {"mean": 0.05}}
"""Nats by which log-probabilities may differ. In bfloat16 single tokens differ much, so that only the mean has a limit."""
ROUNDING = 1.5
"""In bfloat16 the tree may be so many times as far from float32 as the network's own pass is."""
GRADIENT_LIMIT = 1e-3
"""Length of the difference of two gradients, as a share of the gradient's."""
ATTENTION = "scaled_dot_product"
"""In the names of the operations that compute attention in one."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is computed, and where. quick: a tiny model of the tests, whose weights come from a seed."""

    device: str
    quick: bool = False
    model: str = MODEL
    prompts: int = 2
    prompt_tokens: int = 400
    group: int = 8
    tokens: int = 128
    drawn: int = 256
    rounds: int = 3
    trl_python: str = ""

    def load(self, precision: Precision, device: str = "") -> InProcessModel:
        where = device or self.device
        if self.quick:
            from tests.models.tiny import tiny_model

            model = tiny_model(precision=precision)
            model.network.to(where)
            return model
        return InProcessModel.load(path_of(self.model), precision=precision, device=where)

    def plain(self, precision: Precision) -> Any:
        """The network as transformers has it, with its own attention."""
        if self.quick:
            from tests.models.tiny import tiny_network

            return tiny_network(attn="sdpa", precision=precision).to(self.device)
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(path_of(self.model), dtype=DTYPES[precision]).eval().to(self.device)

    def texts(self, model: InProcessModel) -> list[Tokens]:
        """Prompts of equal length, none like another."""
        if self.quick:
            return [tuple((7 * i + 31 * j) % 251 for j in range(self.prompt_tokens)) for i in range(self.prompts)]
        return [model.encode(text) for text in prompts(model.tokenizer, self.prompts, self.prompt_tokens)]


QUICK = Setting("cpu", quick=True, model="tiny", prompt_tokens=24, group=4, tokens=12, drawn=12, rounds=1)


class NotHere(Exception):
    """A check cannot be made on this machine, and nothing is wrong."""


def drawn_adapter(model: InProcessModel) -> dict[str, torch.Tensor]:
    """An adapter of rank 16 whose B is not zero."""
    drawn = torch.Generator().manual_seed(3)
    named = attach_lora(model, 16)
    with torch.no_grad():
        for name, value in named.items():
            if "lora_B" in name:
                value.copy_(torch.randn(value.shape, generator=drawn) * 0.02)
    return named


def sampled_against_scored(setting: Setting) -> dict[str, Any]:
    """Log-probabilities of sampled tokens, with an adapter that is not zero as in training, and those that the learner gives."""
    made: dict[str, Any] = {}
    for precision in PRECISIONS:
        model = setting.load(precision)
        drawn_adapter(model)
        texts = setting.texts(model)
        sampled = model.sample(texts, SamplingParams(setting.tokens, n=setting.group, seed=1))
        drawn = np.array([lp for samples in sampled for sample in samples for lp in sample.logprobs])
        scored = scores_of(model, texts, [[sample.ids for sample in samples] for samples in sampled])
        made[precision] = gaps(np.abs(drawn - scored), precision)
    return made | {"passes": all(value["passes"] for value in made.values())}


def gaps(differences: np.ndarray[Any, Any], precision: Precision) -> dict[str, Any]:
    """Of absolute differences in nats."""
    measured = {"n": len(differences), "mean": float(differences.mean()), "largest": float(differences.max())}
    good = all(measured[name] <= limit for name, limit in LIMITS[precision].items())  # what is no number is not
    return measured | {"limit": dict(LIMITS[precision]), "passes": good}


def tree_against_sequences(setting: Setting) -> dict[str, Any]:
    """Answers of different lengths behind their prompt, scored together; and each sequence alone by the network itself.

    In bfloat16 both are held against the network in float32, because rounding alone tells them apart."""
    model = setting.load("fp32")
    texts = setting.texts(model)
    drawn = model.sample(texts, SamplingParams(setting.tokens, n=setting.group, seed=2))
    branches = [[sample.ids[: 1 + (5 * j) % setting.tokens] for j, sample in enumerate(samples)] for samples in drawn]
    exact = one_at_a_time(setting.plain("fp32"), texts, branches)
    made: dict[str, Any] = {"fp32": gaps(np.abs(scores_of(model, texts, branches) - exact), "fp32")}
    ours_off = np.abs(scores_of(setting.load("bf16"), texts, branches) - exact)
    theirs_off = np.abs(one_at_a_time(setting.plain("bf16"), texts, branches) - exact)
    made["bf16"] = {
        "n": len(exact),
        "mean": float(ours_off.mean()),
        "largest": float(ours_off.max()),
        "mean_of_the_network": float(theirs_off.mean()),
        "limit": {"mean": ROUNDING * float(theirs_off.mean())},
        "passes": bool(ours_off.mean() <= ROUNDING * theirs_off.mean()),
    }
    return made | {"passes": all(value["passes"] for value in made.values())}


def scores_of(
    model: InProcessModel, texts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]]
) -> np.ndarray[Any, Any]:
    """Of every token of every branch, in order, scored as a tree."""
    return np.array([lp for group in model.score(texts, branches) for row in group for lp in row])


@torch.inference_mode()
def one_at_a_time(network: Any, texts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]]) -> np.ndarray[Any, Any]:
    """The same, each sequence by itself."""
    pairs = [(text, branch) for text, group in zip(texts, branches, strict=True) for branch in group]
    return np.asarray(torch.cat([plain_scores(network, *pair) for pair in pairs]).double().cpu().numpy())


def as_on_the_processor(setting: Setting) -> dict[str, Any]:
    """float32: answers to the same seeds, and the gradients of an update from the same answers and the same adapter."""
    base = setting.load("fp32", "cpu")
    named = drawn_adapter(base)
    begins = {name: value.detach().clone() for name, value in named.items()}
    texts = setting.texts(base)
    params = SamplingParams(setting.tokens, n=setting.group, seed=3)
    sampled = base.sample(texts, params)
    expected = gradients(base, named, texts, sampled)
    model = setting.load("fp32")
    adapter = drawn_adapter(model)
    with torch.no_grad():
        for name, value in adapter.items():
            value.copy_(begins[name])
    again = model.sample(texts, params)
    pairs = [(a.ids, b.ids) for x, y in zip(sampled, again, strict=True) for a, b in zip(x, y, strict=True)]
    here = gradients(model, adapter, texts, sampled)
    length = math.sqrt(sum(float((value**2).sum()) for value in expected.values()))
    off = math.sqrt(sum(float(((here[name] - value) ** 2).sum()) for name, value in expected.items())) / length
    return {
        "answers": len(pairs),
        "identical_answers": sum(a == b for a, b in pairs),
        "gradient_norm": length,
        "relative_difference": off,
        "limit": GRADIENT_LIMIT,
        "passes": off <= GRADIENT_LIMIT,
    }


def gradients(
    model: InProcessModel, named: dict[str, torch.Tensor], texts: Sequence[Tokens], sampled: Sequence[Sequence[Sample]]
) -> dict[str, torch.Tensor]:
    """Of an update from these answers, by name, before it is taken."""
    learner = learner_of(model, named)
    taken: dict[str, torch.Tensor] = {}
    step = learner.master_weights.step

    def noting(*given: Any) -> float:
        for name, value in named.items():
            grad = torch.zeros_like(value) if value.grad is None else value.grad
            taken[name] = grad.detach().double().cpu().clone()
        return step(*given)

    learner.master_weights.step = noting  # type: ignore[method-assign]
    learner.update(groups(model, "t", texts, sampled))
    return taken


def learner_of(model: InProcessModel, named: dict[str, torch.Tensor]) -> Learner:
    return Learner(model, named, preset("grpo", kl=None), Optimisation(learning_rate=1e-5), "policy")


class Operations(TorchDispatchMode):
    """Names of the operations that are computed inside."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func).removeprefix("aten."))
        return func(*args, **(kwargs or {}))


def attention_used(setting: Setting) -> dict[str, Any]:
    """The operations that compute attention, in bfloat16, by what is done. None of one: it is written out in products."""
    model = setting.load("bf16")
    texts = setting.texts(model)
    made: dict[str, Any] = {}
    with Operations() as watched:
        drawn = model.sample(texts, SamplingParams(2, n=setting.group, seed=4))
    made["sampling"] = attention_in(watched.names)
    with Operations() as watched:
        model.score(texts, [[sample.ids for sample in samples] for samples in drawn])
    made["scoring"] = attention_in(watched.names)
    return made


def attention_in(names: set[str]) -> list[str]:
    return sorted(name for name in names if ATTENTION in name) or ["written out"]


def speed_beside_generate(setting: Setting) -> dict[str, Any]:
    """bfloat16, prompts read included, every completion of exactly the stated length: see `benchmarks.speed.sampling`."""
    model = setting.load("bf16")
    sides = compared(model, setting.plain("bf16"), setting.texts(model))
    spent: dict[str, list[float]] = {name: [] for name in sides}
    peaks: dict[str, int] = {}
    for number in range(setting.rounds):
        for name in list(sides) if number % 2 == 0 else list(sides)[::-1]:
            with peak_memory(setting.device) as peak:
                begun = time.perf_counter()
                sides[name](setting.drawn)
                synchronise(setting.device)
                spent[name].append(time.perf_counter() - begun)
            peaks[name] = max(peaks.get(name, 0), peak[0])
    tokens = setting.prompts * SAMPLES * setting.drawn
    return {
        "prompts": setting.prompts,
        "samples": SAMPLES,
        "prompt_tokens": setting.prompt_tokens,
        "tokens": setting.drawn,
        "seconds": spent,
        "tokens_per_second": {name: tokens / statistics.median(seconds) for name, seconds in spent.items()},
        "times_as_fast": {
            name: statistics.median(seconds) / statistics.median(spent[OURS]) for name, seconds in spent.items()
        },
        **({"peak_device_bytes": peaks} if setting.device != "cpu" else {}),
    }


def training_step(setting: Setting) -> dict[str, Any]:
    """Seconds and memory of sampling and learning from it, bfloat16; the first of them warms up."""
    model = setting.load("bf16")
    learner = learner_of(model, drawn_adapter(model))
    texts = setting.texts(model)
    rows = []
    for number in range(1 + setting.rounds):
        with peak_memory(setting.device) as peak:
            begun = time.perf_counter()
            sampled = model.sample(texts, SamplingParams(setting.tokens, n=setting.group, seed=number))
            synchronise(setting.device)
            drawn = time.perf_counter()
            learned = learner.update(groups(model, "t", texts, sampled))
            synchronise(setting.device)
            row = {"sampling": drawn - begun, "learning": time.perf_counter() - drawn, "loss": learned["loss"]}
        rows.append(row | ({"peak_device_bytes": float(peak[0])} if setting.device != "cpu" else {}))
    finite = all(math.isfinite(value) for row in rows for value in row.values())
    return {"tokens": setting.tokens, "rounds": rows[1:], "passes": finite}


def beside_trl(setting: Setting) -> dict[str, Any]:
    """A step of `benchmarks.speed.training_step` on the device: ours and TRL's, each in a process of its own."""
    if setting.quick or not setting.trl_python:
        raise NotHere("--quick has no model's files" if setting.quick else "no --trl-python was given")
    from benchmarks.speed.training_step import OURS, TRL, fitting_step, one_step, work_of

    work = replace(work_of(setting.prompts, setting.tokens, torch.get_num_threads()), device=setting.device)
    mine, theirs = [], []
    for _ in range(setting.rounds):
        mine.append(one_step(sys.executable, "training_ours", work))
        theirs.append(fitting_step(setting.trl_python, "training_trl", work))
    ratios = [b["wall"] / a["wall"] for a, b in zip(mine, theirs, strict=True)]
    return {"tokens": setting.tokens, OURS: mine, TRL: theirs, "times_as_fast": statistics.median(ratios)}


@contextlib.contextmanager
def peak_memory(device: str) -> Iterator[list[int]]:
    """Holds, afterwards, the most memory of the device that tensors had inside, in bytes; 0 on a processor."""
    peak = [0]
    if device == "cpu":
        yield peak
        return
    torch.cuda.reset_peak_memory_stats(device)
    yield peak
    peak[0] = int(torch.cuda.max_memory_allocated(device))


def synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


CHECKS: Mapping[str, Callable[[Setting], dict[str, Any]]] = {
    "attention": attention_used,
    "sampled against scored": sampled_against_scored,
    "tree against sequences": tree_against_sequences,
    "as on the processor": as_on_the_processor,
    "speed beside generate": speed_beside_generate,
    "training step": training_step,
    "training step beside TRL": beside_trl,
}


def about(device: str) -> dict[str, Any]:
    if device == "cpu":
        return {"name": "processor"}
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory_bytes": int(properties.total_memory),
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
    }


def run(setting: Setting, minutes: float, write: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Every check, as long as there is time. write: is given the result after each."""
    result: dict[str, Any] = {
        "machine": machine(torch.get_num_threads()),
        "device": about(setting.device),
        "model": setting.model,
        "quick": setting.quick,
        "passes": False,
        "checks": {},
        "left_out": {},
    }
    begun = time.monotonic()
    for name, check in CHECKS.items():
        if time.monotonic() - begun > 60 * minutes:
            result["left_out"][name] = f"{minutes:g} minutes were over"
            continue
        since = time.monotonic()
        try:
            made = check(setting)
        except NotHere as error:
            result["left_out"][name] = str(error)
            continue
        except Exception as error:  # the others say what they can all the same
            made = {"passes": False, "error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        result["checks"][name] = made | {"check_seconds": time.monotonic() - since}
        gc.collect()
        if setting.device != "cpu":
            torch.cuda.empty_cache()
        result["passes"] = all(check.get("passes", True) for check in result["checks"].values())
        write(result)
    return result


def main() -> None:
    asked = arguments(__doc__)
    asked.add_argument("--device", default="cuda")
    asked.add_argument("--quick", action="store_true", help="a tiny model of the tests")
    asked.add_argument("--model", default=MODEL)
    asked.add_argument("--minutes", type=float, default=10.0, help="no check begins after this long")
    asked.add_argument("--trl-python", default="", help="a Python that has TRL and the same torch")
    options = asked.parse_args()
    if options.device != "cpu" and not torch.cuda.is_available():
        raise SystemExit("There is no CUDA device here. --device cpu --quick tries the same checks on the processor.")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # float32 is float32
    setting = replace(QUICK, device=options.device) if options.quick else Setting(options.device, model=options.model)
    setting = replace(setting, trl_python=options.trl_python)
    path = options.json or (WRITTEN if options.device != "cpu" else None)

    def write(result: dict[str, Any]) -> None:
        name, made = list(result["checks"].items())[-1]
        word = {True: "passes", False: "FAILS", None: "measured"}[made.get("passes")]
        print(f"{name:26} {word:8} {made['check_seconds']:6.1f} s  {made.get('error', '')}", flush=True)
        if path is not None:
            save(path, result)

    result = run(setting, options.minutes, write)
    for name, why in result["left_out"].items():
        print(f"{name:26} left out: {why}")
    if not result["passes"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
