"""The in-process model as an engine serves it: adapters by name, aborting.

One request is computed at a time. It keeps the adapter that it started with. Base weights may change under a frozen request
(pause mode "keep"): the token at which that happened is reported.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens
from keepworth.models.drawing import Drawing
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.calls import NotServed


class Aborted(Exception):
    """Ends a running request."""


@dataclass(slots=True, eq=False)
class Adapter:
    name: str
    path: str
    key: str  # what PEFT calls it: a name of ours may hold dots, PEFT's may not
    users: int = 0
    leaving: bool = False


@dataclass(slots=True, eq=False)
class ServedRequest:
    """One request. steps: forward passes so far."""

    id: str
    samples: bool
    aborted: bool = False
    steps: int = 0


class ServedModel(InProcessModel):
    """Takes `model` over: its network gains adapters, so nothing else should go on using it.

    max_adapters: how many may be loaded at once. paused: requests stand still.
    """

    def __init__(self, model: InProcessModel, max_adapters: int = 8) -> None:
        if hasattr(model.network, "peft_config"):
            raise ValueError(
                f"{model.name} already has an adapter: serve the plain model and load the adapter's folder by name"
            )
        super().__init__(model.network, model.tokenizer, model.name, model.token_budget)
        self.max_adapters = max_adapters
        self.paused = False
        self._gate = threading.Condition()
        self._adapters: dict[str, Adapter] = {}
        self._requests: set[ServedRequest] = set()
        self._active: ServedRequest | None = None
        self._made = 0
        self._closed = False

    # -- requests ---------------------------------------------------------------------------------------------------

    def sample_as(
        self,
        name: str,
        request_id: str,
        prompts: Sequence[Tokens],
        params: SamplingParams,
    ) -> list[list[Sample]]:
        """Like `sample`, under the weights or adapter called `name`; Aborted samples are empty."""
        self.check(prompts, params)
        try:
            with self._turn(name, ServedRequest(request_id, True)):
                return self.sample(prompts, params)
        except Aborted:
            nothing = Sample((), (), FinishReason.ABORTED, ())
            return [[nothing] * params.n for _ in prompts]

    def score_as(
        self,
        name: str,
        request_id: str,
        prompts: Sequence[Tokens],
        branches: Sequence[Sequence[Tokens]],
    ) -> list[list[tuple[float, ...]]] | None:
        """Like `score`; None where it was aborted."""
        try:
            with self._turn(name, ServedRequest(request_id, False)):
                return self.score(prompts, branches)
        except Aborted:
            return None

    @contextlib.contextmanager
    def _turn(self, name: str, request: ServedRequest) -> Iterator[None]:
        with self._gate:
            if self._closed:
                raise Aborted
            adapter = self._named(name)
            if adapter is not None:
                adapter.users += 1
            self._requests.add(request)
        try:
            with self._gate:
                self._gate.wait_for(lambda: request.aborted or (self._active is None and not self.paused))
                if request.aborted:
                    raise Aborted
                self._active = request
            with self._selected(adapter):
                yield
        finally:
            with self._gate:
                self._requests.discard(request)
                if self._active is request:
                    self._active = None
                if adapter is not None:
                    adapter.users -= 1
                self._sweep()
                self._gate.notify_all()

    @contextlib.contextmanager
    def _selected(self, adapter: Adapter | None) -> Iterator[None]:
        if adapter is not None:
            self.network.set_adapter(adapter.key, inference_mode=True)
            yield
        elif hasattr(self.network, "peft_config"):
            with self.without_adapter():
                yield
        else:
            yield

    def _named(self, name: str) -> Adapter | None:
        if name in ("", self.name):
            return None
        adapter = self._adapters.get(name)
        if adapter is None or adapter.leaving:
            known = ", ".join([self.name, *self.adapters()])
            raise NotServed(f"The model {name!r} does not exist; there are {known}.", status=404)
        return adapter

    # -- what a step of sampling passes through ---------------------------------------------------------------------

    def hidden_states(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, cache: Any, **attention: Any
    ) -> Any:
        request = self._active
        if request is not None:
            with self._gate:
                self._pass(request)
        return super().hidden_states(ids, positions, mask, cache, **attention)

    def _pass(self, request: ServedRequest) -> None:
        if request.samples:
            request.steps += 1
        if request.aborted:
            raise Aborted

    def begin(self, prompts: Sequence[Tokens], params: SamplingParams, draws: torch.Tensor | None) -> Drawing:
        if self._active is not None:
            self._active.steps = 0
        return super().begin(prompts, params, draws)

    # -- adapters ---------------------------------------------------------------------------------------------------

    def adapters(self) -> dict[str, str]:
        """Name and folder of each adapter that new requests may name."""
        return {adapter.name: adapter.path for adapter in self._adapters.values() if not adapter.leaving}

    def load_adapter(self, name: str, path: str) -> None:
        """Raises NotServed, the network then being as it was, for a folder that holds anything but a LoRA adapter for it."""
        if not (Path(path) / "adapter_config.json").is_file():
            raise NotServed(f"There is no PEFT adapter folder {path}: it has no adapter_config.json.", status=404)
        settings = LoraConfig.from_pretrained(path)
        with self._gate:
            if name == self.name or name in self._adapters:
                raise NotServed(f"The adapter {name!r} has already been loaded.")
            if len(self._adapters) >= self.max_adapters:
                raise NotServed(f"{self.max_adapters} adapters are loaded, and no more may be: unload one.")
            self._undisturbed()
            self._made += 1
            adapter = Adapter(name, path, f"adapter{self._made}")
            self._attach(adapter, settings)
            self._adapters[name] = adapter

    def unload_adapter(self, name: str) -> None:
        """Requests that named it already still finish under it."""
        with self._gate:
            adapter = self._named(name)
            if adapter is None:
                raise NotServed(f"{name!r} is no adapter.", status=404)
            adapter.leaving = True
            self._sweep()

    def _attach(self, adapter: Adapter, settings: LoraConfig) -> None:
        """Puts the adapter beside the weights, or leaves the network as it was."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each request says anew which adapter is active
            try:
                if hasattr(self.network, "peft_config"):
                    self.network.add_adapter(adapter.key, settings)
                else:
                    self.network = get_peft_model(self.network, settings, adapter.key, autocast_adapter_dtype=False)
                self.network.load_adapter(adapter.path, adapter.key, autocast_adapter_dtype=False)
            except Exception as error:  # whatever PEFT makes of a strange folder
                self._detach(adapter)
                raise NotServed(f"The adapter in {adapter.path} does not fit {self.name}: {error}") from error
        self.network.eval()
        self.network.requires_grad_(False)

    def _detach(self, adapter: Adapter) -> None:
        attached = set(getattr(self.network, "peft_config", ()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if attached == {adapter.key}:
                self.network = self.network.unload()  # PEFT cannot switch adapters off where there are none
                vars(self.network).pop("peft_config", None)
            elif adapter.key in attached:
                self.network.delete_adapter(adapter.key)

    def _sweep(self) -> None:
        """Delete what was unloaded and serves no request any more, while no forward pass runs. The gate is held."""
        if self._active is None:
            for adapter in [adapter for adapter in self._adapters.values() if adapter.leaving and not adapter.users]:
                del self._adapters[adapter.name]
                self._detach(adapter)

    def _undisturbed(self) -> None:
        """Wait until no forward pass runs. The gate is held."""
        self._gate.wait_for(lambda: self._active is None)

    # -- control ----------------------------------------------------------------------------------------------------

    def abort(self, ids: Sequence[str] | None = None) -> None:
        with self._gate:
            for request in self._requests:
                request.aborted = request.aborted or ids is None or request.id in ids
            self._gate.notify_all()

    def close(self) -> None:
        """Ends what runs and takes nothing new."""
        with self._gate:
            self._closed, self.paused = True, False
            self.abort()
