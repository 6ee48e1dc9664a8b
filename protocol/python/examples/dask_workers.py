"""Maps batches over a Dask cluster: a pool on each worker, which a plugin starts there. Dask spreads, gridpool runs."""

import gridpool
from dask.distributed import Client, LocalCluster, WorkerPlugin, get_worker

DEVICES = "cpu:1"  # `None`, the default of `Pool`, takes all GPUs of the worker's machine.


class NodePool(WorkerPlugin):
    name = "gridpool"

    def setup(self, worker):
        worker.gridpool = gridpool.Pool(DEVICES)

    def teardown(self, worker):
        worker.gridpool.close()


def run(program, grids):
    return [result.tolist() for result in get_worker().gridpool.run(program, grids)]


def map_batches(client, program, batches):
    client.register_plugin(NodePool())
    return client.gather(client.map(run, [program] * len(batches), batches))


if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster) as dask:
        print(map_batches(dask, "rot90", [[[[1, 2], [3, 4]]], [[[5, 6]]]]))
