"""The job queue joins what waits, keeps the order, and lets no job suffer from another."""

import threading

import pytest
from candle_convert.convert.serve.job_queue import MAX_ITEMS, Abandoned, Job, JobQueue


@pytest.fixture
def queue():
    made = JobQueue()
    yield made
    made.close()


class Recorder:
    """Squares of numbers; records the inputs of every run, and waits for `go` before the first."""

    def __init__(self):
        self.runs, self.begun, self.go = [], threading.Event(), threading.Event()

    def __call__(self, items, check):
        self.begun.set()
        self.go.wait(10)
        check()
        self.runs.append(list(items))
        return [item**2 for item in items]


def test_queued_jobs_of_a_key_run_together(queue):
    compute = Recorder()
    first = queue.submit(Job("a", [1], compute))
    assert compute.begun.wait(10)
    others = [
        queue.submit(Job(key, [number], compute))
        for key, number in [("a", 2), ("b", 3), ("a", 4), (None, 5), (None, 6)]
    ]
    compute.go.set()
    assert [job.future.result(10) for job in (first, *others)] == [[1], [4], [9], [16], [25], [36]]
    assert compute.runs == [[1], [2, 4], [3], [5], [6]]


def test_a_batch_is_bounded(queue):
    compute = Recorder()
    jobs = [queue.submit(Job("a", list(range(40)), compute)) for _ in range(4)]
    compute.go.set()
    assert [job.future.result(10) for job in jobs] == [[number**2 for number in range(40)]] * 4
    assert max(map(len, compute.runs)) <= MAX_ITEMS


def test_a_failing_job_fails_alone(queue):
    compute = Recorder()
    jobs = [queue.submit(Job("a", [item], compute)) for item in (1, 2, "x", 3)]
    compute.go.set()
    assert [jobs[place].future.result(10) for place in (0, 1, 3)] == [[1], [4], [9]]
    with pytest.raises(TypeError):
        jobs[2].future.result(10)


def test_a_dropped_job_leaves_the_queue_at_once(queue):
    compute = Recorder()
    first, second = (queue.submit(Job(None, [number], compute)) for number in (1, 2))
    assert compute.begun.wait(10)
    queue.drop(second)
    assert queue.queued == 0
    with pytest.raises(Abandoned):
        second.future.result(0)
    compute.go.set()
    assert first.future.result(10) == [1]
    queue.drop(first)
    assert compute.runs == [[1]]


def test_abandoned_jobs_do_not_run(queue):
    compute = Recorder()
    first, second, third = (queue.submit(Job(None, [number], compute)) for number in (1, 2, 3))
    assert compute.begun.wait(10)
    second.cancel()
    first.cancel()
    compute.go.set()
    assert third.future.result(10) == [9]
    assert compute.runs == [[3]]
    for job in (first, second):
        with pytest.raises(Abandoned):
            job.future.result(10)
