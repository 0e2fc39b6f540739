"""`cc.distributed` is a group of one process: scripts that start one run, several processes are refused."""

import candle_convert as cc
import pytest
from candle_convert.distributed import destroy_process_group, init_process_group
from candle_convert.nn.parallel import DistributedDataParallel


def test_a_group_of_one_process(monkeypatch):
    distributed = cc.distributed
    assert not distributed.is_available()
    assert not distributed.is_initialized()
    init_process_group(backend="nccl")
    try:
        assert distributed.is_initialized()
        with pytest.raises(cc.UsageError, match="destroy_process_group"):
            init_process_group("gloo")
        assert (distributed.get_rank(), distributed.get_world_size()) == (0, 1)
        x, copies = cc.ones(3), [cc.zeros(3)]
        distributed.all_reduce(x, distributed.ReduceOp.SUM)
        distributed.broadcast(x, 0)
        distributed.all_gather(copies, x)
        with pytest.raises(cc.UsageError, match="a list of 0 tensors"):
            distributed.all_gather([], x)
        distributed.barrier()
        assert copies[0].tolist() == x.tolist() == [1, 1, 1]
        model = DistributedDataParallel(cc.nn.Linear(3, 2), device_ids=[0])
        assert model(x).shape == (2,)
        with model.no_sync(), model.join():
            model(x).sum().backward()
        assert model.module.weight.grad.tolist() == [[1, 1, 1], [1, 1, 1]]
        assert list(model.state_dict()) == ["module.weight", "module.bias"]
    finally:
        destroy_process_group()
    assert not distributed.is_initialized()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(cc.UsageError, match=r"E-TRAIN-RANKS.*torchrun"):
        init_process_group("gloo")
