"""A controller that is killed: it says its worker's pid, and waits."""

from __future__ import annotations

import sys

from keepworth.cluster.local import LocalCluster
from keepworth.learning.placement import Cluster, Part


def placed() -> Cluster:
    if "ray" not in sys.argv:
        return LocalCluster()
    from keepworth.cluster.ray import RayCluster

    return RayCluster()


if __name__ == "__main__":
    worker = placed().spawn(Part("tests.cluster.parts:Counter"), "worker 1")
    busy = worker.call("slowly", 600.0)
    sys.stdout.write(f"{worker.pid}\n")  # type: ignore[attr-defined]
    sys.stdout.flush()
    busy.result()
