"""TRL's side: `GRPOTrainer` as it is, fed completions instead of sampling them; writes weights and gradients.

python -m benchmarks.parity.theirs WORK.json
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.metadata import version
from typing import Any

from benchmarks.parity.work import GROUP, LONGEST, PROMPTS, Work, reward, text_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", help="the file of what is to be done, as benchmarks.parity.parity writes it")
    work = Work.load(parser.parse_args().work)
    import torch

    torch.set_num_threads(1)
    import datasets
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model = AutoModelForCausalLM.from_pretrained(work.folder, dtype=torch.float32, attn_implementation="eager")
    model.get_input_embeddings().requires_grad_(False)
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    record: dict[str, Any] = {"weights": [], "gradients": [], "trl": version("trl")}

    class Recorder(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
            record["weights"].append({name: value.detach().clone() for name, value in trained.items()})

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
            record["gradients"].append({name: value.grad.clone() for name, value in trained.items()})

    generation = iter(work.batches)

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        batch = next(generation)
        asked = [text_of(ids) for ids in work.prompts for _ in range(GROUP)]
        assert prompts == asked, (prompts, asked)
        completions = [ids for group in batch for ids in group]
        return {
            "prompt_ids": [ids for ids in work.prompts for _ in range(GROUP)],
            "completion_ids": completions,
            "logprobs": [[-1.0] * len(ids) for ids in completions],
        }

    def score(completions: list[str], completion_ids: list[list[int]], **unused: Any) -> list[float]:
        return [reward(list(ids)) for ids in completion_ids]

    passes = work.case["passes"]
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=PROMPTS * GROUP // 2,
            gradient_accumulation_steps=2,
            num_generations=GROUP,
            num_iterations=passes,
            max_completion_length=LONGEST,
            temperature=1.0,
            learning_rate=work.case["rate"],
            lr_scheduler_type="constant",
            max_grad_norm=1e9,
            max_steps=len(work.batches) * passes,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            shuffle_dataset=False,
            dataloader_pin_memory=False,
            seed=0,
            **work.case["theirs"],
        )
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=score,
            args=config,
            train_dataset=datasets.Dataset.from_dict({"prompt": [text_of(ids) for ids in work.prompts]}),
            processing_class=AutoTokenizer.from_pretrained(work.folder),
            rollout_func=rollout,
            optimizers=(torch.optim.SGD(trained.values(), lr=work.case["rate"]), None),
            callbacks=[Recorder()],
        )
        trainer.train()
    record["final"] = {name: value.detach().clone() for name, value in trained.items()}
    torch.save(record, work.output)


if __name__ == "__main__":
    main()
