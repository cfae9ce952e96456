"""A stage that hides notes until a day: drafts, embargoes, "not before" dates. `metadata={"not_before": "2026-12-01"}`."""

from collections.abc import Sequence

from keepworth.kit import Hit, Method, Stage, StageRequest


def make(*, name: str = "not_before") -> Stage:
    """Returns the stage. name: the metadata that holds the first day on which a note may be seen."""

    def hide(request: StageRequest, hits: Sequence[Hit]) -> list[Hit]:
        today = (request.options.as_of or request.time)[:10]
        return [hit for hit in hits if str(hit.item.metadata.get(name, "")) <= today]

    return hide


METHOD = Method(
    kind="stage",
    name="not-before",
    title="Not before",
    about="Hides notes until the day that they name",
    make=make,
    tags=("token", "factual", "retrieval"),
    label="unmeasured",
)
