"""TRL's side of `training_step`: one `GRPOTrainer` step per line of standard input, timed, until the input ends."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from typing import Any

from benchmarks.speed.training_protocol import Clock, finish, read_work, ready, report, reward, wait


def main() -> None:
    work = read_work()
    import torch

    torch.set_num_threads(work.threads)
    import datasets
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Steps(TrainerCallback):  # type: ignore[misc]
        """Waits for the word before each step, and reports after it what it took."""

        clock = Clock()

        def on_step_begin(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
            if state.global_step == 0:
                ready({"trained_parameters": trained, "trl": version("trl"), "accelerate": version("accelerate")})
            if not wait():
                finish()
            length = work.length(state.global_step)
            trainer.generation_config.max_new_tokens = trainer.generation_config.min_new_tokens = length
            self.clock = Clock()

        def on_step_end(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
            report(self.clock, {})

    def length_reward(completions: list[str], completion_ids: list[list[int]], **unused: Any) -> list[float]:
        assert {len(ids) for ids in completion_ids} == {work.length(trainer.state.global_step)}
        return [reward(text) for text in completions]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=work.device == "cpu",
            bf16=work.trl_autocast,
            model_init_kwargs={"dtype": work.trl_dtype},
            gradient_checkpointing=work.trl_checkpointing,
            per_device_train_batch_size=work.trl_micro_batch,
            gradient_accumulation_steps=work.prompts * work.group // work.trl_micro_batch,
            num_generations=work.group,
            num_iterations=1,
            max_completion_length=work.tokens,
            generation_kwargs={"min_new_tokens": work.tokens},
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            beta=0.0,
            epsilon=0.2,
            loss_type="grpo",
            learning_rate=work.learning_rate,
            lr_scheduler_type="constant",
            adam_beta1=0.9,
            adam_beta2=0.95,
            weight_decay=0.0,
            max_grad_norm=1.0,
            max_steps=10_000,
            logging_steps=10_000,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            shuffle_dataset=False,
            dataloader_pin_memory=False,
            seed=0,
        )
        trainer = GRPOTrainer(
            model=work.model,
            reward_funcs=length_reward,
            args=config,
            train_dataset=datasets.Dataset.from_dict({"prompt": list(work.texts)}),
            peft_config=LoraConfig(
                r=work.rank,
                lora_alpha=2 * work.rank,
                lora_dropout=0.0,
                target_modules="all-linear",
                task_type="CAUSAL_LM",
            ),
            callbacks=[Steps()],
        )
        trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
        trainer.train()


if __name__ == "__main__":
    main()
