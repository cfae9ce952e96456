"""RollArt (ROLL): trajectories are asynchronous, and parts run on the hardware that suits them."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="rollart",
    title="RollArt (ROLL)",
    paper="arXiv 2512.22560",
    about="Trajectories are asynchronous, and parts run on the hardware that suits them",
    claim="Training takes 1.35 to 2.05 times less time than with monolithic or synchronous baselines.",
    label="small",
    make=PaperSystem(
        here="Asynchronous trajectories and workers on hosts with a label; the processes for rewards were taken out.",
        command="keepworth train strings --set workers=2 --set worker_label=kind=cpu --set ray_address=HOST:PORT",
    ),
)
