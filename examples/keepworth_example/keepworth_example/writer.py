"""A writer that keeps what people ask it to: "Remember that the gate closes at nine." """

import re
from collections.abc import Callable, Iterator

from keepworth.kit import Finished, Method, Operation, OperationKind

ASKED = re.compile(r"\b(?:please )?(?:remember|note|don't forget)(?: that|:)\s+(.+?)(?=[.!?]\s|[.!?]?$)", re.IGNORECASE)


def make(*, roles: tuple[str, ...] = ("user",)) -> Callable[[Finished], Iterator[Operation]]:
    """Returns the writer. roles: whose requests it heeds."""

    def write(finished: Finished) -> Iterator[Operation]:
        for message in finished.transcript:
            if message.get("role") in roles:
                for request in ASKED.finditer(message["content"]):
                    text = request[1].strip()
                    text = text[:1].upper() + text[1:]
                    if text and text not in [item.text for item in finished.nearest(text, 1)]:
                        yield Operation(OperationKind.ADD, text=text)

    return write


METHOD = Method(
    kind="writer",
    name="on-request",
    title="On request",
    about="Keeps what people ask it to remember",
    make=make,
    tags=("token", "factual", "formation"),
    label="unmeasured",
)
