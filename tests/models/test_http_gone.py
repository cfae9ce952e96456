"""An engine that is slow, or gone, is named."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest

from keepworth.episodes import SamplingParams
from keepworth.models.errors import EngineDied, EngineError, EngineTimeout, EngineUnreachable
from keepworth.models.http_client import Retries, Timeouts
from tests.models.tiny import tiny_model
from tests.serving.engines import connect
from tests.stand_in.server import ModelServer


def test_a_slow_engine_times_out_and_a_closed_one_is_gone() -> None:
    with ModelServer(tiny_model()) as server:
        engine = connect(server.url, timeouts=Timeouts(connect=2, answer=3))
        server.model.pause("wait")
        with pytest.raises(EngineTimeout, match="paused"):
            engine.sample([(1,)], SamplingParams(max_tokens=1))
    with pytest.raises((EngineUnreachable, EngineDied), match=server.url):
        engine.sample([(1,)], SamplingParams(max_tokens=1))


def test_a_server_that_dies_in_the_middle_of_a_request_is_named() -> None:
    """A process of its own, killed while it generates. The sample is not asked for again."""
    program = textwrap.dedent(
        """
        import sys, time
        from tests.stand_in.server import ModelServer
        from tests.stand_in.model import ServedModel
        from tests.models.tiny import tiny_model

        class Slow(ServedModel):
            def hidden_states(self, *arguments):
                if self._active and self._active.steps == 12:
                    sys.stdout.write("generating\\n"); sys.stdout.flush()
                    time.sleep(60)
                return super().hidden_states(*arguments)

        with ModelServer(Slow(tiny_model())) as server:
            sys.stdout.write(server.url + "\\n"); sys.stdout.flush()
            server.wait()
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        engine = connect(url, timeouts=Timeouts(connect=5, answer=60), retries=Retries(1))
        box: list[BaseException] = []

        def ask() -> None:
            try:
                engine.sample([(1,)], SamplingParams(max_tokens=15))
            except EngineError as error:
                box.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert process.stdout.readline().strip() == "generating"
        process.kill()
        thread.join(20)
    finally:
        process.kill()
        process.communicate()
    assert [type(error) for error in box] == [EngineDied]
    assert url in str(box[0])
    with pytest.raises(EngineUnreachable, match="Start the server"):
        engine.health()
