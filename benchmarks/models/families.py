"""Families of networks: how each is computed, and how far that is from the network's own forward pass.

    python -m benchmarks.models.families [--only WORD ...]

Each family is a tiny checkpoint of random weights, made from its class in transformers. It is loaded as any model is, and
compared, in float64, with the plain network of transformers: eager attention, one text at a time, no cache. Compared are the
log-probabilities of branches behind prompts of three lengths in one batch, short ones and ones of several windows; the
gradients of all weights; greedy tokens with `network.generate`; tokens drawn at fixed seeds with tokens drawn from the plain
network at the same numbers. Then a LoRA adapter is attached and gets a gradient. Writes `families.json`, of which --only
writes some rows anew.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.models.checkpoints import FAMILIES, Family, write_checkpoint
from benchmarks.record import arguments, save
from keepworth.base.errors import KeepworthError
from keepworth.models.adapter import attach_lora
from keepworth.models.attention import tree
from keepworth.models.drawing import draw, uniforms
from keepworth.models.inprocess import DTYPES, InProcessModel, Precision
from keepworth.records import SamplingParams
from keepworth.training.run_folder import versions

HERE = Path(__file__).parent
FOUND = HERE / "families.json"
Text = tuple[int, ...]
SEED, NEW_TOKENS, SAMPLES = 7, 12, 2
LENGTHS = {"short": ((9, 5, 14), (3, 1, 5)), "long": ((61, 33, 48), (19, 1, 30))}
"""Tokens of the prompts and of the branches behind each of them. The windows and chunks here are of 8 tokens."""


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--only", nargs="*", default=[], help="families whose name or class holds one of these words")
    options = parser.parse_args()
    chosen = [f for f in FAMILIES if not options.only or any(word in f"{f.models} {f.config}" for word in options.only)]
    rows = []
    for family in chosen:
        rows.append(measured(family))
        print(line(rows[-1]), flush=True)
    if options.only:  # the others stay as they were measured
        anew = {row["models"]: row for row in rows}
        rows = [anew.get(row["models"], row) for row in json.loads(FOUND.read_text(encoding="utf-8"))["families"]]
    record = {"seed": SEED, "lengths": LENGTHS, "new_tokens": NEW_TOKENS, "versions": versions(), "families": rows}
    save(FOUND, record)


def line(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"{row['models']} ({row['class']}): refused: {row['refused']}"
    gaps = ", ".join(f"{name} {row[name]['logprob_gap']:.1e} / {row[name]['gradient_gap']:.1e}" for name in LENGTHS)
    return (
        f"{row['models']} ({row['class']}): gaps {gaps}, "
        f"bf16 {row['bf16_gap']:.2g}; greedy {row['greedy_equal']} of {row['drawn']}, seeded {row['seeded_equal']} of "
        f"{row['drawn'] * SAMPLES}; LoRA: {row['lora']}"
    )


def measured(family: Family) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"models": family.models, "config": family.config, "settings": family.settings}
    with tempfile.TemporaryDirectory() as temporary, quiet():
        folder = Path(temporary) / "model"
        row["class"] = write_checkpoint(folder, family.config, family.without, **family.settings)
        try:
            InProcessModel.load(folder, precision="bf16", device="cpu")
            model = InProcessModel.load(folder, precision="fp64", device="cpu")
        except KeepworthError as error:
            return row | {"refused": error.message.replace(f"{folder} ", "")}
        plain = plain_network(folder)
        for name in LENGTHS:
            row[name] = compared(model, plain, name)
        row["drawn"] = NEW_TOKENS * len(LENGTHS["long"][0])
        row["greedy_equal"], row["seeded_equal"] = drawn_alike(model, plain)
        row["bf16_gap"] = rounded_gap(folder)
        row["lora"] = adapted(folder)
    return row


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of transformers about tiny networks."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def plain_network(folder: Path, precision: Precision = "fp64") -> Any:
    """The network as transformers loads it, with the attention that is written out."""
    from transformers import AutoModelForCausalLM

    settings = {"experts_implementation": "eager"} if precision == "fp64" else {}
    network = AutoModelForCausalLM.from_pretrained(
        folder, dtype=DTYPES[precision], attn_implementation="eager", **settings
    )
    return network.eval()


def texts(name: str) -> tuple[list[Text], list[list[Text]]]:
    generator = torch.Generator().manual_seed(SEED)
    prompts, branches = LENGTHS[name]

    def some(length: int) -> Text:
        return tuple(torch.randint(3, 256, (length,), generator=generator).tolist())

    return [some(length) for length in prompts], [[some(length) for length in branches] for _ in prompts]


def plain_scores(network: Any, prompt: Text, branch: Text) -> torch.Tensor:
    """Log-probability of each token of `branch` behind `prompt`, from one pass over both."""
    ids = torch.tensor([prompt + branch], device=network.device)
    logits = network(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    wide = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    return wide.gather(1, ids[0, len(prompt) :, None]).squeeze(1)


def compared(model: InProcessModel, plain: Any, name: str) -> dict[str, float]:
    """logprob_gap: the largest, in nats. gradient_gap: norm of the difference in norms of the plain network's gradient, of a
    sum of the log-probabilities with weights of both signs, over all weights."""
    prompts, branches = texts(name)
    for network in (model.network, plain):
        network.requires_grad_(True)
        network.zero_grad()
    ours, _ = model.tree_scores(tree(prompts, branches))
    theirs = torch.cat([plain_scores(plain, p, b) for p, group in zip(prompts, branches, strict=True) for b in group])
    weights = torch.linspace(-1, 1, len(ours), dtype=torch.float64)
    (weights * ours).sum().backward()
    (weights * theirs).sum().backward()
    other = dict(plain.named_parameters())
    difference = total = 0.0
    for key, value in model.network.named_parameters():
        wanted = torch.zeros_like(value) if other[key].grad is None else other[key].grad
        got = torch.zeros_like(value) if value.grad is None else value.grad
        difference += float((got - wanted).square().sum())
        total += float(wanted.square().sum())
    model.network.requires_grad_(False)
    plain.requires_grad_(False)
    return {
        "tokens": len(ours),
        "logprob_gap": float((ours - theirs).detach().abs().max()),
        "gradient_gap": (difference / total) ** 0.5,
    }


@torch.inference_mode()
def drawn_alike(model: InProcessModel, plain: Any) -> tuple[int, int]:
    """How many greedy tokens are those of `generate`, and how many drawn ones those that the plain network gives at the
    same numbers; a token behind the first that differs counts as different."""
    prompts, _ = texts("long")
    plain.generation_config.eos_token_id = None
    plain.generation_config.pad_token_id = 0
    greedy = 0
    for prompt, (sample,) in zip(
        prompts, model.sample(prompts, SamplingParams(NEW_TOKENS, temperature=0)), strict=True
    ):
        ids = torch.tensor([prompt])
        made = plain.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, use_cache=True
        )
        greedy += alike(sample.ids, made[0, len(prompt) :].tolist())
    params = SamplingParams(NEW_TOKENS, n=SAMPLES, seed=SEED)
    numbers = uniforms(params, range(len(prompts)))
    seeded = 0
    for index, (prompt, samples) in enumerate(zip(prompts, model.sample(prompts, params), strict=True)):
        for number, sample in enumerate(samples):
            made = list(prompt)
            for step in range(NEW_TOKENS):
                logits = plain(input_ids=torch.tensor([made]), use_cache=False).logits[0, -1]
                made.append(int(draw(logits[None], params, numbers[index, number, step][None])[0]))
            seeded += alike(sample.ids, made[len(prompt) :])
    return greedy, seeded


def alike(ours: tuple[int, ...], theirs: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), len(theirs))


@torch.inference_mode()
def rounded_gap(folder: Path) -> float:
    """Root mean square difference of the log-probabilities where both are computed in bfloat16."""
    model = InProcessModel.load(folder, precision="bf16", device="cpu")
    plain = plain_network(folder, "bf16")
    prompts, branches = texts("long")
    gaps = [
        torch.tensor(values) - plain_scores(plain, prompt, branch)
        for prompt, group, scored in zip(prompts, branches, model.score(prompts, branches), strict=True)
        for branch, values in zip(group, scored, strict=True)
    ]
    return float(torch.cat(gaps).square().mean().sqrt())


def adapted(folder: Path) -> str:
    """Which layers a LoRA adapter is put on, and how many of its tensors get a gradient."""
    model = InProcessModel.load(folder, precision="fp32", device="cpu")
    try:
        named = attach_lora(model, rank=2)
    except KeepworthError as error:
        return f"refused: {error.message}"
    prompts, branches = texts("short")
    lp, _ = model.tree_scores(tree(prompts, branches))
    lp.sum().backward()
    up = [value for name, value in named.items() if "lora_B" in name]
    moved = sum(value.grad is not None and bool(value.grad.abs().max() > 0) for value in up)
    layers = sorted({name.split(".lora_")[0].rsplit(".", 1)[1] for name in named})
    return f"{', '.join(layers)} ({moved} of {len(up)} get a gradient)"


if __name__ == "__main__":
    main()
