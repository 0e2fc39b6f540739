"""Loaders and samplers give torch's batches, in torch's order."""

import itertools

import candle_convert as cc
import numpy as np
import pytest
import torch

ROWS = np.arange(46, dtype=np.float32).reshape(23, 2)
LABELS = np.arange(23)


def as_lists(item):
    """Nested lists of numbers of either library's batch."""
    if isinstance(item, dict):
        return {name: as_lists(each) for name, each in item.items()}
    if isinstance(item, list | tuple):
        return [as_lists(each) for each in item]
    return item if isinstance(item, str) else (str(np.asarray(item).dtype), np.asarray(item).tolist())


def pairs(module, tensor):
    return module.TensorDataset(tensor(ROWS), tensor(LABELS))


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"batch_size": 5}, {"batch_size": None}], ids=str)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_batches_and_their_order(options, shuffle, own):
    options = {"batch_size": 4, "shuffle": shuffle, **options}
    cc.manual_seed(5)
    torch.manual_seed(5)
    ours = cc.data.DataLoader(
        pairs(cc.data, cc.from_numpy), generator=cc.Generator().manual_seed(7) if own else None, **options
    )
    theirs = torch.utils.data.DataLoader(
        pairs(torch.utils.data, torch.from_numpy),
        generator=torch.Generator().manual_seed(7) if own else None,
        **options,
    )
    assert len(ours) == len(theirs)
    for _ in range(2):
        assert as_lists(list(ours)) == as_lists(list(theirs))
    assert cc.rand(3).tolist() == torch.rand(3).tolist()


def test_threads_do_not_change_the_order():
    loaders = [
        cc.data.DataLoader(list(range(50)), 4, True, num_workers=workers, generator=cc.Generator().manual_seed(1))
        for workers in (0, 3)
    ]
    assert as_lists(list(loaders[0])) == as_lists(list(loaders[1]))
    next(iter(loaders[1]))


ITEMS = [
    [(1, 2.5, "a"), (3, 4.5, "b")],
    [{"x": np.ones(3, np.float32), "y": [1, 2]}, {"x": np.zeros(3, np.float32), "y": [3, 4]}],
    [np.float32(3), np.float32(4)],
    [True, False],
    [torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)],
]


@pytest.mark.parametrize("items", ITEMS, ids=lambda items: type(items[0]).__name__)
def test_collation(items):
    expected = torch.utils.data.default_collate(items)
    if isinstance(expected, torch.Tensor) and expected.dtype == torch.bfloat16:
        assert cc.data.default_collate(items).float().tolist() == expected.tolist()
    else:
        assert as_lists(cc.data.default_collate(items)) == as_lists(expected)


@pytest.mark.parametrize(
    "items", [[np.ones(2), np.ones(3)], [(1,), (1, 2)], [object(), object()], [np.array(["a"]), np.array(["b"])]]
)
def test_items_that_do_not_fit_each_other(items):
    with pytest.raises(cc.UsageError, match="E-DATA-COLLATE"):
        cc.data.default_collate(items)


def test_datasets_of_other_libraries():
    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return {"x": torch.tensor([float(index)]), "y": index**2}

    batch = list(cc.data.DataLoader(Squares(), 4))[1]
    assert batch["x"].tolist() == [[4], [5]]
    assert batch["y"].tolist() == [16, 25]


class Batched:
    """A dataset with the interface of Hugging Face's: a batch of items is asked for at once."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        raise AssertionError("items are asked for one by one")

    def __getitems__(self, indices):
        return [{"n": each, "text": str(each)} for each in indices]


def test_items_that_are_asked_for_at_once():
    batch = next(iter(cc.data.DataLoader(Batched(), 3)))
    assert batch["n"].tolist() == [0, 1, 2]
    assert batch["text"] == ["0", "1", "2"]


def test_hugging_face_datasets():
    datasets, pyarrow = pytest.importorskip("datasets"), pytest.importorskip("pyarrow")
    table = pyarrow.table({"x": [[1.0, 2], [3, 4], [5, 6]], "label": [0, 1, 0], "text": ["a", "b", "c"]})
    made = datasets.Dataset(datasets.table.InMemoryTable(table), fingerprint="made")
    first, second = cc.data.DataLoader(made.with_format("numpy"), 2)
    assert first["x"].tolist() == [[1, 2], [3, 4]]
    assert second["label"].tolist() == [0]
    (plain,) = cc.data.DataLoader(made, 3)
    assert [each.tolist() for each in plain["x"]] == [[1, 3, 5], [2, 4, 6]]
    assert plain["text"] == ["a", "b", "c"]


def test_arrays_and_lists():
    assert [each.tolist() for each in cc.data.DataLoader(ROWS, 20)][1] == ROWS[20:].tolist()
    assert [each.tolist() for each in cc.data.DataLoader([3, 4, 5], 2)] == [[3, 4], [5]]
    named = list(cc.data.DataLoader({"x": ROWS, "y": LABELS}, 20))
    assert named[1]["y"].tolist() == [20, 21, 22]
    assert [each.tolist() for each in cc.data.DataLoader(iter(range(5)), 2)] == [[0, 1], [2, 3], [4]]
    assert [each.tolist() for each in cc.data.DataLoader(iter(range(5)), 2, drop_last=True)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("lengths", [[10, 13], [0.3, 0.3, 0.4], [0.5, 0.5]])
def test_split(lengths):
    ours = cc.data.random_split(LABELS, lengths, cc.Generator().manual_seed(3))
    theirs = torch.utils.data.random_split(LABELS, lengths, torch.Generator().manual_seed(3))
    assert [list(each.indices) for each in ours] == [list(each.indices) for each in theirs]
    joined = cc.data.ConcatDataset(ours)
    assert sorted(joined[place] for place in range(len(joined))) == LABELS.tolist()
    assert [each.tolist() for each in cc.data.DataLoader(ours[0], 100)] == [list(ours[0].indices)]


@pytest.mark.parametrize("count", [5, 32, 33, 70])
def test_samplers_with_replacement(count):
    ours = cc.data.RandomSampler(LABELS, True, count, cc.Generator().manual_seed(2))
    theirs = torch.utils.data.RandomSampler(LABELS, True, count, torch.Generator().manual_seed(2))
    assert list(ours) == list(theirs)


def test_weighted_samples():
    weights = [1, 0, 3]
    drawn = list(cc.data.WeightedRandomSampler(weights, 4000, generator=cc.Generator().manual_seed(0)))
    assert np.bincount(drawn, minlength=3) / 4000 == pytest.approx([0.25, 0, 0.75], abs=0.03)
    assert sorted(cc.data.WeightedRandomSampler(weights, 2, replacement=False)) == [0, 2]


def test_options_that_contradict_each_other():
    for options in (
        {"shuffle": True, "sampler": [0, 1]},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_sampler": [[0]], "shuffle": True},
        {"unheard_of": 1},
        {"batch_size": 0},
    ):
        with pytest.raises(cc.UsageError, match="E-OPTION"):
            cc.data.DataLoader(LABELS, **options)
    with pytest.raises(cc.UsageError, match="E-DATA-LENGTH"):
        cc.data.TensorDataset(np.ones(3), np.ones(4))
    with pytest.raises(cc.UsageError, match="E-DATA-LENGTH"):
        cc.data.random_split(LABELS, [3, 4])
    with pytest.raises(cc.UsageError, match="E-DATA-TYPE"):
        cc.data.DataLoader(3)


def test_random_order_of_some_items():
    ours, theirs = (
        list(t.utils.data.SubsetRandomSampler([5, 6, 7, 8], generator=t.Generator().manual_seed(1)))
        for t in (cc, torch)
    )
    assert ours == theirs
    assert cc.utils.data.get_worker_info() is None
    assert cc.utils.data.default_convert([np.ones(2)])[0].tolist() == [1, 1]


class Endless:
    """Numbers of items, or lists of them, without an end; each is drawn when it is asked for."""

    def __init__(self, size=None):
        self.size = size

    def __iter__(self):
        while True:
            drawn = np.random.randint(len(ROWS), size=self.size)
            yield int(drawn) if self.size is None else drawn.tolist()


@pytest.mark.parametrize(
    "options", [{"batch_sampler": Endless(4)}, {"sampler": Endless(), "batch_size": 3}], ids=["batches", "items"]
)
def test_samplers_without_an_end(options):
    loaders = [
        cc.data.DataLoader(cc.data.TensorDataset(ROWS), **options),
        cc.data.DataLoader(cc.data.TensorDataset(ROWS), num_workers=2, **options),
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(ROWS)), **options),
    ]
    found = []
    for loader in loaders:
        with pytest.raises(TypeError, match="has no len"):
            len(loader)
        np.random.seed(2)
        found.append(as_lists(list(itertools.islice(loader, 7))))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("count", "replacement", "drawn"),
    [(7, True, 100), (7, True, 64), (7, False, 30), (7, False, 14), (7, False, 3), (3, True, 10**10),
     (3, False, 10**10)],
)  # fmt: skip
def test_random_samplers_draw_when_they_are_read(count, replacement, drawn):
    orders = []
    for data, m in ((torch.utils.data, torch), (cc.data, cc)):
        generator = m.Generator()
        generator.manual_seed(5)
        sampler = data.RandomSampler(range(count), replacement, drawn, generator)
        orders.append([list(itertools.islice(sampler, 50)) for _ in range(2)])
    assert orders[0] == orders[1]
