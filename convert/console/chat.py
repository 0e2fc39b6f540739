"""Chat: a conversation on a terminal, with line editing, streamed answers, and Ctrl-C to stop an answer."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from types import FrameType

from ...models.generation.conversation import Conversation
from ...runtime.base.errors import Error
from .output import current
from .status_line import PROMPT, busy

ASK = "> "
ENDS = ("/exit", "/quit", "/bye")
CLEAR, IMAGE = "/clear", "/image "
HELP = "/exit or Ctrl-D ends the conversation, Ctrl-C stops an answer, /clear starts over"
PICTURES = "/image PATH puts a picture before the next message"


def chat(conversation: Conversation, show: Callable[[str], None]) -> int:
    """Read messages and show answers until the user ends it; how many answers there were.

    Args:
        show: prints a piece of an answer.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives input() line editing and a history)
    print(HELP, file=sys.stderr)
    if conversation.takes_pictures:
        print(PICTURES, file=sys.stderr)
    if not conversation.has_template:
        print("The model has no chat template: it continues your text", file=sys.stderr)
    return _Chat(conversation, show).run()


class _Chat:
    """The loop, with what Ctrl-C does in it: gives up the line that is typed, or stops the answer; twice in an answer
    it ends the run."""

    def __init__(self, conversation: Conversation, show: Callable[[str], None]) -> None:
        self._conversation = conversation
        self._show = show
        self._asking = False
        self._interrupts = 0

    def run(self) -> int:
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            answers = 0
            while (text := self._asked()) is not None and text not in ENDS:
                if text == CLEAR:
                    self._conversation.clear()
                elif text.startswith(IMAGE):
                    self._add_picture(text.removeprefix(IMAGE).strip())
                elif text.startswith("/") and text[1:].isalpha():
                    print(HELP, file=sys.stderr)
                elif text.strip():
                    answers += self._answer(text)
            return answers
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._asking or self._interrupts > 1:
            raise KeyboardInterrupt

    def _asked(self) -> str | None:
        """A line of the user's; None at the end of input, "" where Ctrl-C gives up the line."""
        try:
            self._interrupts, self._asking = 0, True
            text = input(ASK)
            self._asking = False
            return text
        except EOFError:
            print(file=sys.stderr)
            return None
        except KeyboardInterrupt:
            print(file=sys.stderr)
            return ""
        finally:
            self._asking = False

    def _add_picture(self, path: str) -> None:
        try:
            self._conversation.add_picture(path)
        except Error as error:
            current().complain(str(error))

    def _answer(self, text: str) -> bool:
        """Show an answer; whether there was one."""
        busy().start(PROMPT)
        try:
            for piece in self._conversation.say(text, stopped=lambda: self._interrupts > 0):
                busy().stop()
                self._show(piece)
        except Error as error:
            current().complain(str(error))
            return False
        finally:
            busy().stop()
        self._show("\n")
        return True
