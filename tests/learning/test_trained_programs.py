"""Training the model inside an agent that is a program: the update is that of our own agent, and two trainings do not mix."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from keepworth import train
from keepworth.base.errors import KeepworthError
from keepworth.cli.train import train as command_of_train
from keepworth.models.inprocess import InProcessModel
from keepworth.records.episode import Episode, Observation, RewardTerm, StopReason, Task
from keepworth.training.front_door import TrainedRun, make_recipe
from keepworth.training.recipe import Origin
from keepworth.training.run_folder import RunFolder
from keepworth.worlds.agent import Action, Caller
from keepworth.worlds.chat import Chat
from keepworth.worlds.environment import Step
from tests.learning.intercepted import write_chat_model
from tests.stand_in.server import ModelServer

openai = pytest.importorskip("openai")
AGAIN = "Again."
SIZES: dict[str, Any] = {
    "max_tokens": 5,
    "steps": 2,
    "tasks_per_step": 2,
    "group_size": 3,
    "questions": 2,
    "learning_rate": 1e-2,
    "precision": "fp32",
    "threads": 1,
    "patience": 0,
}


def rows(word: str = "say") -> list[dict[str, Any]]:
    return [{"prompt": f"{word} {n}"} for n in range(12)]


def agent(row: dict[str, Any]) -> str:
    """Two turns."""
    client = openai.OpenAI()
    messages: list[Any] = [{"role": "user", "content": row["prompt"]}]
    for asked in (AGAIN, ""):
        answer = client.chat.completions.create(model="any", messages=messages)
        messages += [answer.choices[0].message, {"role": "user", "content": asked}]
    return str(answer.choices[0].message.content)


def score(answer: str, row: dict[str, Any]) -> float:
    return sum(letter < "a" for letter in answer) / 5


class Twice:
    """The same two turns, as a world."""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.turns = 0
        return Observation(task.input)

    async def step(self, action: str) -> Step:
        self.turns += 1
        if self.turns == 1:
            return Step(Observation(AGAIN))
        return Step(rewards=(RewardTerm("score", score(action.strip(), {})),), stop=StopReason.COMPLETED)

    async def close(self) -> None:
        return


class GoesOn(Chat):
    """Our own agent; one answer that is cut does not end its episode."""

    async def act(self, observation: Observation, model: Caller) -> Action:
        return replace(await super().act(observation, model), cut=False)


def episodes(run: TrainedRun) -> list[Episode]:
    return [stored.episode for stored in RunFolder.open(run.path).episodes(arm="train")]


def weights(run: TrainedRun) -> dict[str, torch.Tensor]:
    (file,) = run.path.glob("weights/policy/*.safetensors")
    return load_file(file)


def test_the_update_is_that_of_the_same_episodes_of_our_own_agent(tmp_path: Path) -> None:
    how = {**SIZES, "model": str(write_chat_model(tmp_path / "model")), "runs": tmp_path / "runs"}
    chat = lambda task, memory: GoesOn(max_tokens=SIZES["max_tokens"])  # noqa: E731
    ours = train(rows(), environment=Twice, agent=chat, turns=2, name="ours", **how)
    theirs = train(rows(), agent=agent, reward=score, name="theirs", **how)
    drawn = [
        [(call.context, call.ids, call.logprobs) for episode in episodes(run) for call in episode.segments]
        for run in (ours, theirs)
    ]
    assert len(drawn[0]) == 2 * 2 * 3 * 2
    assert drawn[0] == drawn[1]
    rewards = [[episode.reward for episode in episodes(run)] for run in (ours, theirs)]
    assert rewards[0] == rewards[1]
    assert len(set(rewards[0])) > 1
    learned, of_program = weights(ours), weights(theirs)
    assert learned.keys() == of_program.keys()
    assert any(float(tensor.abs().max()) > 0 for name, tensor in learned.items() if "lora_B" in name)
    assert max(float((learned[name] - of_program[name]).abs().max()) for name in learned) <= 1e-6
    norms = [[row["gradient_norm"] for row in RunFolder.open(run.path).metrics()] for run in (ours, theirs)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)


def test_two_trainings_at_once_do_not_mix(tmp_path: Path) -> None:
    how = {**SIZES, "runs": tmp_path / "runs"}
    runs: dict[str, TrainedRun] = {}

    def work(word: str) -> None:
        model = str(write_chat_model(tmp_path / word))
        runs[word] = train(rows(word), agent=agent, reward=score, model=model, name=word, **how)

    threads = [threading.Thread(target=work, args=(word,)) for word in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for word, run in runs.items():
        for episode in episodes(run):
            assert f"user: {word}" in episode.question or word in episode.question
            assert len(episode.segments) == 2
            assert word in "".join(episode.errors)  # the name of its model
    assert set(runs) == {"left", "right"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"environment": Twice}, "acts in a world of its own"),
        ({"system": "Be brief.", "reward": score}, "has no effect with an agent of your own"),
    ],
)
def test_options_that_need_no_program_are_refused_before_loading(
    tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    with pytest.raises((KeepworthError, ValueError), match=says):
        train(rows(), agent="python agent.py", model="none", runs=tmp_path, **more)


def test_limits_of_a_program_are_refused_without_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="calls = 3 has no effect without a program as the agent"):
        train(rows(), reward=score, calls=3, model="none", runs=tmp_path)


def test_rollouts_that_fail_are_kept_apart_with_their_reason(tmp_path: Path) -> None:
    made: list[str] = []

    def sometimes(row: dict[str, Any]) -> str:
        made.append(row["prompt"])
        if len(made) % 5 == 0:
            raise OSError("the tool is away")
        return agent(row)

    how = {**SIZES, "model": str(write_chat_model(tmp_path / "model")), "runs": tmp_path / "runs"}
    run = train(rows(), agent=sometimes, reward=score, **how)
    failed = [stored.episode for stored in RunFolder.open(run.path).episodes(arm="failed")]
    assert failed
    assert {episode.stop for episode in failed} == {StopReason.ENVIRONMENT_ERROR}
    assert all("OSError: the tool is away" in " ".join(episode.errors) for episode in failed)
    assert all(len(episode.segments) == 2 for episode in episodes(run))


def test_a_run_that_is_stopped_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    how = {**SIZES, "model": str(write_chat_model(tmp_path / "model")), "runs": tmp_path / "runs", "steps": 3}
    whole = train(rows(), agent=agent, reward=score, name="whole", **how)

    def stop(step: int, numbers: Any) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(rows(), agent=agent, reward=score, name="stopped", track=stop, **how)
    stopped = train(rows(), agent=agent, reward=score, name="stopped", **how)
    assert [episode.segments for episode in episodes(stopped)] == [episode.segments for episode in episodes(whole)]
    learned, again = weights(whole), weights(stopped)
    assert all(torch.equal(learned[name], again[name]) for name in learned)


@pytest.mark.parametrize("sampling", ["overlap", "turns"])
def test_programs_are_sampled_ahead_of_the_learner(tmp_path: Path, sampling: str) -> None:
    how = {**SIZES, "model": str(write_chat_model(tmp_path / "model")), "runs": tmp_path / "runs", "steps": 3}
    run = train(rows(), agent=agent, reward=score, sampling=sampling, **how)
    assert len(episodes(run)) == 3 * 2 * 3
    for episode in episodes(run):
        first, second = episode.segments
        assert second.context[: len(first.context) + len(first.ids)] == first.context + first.ids
        assert len(first.logprobs) == len(first.ids) > 0
    assert list(RunFolder.open(run.path).episodes(arm="failed")) == []


def test_calls_of_a_program_are_answered_by_an_engine_behind_http(tmp_path: Path) -> None:
    folder = write_chat_model(tmp_path / "model")
    how = {**SIZES, "model": str(folder), "runs": tmp_path / "runs", "steps": 3}
    with ModelServer(InProcessModel.load(folder, precision="fp32")) as server:
        run = train(rows(), agent=agent, reward=score, sampling="overlap", engine=server.url, **how)
    assert len(episodes(run)) == 3 * 2 * 3
    for episode in episodes(run):
        first, second = episode.segments
        assert second.context[: len(first.context) + len(first.ids)] == first.context + first.ids
        assert all(len(call.logprobs) == len(call.ids) > 0 for call in episode.segments)
    versions = {span.version for episode in episodes(run) for call in episode.segments for span in call.spans}
    assert len(versions) > 1  # weights that were published meanwhile answered, too


def test_the_command_line_takes_a_function_of_a_file_or_a_command(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("".join(f'{{"prompt": "say {n}", "answer": "{n}"}}\n' for n in range(9)))
    (tmp_path / "my_agent.py").write_text("def mine(row):\n    return row['prompt']\n")
    tasks = str(tmp_path / "tasks.jsonl")
    for agent, name in ((f"{tmp_path}/my_agent.py:mine", "mine"), ("python my_agent.py", "python my_agent.py")):
        recipe = make_recipe(Origin(tasks=tasks, agent=agent))
        assert recipe.given is not None
        assert recipe.given.program is not None
        assert recipe.given.program.name == name
        assert recipe.record(recipe.Config())["agent"] == name
    with pytest.raises(KeepworthError, match="--agent goes with tasks"):
        command_of_train(agent="python my_agent.py")


def plans(row: dict[str, Any]) -> str:
    """A planner and a worker, with prompts of their own."""
    answers = []
    for role in ("planner", "worker"):
        client = openai.OpenAI(default_headers={"X-Keepworth-Role": role})
        messages: list[Any] = [{"role": "user", "content": f"{role}: {row['prompt']}"}]
        answers.append(client.chat.completions.create(model="any", messages=messages).choices[0].message.content)
    return str(answers[-1])


def instructs(row: dict[str, Any]) -> str:
    """A planner and a worker, by their system prompts alone."""
    answers = []
    for words in ("You plan.", "You work.", "You sum up."):
        messages: list[Any] = [{"role": "system", "content": words}, {"role": "user", "content": row["prompt"]}]
        answers.append(
            openai.OpenAI().chat.completions.create(model="any", messages=messages).choices[0].message.content
        )
    return str(answers[-1])


def test_a_system_prompt_names_the_role_of_a_call(tmp_path: Path) -> None:
    how = {**SIZES, "model": str(write_chat_model(tmp_path / "model")), "runs": tmp_path / "runs", "steps": 1}
    roles = {"planner": "You plan", "worker": "You work"}
    run = train(rows(), agent=instructs, reward=lambda answer, row: sum(map(ord, answer)) % 101, roles=roles, **how)
    assert {tuple(call.role for call in episode.segments) for episode in episodes(run)} == {
        ("planner", "worker", "policy")
    }
    (row,) = RunFolder.open(run.path).metrics()
    assert row["trained_rows"] == 2 * 3 * 2


@pytest.mark.parametrize("roles", [["planner"], ["planner", "worker"]])
def test_the_calls_of_some_roles_learn(tmp_path: Path, roles: list[str]) -> None:
    how = {**SIZES, "model": str(write_chat_model(tmp_path / "model")), "runs": tmp_path / "runs", "steps": 1}
    run = train(rows(), agent=plans, reward=lambda answer, row: sum(map(ord, answer)) % 101, roles=roles, **how)
    assert {call.role for episode in episodes(run) for call in episode.segments} == {"planner", "worker"}
    (row,) = RunFolder.open(run.path).metrics()
    assert row["trained_rows"] == 2 * 3 * len(roles)


def test_unknown_role_is_refused(tmp_path: Path) -> None:
    how = {**SIZES, "model": str(write_chat_model(tmp_path / "model")), "runs": tmp_path / "runs", "steps": 1}
    with pytest.raises(KeepworthError, match="The role 'critic' is trained, and no call"):
        train(rows(), agent=plans, reward=score, roles=["critic"], **how)
