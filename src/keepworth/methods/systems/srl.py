"""SRL: the same code runs in one process and on a cluster."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="srl",
    title="SRL",
    paper="arXiv 2306.16688",
    about="The same code runs in one process and on a cluster",
    claim="It is up to 3.7 times as fast as the designs of other libraries on a large cluster.",
    label="small",
    make=PaperSystem(
        here="One file runs in one process, in several and on a Ray cluster, with equal weights; no streams.",
        command="keepworth train strings --set workers=3 --set ray_address=HOST:PORT",
    ),
)
