"""Maps batches over a Ray cluster: a pool on each node, which an actor starts there. Ray spreads, gridpool runs."""

import gridpool
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

DEVICES = "cpu:1"  # `None`, the default of `Pool`, takes all GPUs of the node.


@ray.remote(num_cpus=1)
class NodePool:
    def __init__(self, devices):
        self.pool = gridpool.Pool(devices)

    def run(self, program, grids):
        return [result.tolist() for result in self.pool.run(program, grids)]


def map_batches(program, batches, devices=DEVICES):
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    place = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    pools = ray.util.ActorPool([NodePool.options(scheduling_strategy=at).remote(devices) for at in place])
    yield from pools.map(lambda pool, batch: pool.run.remote(program, batch), batches)


if __name__ == "__main__":
    ray.init()
    for results in map_batches("rot90", [[[[1, 2], [3, 4]]], [[[5, 6]]]]):
        print(results)
