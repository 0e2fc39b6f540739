"""Limited calls: from threads, after forks, without standard streams, interrupted, where little memory is left, and
after the caller is gone."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from candle_convert.models.generation.template_sandbox import rendered
from candle_convert.runtime.base.errors import LimitError, UsageError
from candle_convert.runtime.base.untrusted import limited_process

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
RENDER = "from candle_convert.models.generation.template_sandbox import rendered; import os, sys, signal, time\n"


def python(code, **options):
    return subprocess.run([sys.executable, "-c", RENDER + code], capture_output=True, text=True, timeout=120, **options)


def test_a_conversation_starts_one_process():
    assert rendered("{{ 1 + 1 }}", {}) == "2"
    first = limited_process._child._process.pid
    assert [rendered("{{ n }}", {"n": number}) for number in range(20)] == [str(number) for number in range(20)]
    assert limited_process._child._process.pid == first


def test_threads_share_it():
    found = {}

    def render(number):
        found[number] = rendered("{{ n }}", {"n": number})

    threads = [threading.Thread(target=render, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: str(number) for number in range(30)}


def test_a_forked_process_starts_its_own():
    ran = python(
        "rendered('x', {})\n"
        "pid = os.fork()\n"
        "made = [rendered('{{ n }}', {'n': n}) for n in range(50)] == [str(n) for n in range(50)]\n"
        "if pid == 0: os._exit(not made)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or not made)"
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_without_standard_streams():
    ran = subprocess.run(
        [
            "sh",
            "-c",
            '"$0" -c "$1" <&- >&- 2>&-',
            sys.executable,
            RENDER + "os._exit(0 if rendered('{{ 7 }}', {}) == '7' else 1)",
        ],
        timeout=120,
    )
    assert ran.returncode == 0


def test_warnings_as_errors_find_nothing_left_open():
    ran = python("print(rendered('{{ 7 }}', {}))", env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"})
    assert (ran.stdout, ran.stderr) == ("7\n", "")


def test_it_ends_with_the_program_that_is_killed():
    code = (
        RENDER + "rendered('x', {}); from candle_convert.runtime.base.untrusted import limited_process as limited; "
        "print(limited._child._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as program:
        child = int(program.stdout.readline())
        program.kill()
    for _ in range(600):
        try:
            ended = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            ended = True
        if ended:
            return
        time.sleep(0.1)
    raise AssertionError("the child goes on")


def test_an_interrupt_ends_a_call_and_the_next_one_works():
    ran = python(
        "import threading\n"
        "rendered('x', {})\n"
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        f"try: rendered({ENDLESS!r}, {{}}); print('ended')\n"
        "except KeyboardInterrupt: print(rendered('{{ 7 }}', {}))"
    )
    assert (ran.stdout, ran.stderr) == ("7\n", "")


def test_signals_that_the_caller_blocks_still_end_what_does_not_end():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF, signal.SIGXCPU})
    try:
        limited_process._drop()
        with pytest.raises(LimitError, match="processor time"):
            rendered(ENDLESS, {})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_memory_of_a_call():
    ran = python(
        "import resource\n"
        "from candle_convert.runtime.base.untrusted import limited_process as limited\n"
        "try: rendered(\"{% set s = 'x' * 1000000 %}{{ [s] * 10000 }}\", {})\n"
        "except Exception as error: print(error.why)\n"
        "limited._drop(); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 160 << 10)"
    )
    assert (ran.stdout, ran.stderr) == ("the chat template needs more than 64 MiB of memory\nTrue\n", "")


def test_little_memory_is_told():
    ran = python(
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)); rendered('x', {})\n"
        "from candle_convert.runtime.base.untrusted import limited_process as limited; limited._drop()\n"
        "held = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (min(held, 1 << 24), 1 << 24))\n"
        "from candle_convert.runtime.base.errors import LimitError\n"
        "try: rendered('x', {})\n"
        "except LimitError as error: print(error.code, error.exit_code)"
    )
    assert (ran.stdout, ran.stderr) == ("E-TEMPLATE-PROCESS 6\n", "")


def test_values_are_plain_data():
    long = "é\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16") * 1000
    values = {"a": [1, 2.5, None, True, long, {"k": ("t", 1)}], "n": 10**50}
    assert rendered("{{ a }}|{{ n }}", values) == str([1, 2.5, None, True, long, {"k": ["t", 1]}]) + f"|{10**50}"
    deep = []
    for _ in range(5000):
        deep = [deep]
    for wrong in (object(), b"x", len, {1, 2}, deep):
        with pytest.raises(UsageError):
            rendered("{{ a }}", {"a": wrong})


def test_a_long_conversation_has_more_memory_and_output():
    text = "word " * 8_000_000
    assert rendered("{{ a }}", {"a": text}) == text
