"""The Tab key of the REPL: what is typed behind it waits until the completion is inserted, as in a shell."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent


def completion_keys(completer: "Completer") -> "KeyBindings":
    """Return bindings of Tab that complete with `completer`. Ctrl-C ends a completion that takes long.

    prompt_toolkit completes beside the input: a letter that is typed at once ends its completion, and the line is not
    the one that was meant.
    """
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    bindings = KeyBindings()
    waiting: list[KeyPress] = []
    running: list[asyncio.Task[None]] = []
    is_running = Condition(lambda: bool(running))

    @bindings.add("tab", filter=~is_running)
    def complete(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        if buffer.complete_state:  # the menu is shown
            buffer.complete_next()
            return

        async def completed() -> None:
            requested = CompleteEvent(completion_requested=True)
            candidates = [one async for one in completer.get_completions_async(buffer.document, requested)]
            _insert(buffer, candidates)
            if not waiting and len(candidates) > 1:
                buffer.start_completion()  # shows the menu

        def resume(_: object) -> None:
            running.clear()
            event.key_processor.feed_multiple(waiting)
            waiting.clear()
            event.key_processor.process_keys()

        running.append(asyncio.ensure_future(completed()))
        running[0].add_done_callback(resume)  # not `finally`: a task may be cancelled before it has begun

    @bindings.add(Keys.Any, filter=is_running, eager=True)
    def wait(event: "KeyPressEvent") -> None:
        waiting.extend(event.key_sequence)

    @bindings.add("c-c", filter=is_running, eager=True)
    def end(_: "KeyPressEvent") -> None:
        waiting.clear()
        running[0].cancel()

    return bindings


def _insert(buffer: "Buffer", candidates: "list[Completion]") -> None:
    """Insert what all candidates begin with; or the only one, with a blank behind it unless more of it may follow."""
    from prompt_toolkit.completion import get_common_complete_suffix

    if len(candidates) == 1:
        buffer.apply_completion(candidates[0])
        if not candidates[0].text.endswith(("/", "=")) and buffer.document.is_cursor_at_the_end:
            buffer.insert_text(" ")
    else:
        buffer.insert_text(get_common_complete_suffix(buffer.document, candidates))
