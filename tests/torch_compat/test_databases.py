"""torch's databases of operators, layers and optimizers: a sample of them gives torch's values and gradients."""

import pytest
from candle_convert.tests.builders import sampling
from candle_convert.tests.oracles import torch_databases

SHARES = {"op": 40, "module": 16, "optimizer": 8}
"""A run takes one entry of so many."""
CHECKS = {
    "op": lambda entry: torch_databases.check_operator(entry, at_most=3),
    "module": lambda entry: torch_databases.check_module(entry, at_most=6),
    "optimizer": lambda entry: torch_databases.check_optimizer(entry, at_most=3),
}


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.filterwarnings("ignore")
def test_sampled_entries_give_torchs_results(name):
    entries = [
        each
        for each in torch_databases.database(name)
        if torch_databases.outside(torch_databases.name_of_entry(each)) is None
    ]
    chosen = sampling.every(SHARES[name], entries)
    outcomes = [outcome for entry in chosen for outcome in CHECKS[name](entry)]
    assert [each for each in outcomes if each.verdict in ("differs", "raises")] == []
    assert sum(each.verdict == "equal" for each in outcomes) >= len(chosen) // 2


def test_what_differs_is_told():
    """The comparison sees a wrong value, a wrong dtype and an error."""
    entry = next(each for each in torch_databases.database("op") if each.name == "sinh")
    calls = list(torch_databases.check_operator(entry, ("f32",), 1, compute=lambda x: x.cosh()))
    assert [each.verdict for each in calls] == ["differs"]
    calls = list(torch_databases.check_operator(entry, ("f32",), 1, compute=lambda x: x.sinh().double()))
    assert [(each.verdict, each.why) for each in calls] == [("differs", "dtype f64 in place of torch.float32")]
    calls = list(torch_databases.check_operator(entry, ("f32",), 1, compute=lambda x: x.sinh(2)))
    assert [each.verdict for each in calls] == ["raises"]
    calls = list(torch_databases.check_operator(entry, ("f32",), 1, compute=lambda x: x.detach().sinh() + x - x))
    assert [(each.verdict, each.why[:9]) for each in calls] == [("differs", "gradient:")]
