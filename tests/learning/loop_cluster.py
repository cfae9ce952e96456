"""Workers in a thread of this process, for tests without Ray."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pickle
import threading
from concurrent.futures import Future
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.training.placement import WorkerFailed, WorkerPart


class LoopCluster:
    def __init__(self, address: str = "") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def spawn(self, part: WorkerPart, name: str, label: str = "") -> LoopWorker:
        worker = LoopWorker(self._loop, pickle.loads(pickle.dumps(part)), name)
        worker.call("").result()
        return worker

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _cancel(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class LoopWorker:
    host = "this host"

    def __init__(self, loop: asyncio.AbstractEventLoop, part: WorkerPart, name: str) -> None:
        self.name = name
        self._loop, self._part = loop, part
        self._object: Any = None

    def call(self, method: str, *given: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(self._call(method, pickle.loads(pickle.dumps(given))), self._loop)

    def restarted(self) -> Future[Any]:
        raise AssertionError("it does not die")

    def close(self) -> None:
        pass

    def _make(self) -> Any:
        module, _, name = self._part.target.partition(":")
        return getattr(importlib.import_module(module), name)(**self._part.settings)

    async def _call(self, method: str, given: Any) -> Any:
        try:
            if self._object is None:
                self._object = await asyncio.to_thread(self._make)
            if not method:
                return None
            answer = getattr(self._object, method)(*given)
            return pickle.loads(pickle.dumps(await answer if inspect.isawaitable(answer) else answer))
        except Exception as error:
            fix = getattr(error, "fix", "")
            text = error.message if isinstance(error, KeepworthError) else str(error)
            where = f"{self.name} on {self.host}: {method or 'its beginning'}"
            raise WorkerFailed(f"{where} raised {type(error).__name__}: {text}", fix) from error
