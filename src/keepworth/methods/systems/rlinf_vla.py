"""RLinf-VLA: simulator, inference and training are placed in several ways and pipelined in part batches."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="rlinf-vla",
    title="RLinf-VLA",
    paper="arXiv 2510.06710",
    about="Simulator, inference and training are placed in several ways and pipelined in part batches",
    claim="Training is 1.61 to 1.88 times as fast by the hybrid pipeline.",
    label="analogue",
    make=PaperSystem(
        here="Two half-batches, one of which acts while the other waits for its worlds.",
        command="keepworth train strings --set sampling=turns --set pipeline_depth=2",
    ),
)
